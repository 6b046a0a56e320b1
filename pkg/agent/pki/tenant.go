// Package pki is about the certificates of the storage-host agent: which tenant a
// client's names, a first set of them, and files that are read again when they
// change.
package pki

import (
	"crypto/x509"
	"fmt"
	"net/url"
	"strings"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// tenantPrefix is what the URI of a client's certificate begins with; the
// tenant's name follows, and nothing else.
const tenantPrefix = "spiffe://csi-mpath.io/cluster/"

// TenantOf is the tenant that a client's certificate is of: its one URI name is
// spiffe://csi-mpath.io/cluster/<tenant>. A certificate with none, with several,
// or with one that could be read in two ways is of nobody.
func TenantOf(c *x509.Certificate) (string, error) {
	if len(c.URIs) != 1 {
		return "", fmt.Errorf("the certificate of %.64q has %d URI names, want one: %s<tenant>", c.Subject.CommonName, len(c.URIs), tenantPrefix)
	}
	uri := c.URIs[0].String()
	tenant, ok := strings.CutPrefix(uri, tenantPrefix)
	if !ok || CheckTenant(tenant) != nil {
		return "", fmt.Errorf("the certificate's URI name %.128q is not %s<tenant>, with 1..%d of a-z, 0-9 and inner hyphens",
			uri, tenantPrefix, backend.MaxObject)
	}
	return tenant, nil
}

// CheckTenant refuses what is no tenant's name.
func CheckTenant(tenant string) error {
	if !backend.ValidName(tenant, backend.MaxObject) {
		return fmt.Errorf("tenant %.64q: want 1..%d of a-z, 0-9 and inner hyphens", tenant, backend.MaxObject)
	}
	return nil
}

// tenantURI is the name for a certificate.
func tenantURI(tenant string) *url.URL {
	return &url.URL{Scheme: "spiffe", Host: "csi-mpath.io", Path: "/cluster/" + tenant}
}
