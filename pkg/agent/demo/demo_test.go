package demo

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/csi-mpath/csi-mpath/pkg/agent/config"
	"github.com/csi-mpath/csi-mpath/pkg/agent/pki"
)

func cluster() *fake.Clientset {
	at := meta.ObjectMeta{Name: "d", Namespace: "ns"}
	return fake.NewClientset(&core.Secret{ObjectMeta: at}, &core.Service{ObjectMeta: at, Spec: core.ServiceSpec{ClusterIP: "10.96.0.7"}})
}

func host(t *testing.T) Host {
	t.Helper()
	return Host{Dir: t.TempDir(), Namespace: "ns", Service: "d", Secret: "d"}
}

func prepare(t *testing.T, h Host, client *fake.Clientset) (*config.Config, map[string][]byte) {
	t.Helper()
	if err := h.Prepare(t.Context(), client, time.Now()); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(h.Dir, "agent.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	s, err := client.CoreV1().Secrets("ns").Get(t.Context(), "d", meta.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return c, s.Data
}

func TestAFirstStartMakesConfigurationAndCertificates(t *testing.T) {
	h := host(t)
	c, data := prepare(t, h, cluster())
	if len(c.Exports) != 2 || c.Exports[0].Portals[1].Advertise != "10.96.0.7:3261" || len(data) != 5 {
		t.Fatalf("%+v, %d keys", c, len(data))
	}
	id, err := pki.Open(pki.Files{Cert: c.TLS.Cert, Key: c.TLS.Key, CA: c.TLS.ClientCA}, nil)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(id.Identity().Cert.Certificate[0])
	if err != nil || leaf.VerifyHostname("10.96.0.7") != nil || leaf.VerifyHostname("d.ns.svc") != nil {
		t.Fatal(err, leaf.DNSNames, leaf.IPAddresses)
	}
	if all, _ := filepath.Glob(filepath.Join(h.Dir, "issue*")); len(all) > 0 {
		t.Fatal("the authority's key was left:", all)
	}
}

func TestALaterStartKeepsThem(t *testing.T) {
	client := cluster()
	_, first := prepare(t, host(t), client)
	_, second := prepare(t, host(t), client)
	if string(first["ca.crt"]) != string(second["ca.crt"]) {
		t.Fatal("made anew for no reason")
	}
}

func TestAnotherAddressMakesNewOnes(t *testing.T) {
	client := cluster()
	_, first := prepare(t, host(t), client)
	h := host(t)
	h.Address = "fd00::7"
	c, second := prepare(t, h, client)
	if string(first["ca.crt"]) == string(second["ca.crt"]) || c.Exports[0].Portals[0].Advertise != "[fd00::7]:3260" || c.Listen.String() != "[::]:7443" {
		t.Fatalf("%+v", c)
	}
}

func TestWithoutAnAddressNothingIsPrepared(t *testing.T) {
	h := host(t)
	h.Address = "storage-1"
	if err := h.Prepare(t.Context(), cluster(), time.Now()); err == nil || !strings.Contains(err.Error(), "want an IP address") {
		t.Fatal(err)
	}
	h = host(t)
	h.Service = "other"
	if err := h.Prepare(t.Context(), cluster(), time.Now()); err == nil || !strings.Contains(err.Error(), "ns/other") {
		t.Fatal(err)
	}
}
