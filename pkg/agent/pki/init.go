package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/durable"
)

// Names of the files of a first set.
const (
	authorityName = "ca"
	serverName    = "server"
	clientName    = "client-" // and the tenant
)

// Init makes in dir a certificate authority, a certificate for a server that is
// reached by hosts (DNS names and addresses), and one for the clients of a tenant:
// each NAME.crt and NAME.key, the keys readable for their owner only. It returns
// the files, and overwrites none: an existing one is an error before any is made.
func Init(dir string, hosts []string, tenant string, now time.Time) ([]string, error) {
	if err := CheckTenant(tenant); err != nil {
		return nil, err
	}
	server, err := serverTemplate(hosts)
	if err != nil {
		return nil, err
	}
	if err := absent(dir, authorityName, serverName, clientName+tenant); err != nil {
		return nil, err
	}
	ca, err := newAuthority(now)
	if err != nil {
		return nil, err
	}
	made, err := write(dir, authorityName, ca.cert.Raw, ca.key)
	if err != nil {
		return made, err
	}
	for name, template := range map[string]*x509.Certificate{serverName: server, clientName + tenant: clientTemplate(tenant)} {
		more, err := ca.issue(dir, name, template, now)
		made = append(made, more...)
		if err != nil {
			return made, err
		}
	}
	slices.Sort(made)
	return made, nil
}

// AddClient makes a certificate for the clients of one more tenant, by the
// authority that Init made in dir.
func AddClient(dir, tenant string, now time.Time) ([]string, error) {
	if err := CheckTenant(tenant); err != nil {
		return nil, err
	}
	if err := absent(dir, clientName+tenant); err != nil {
		return nil, err
	}
	ca, err := readAuthority(dir)
	if err != nil {
		return nil, err
	}
	return ca.issue(dir, clientName+tenant, clientTemplate(tenant), now)
}

type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

func newAuthority(now time.Time) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	t := &x509.Certificate{
		Subject: pkix.Name{CommonName: "csi-mpath agent CA"},
		IsCA:    true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage:  x509.KeyUsageCertSign,
		NotBefore: now.Add(-clockSkew), NotAfter: now.Add(authorityLife),
	}
	raw, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(raw)
	return &authority{cert, key}, err
}

func readAuthority(dir string) (*authority, error) {
	pair, err := readPair(filepath.Join(dir, authorityName+".crt"), filepath.Join(dir, authorityName+".key"))
	if err != nil {
		return nil, err
	}
	key, ok := pair.PrivateKey.(crypto.Signer)
	if !ok || !pair.Leaf.IsCA {
		return nil, fmt.Errorf("%s.crt in %s is no certificate authority", authorityName, dir)
	}
	return &authority{pair.Leaf, key}, nil
}

// issue makes a key and its certificate.
func (ca *authority) issue(dir, name string, t *x509.Certificate, now time.Time) ([]string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	t.KeyUsage = x509.KeyUsageDigitalSignature
	t.NotBefore, t.NotAfter = now.Add(-clockSkew), now.Add(leafLife)
	raw, err := x509.CreateCertificate(rand.Reader, t, ca.cert, key.Public(), ca.key)
	if err != nil {
		return nil, err
	}
	return write(dir, name, raw, key)
}

func clientTemplate(tenant string) *x509.Certificate {
	return &x509.Certificate{
		Subject:     pkix.Name{CommonName: tenant},
		URIs:        []*url.URL{tenantURI(tenant)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
}

func serverTemplate(hosts []string) (*x509.Certificate, error) {
	if len(hosts) == 0 || len(hosts) > maxNames {
		return nil, fmt.Errorf("%d host names and addresses: want 1..%d, those by which clients reach the agent", len(hosts), maxNames)
	}
	t := &x509.Certificate{
		Subject:     pkix.Name{CommonName: "csi-mpath agent"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, h := range hosts {
		if ip, err := netip.ParseAddr(h); err == nil && ip.Zone() == "" && !ip.IsUnspecified() {
			t.IPAddresses = append(t.IPAddresses, ip.AsSlice())
		} else if dnsName(h) {
			t.DNSNames = append(t.DNSNames, h)
		} else {
			return nil, fmt.Errorf("%.64q is neither a DNS name nor an address that clients can reach", h)
		}
	}
	return t, nil
}

// dnsName: labels of letters, digits and inner hyphens; not all digits and dots,
// which is a mistyped address.
func dnsName(h string) bool {
	ok := h != "" && len(h) <= 253 && strings.ContainsFunc(h, func(r rune) bool { return r >= 'a' && r <= 'z' })
	for _, label := range strings.Split(h, ".") {
		ok = ok && label != "" && len(label) <= 63 && label[0] != '-' && label[len(label)-1] != '-' &&
			strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
	}
	return ok
}

// absent makes sure that nothing would be overwritten.
func absent(dir string, names ...string) error {
	for _, n := range names {
		for _, ext := range []string{".crt", ".key"} {
			path := filepath.Join(dir, n+ext)
			if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("%s is there already, and is not overwritten: move it away, or choose another directory", path)
			}
		}
	}
	return nil
}

// write makes the two files of a certificate.
func write(dir, name string, cert []byte, key crypto.Signer) ([]string, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, name)
	err = create(path+".key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600)
	if err != nil {
		return nil, err
	}
	err = create(path+".crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), 0o644)
	return []string{path + ".crt", path + ".key"}, errors.Join(err, durable.SyncDir(dir))
}

// create makes a file that is not there.
func create(path string, b []byte, mode os.FileMode) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode) //nolint:gosec // the caller's directory
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Sync(), f.Close())
}
