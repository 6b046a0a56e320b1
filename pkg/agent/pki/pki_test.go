package pki

import (
	"crypto/x509"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func initIn(t *testing.T, dir string) []string {
	t.Helper()
	made, err := Init(dir, []string{"storage-1.example", "192.0.2.1", "fd00::1"}, "prod", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func open(t *testing.T, dir, name string, failed func(error)) *Source {
	t.Helper()
	f := func(n string) string { return filepath.Join(dir, n) }
	s, err := Open(Files{Cert: f(name + ".crt"), Key: f(name + ".key"), CA: f("ca.crt")}, failed)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAFirstSetLetsClientAndServerTrustEachOther(t *testing.T) {
	dir := t.TempDir()
	initIn(t, dir)
	server, client := open(t, dir, "server", nil).Identity(), open(t, dir, "client-prod", nil).Identity()
	for _, host := range []string{"storage-1.example", "192.0.2.1", "fd00::1"} {
		_, err := server.Cert.Leaf.Verify(x509.VerifyOptions{Roots: client.Peers, DNSName: host, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
		if err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
	_, err := client.Cert.Leaf.Verify(x509.VerifyOptions{Roots: server.Peers, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if err != nil {
		t.Error(err)
	}
	if tenant, err := TenantOf(client.Cert.Leaf); err != nil || tenant != "prod" {
		t.Error(tenant, err)
	}
	if _, err := TenantOf(server.Cert.Leaf); err == nil {
		t.Error("the server's certificate is a client's, too")
	}
	_, err = client.Cert.Leaf.Verify(x509.VerifyOptions{Roots: server.Peers, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	if err == nil {
		t.Error("a client may pose as the server")
	}
}

func TestKeysAreTheirOwnersOnly(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tls")
	for _, f := range initIn(t, dir) {
		fi, err := os.Stat(f)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(f, ".key") && fi.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %#o", f, fi.Mode().Perm())
		}
	}
	if fi, err := os.Stat(dir); err != nil || fi.Mode().Perm() != 0o700 {
		t.Error(fi.Mode(), err)
	}
	key := filepath.Join(dir, "server.key")
	if err := os.Chmod(key, 0o604); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Files{filepath.Join(dir, "server.crt"), key, filepath.Join(dir, "ca.crt")}, nil); err == nil || !strings.Contains(err.Error(), key) {
		t.Error(err)
	}
}

func TestNothingIsOverwritten(t *testing.T) {
	dir := t.TempDir()
	made := initIn(t, dir)
	for _, keep := range made {
		content, err := os.ReadFile(keep)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range made {
			if f != keep {
				os.Remove(f)
			}
		}
		if _, err := Init(dir, []string{"x.example"}, "prod", time.Now()); err == nil || !strings.Contains(err.Error(), keep) {
			t.Errorf("%s: %v", keep, err)
		}
		entries, _ := os.ReadDir(dir)
		if now, _ := os.ReadFile(keep); len(entries) != 1 || string(now) != string(content) {
			t.Errorf("%s: %d files", keep, len(entries))
		}
		os.Remove(keep)
		initIn(t, dir)
	}
}

func TestAnotherTenantGetsACertificateOfTheSameAuthority(t *testing.T) {
	dir := t.TempDir()
	initIn(t, dir)
	if _, err := AddClient(dir, "lab", time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := AddClient(dir, "lab", time.Now()); err == nil {
		t.Error("overwritten")
	}
	c := open(t, dir, "client-lab", nil).Identity()
	if _, err := c.Cert.Leaf.Verify(x509.VerifyOptions{Roots: c.Peers, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Error(err)
	}
}

func TestNamesThatAreNoneAreRefused(t *testing.T) {
	for _, tenant := range []string{"", "../prod", "A", "a/b", "-a", strings.Repeat("a", 64)} {
		if _, err := Init(t.TempDir(), []string{"x.example"}, tenant, time.Now()); err == nil {
			t.Errorf("tenant %q", tenant)
		}
	}
	for _, host := range []string{"", "a b", "a/b", "-x", "x..y", "1.2.3", "0.0.0.0", "fe80::1%eth0", "*.example"} {
		if _, err := Init(t.TempDir(), []string{host}, "prod", time.Now()); err == nil {
			t.Errorf("host %q", host)
		}
	}
}

func TestATenantIsOneURIAndNothingElse(t *testing.T) {
	uri := func(all ...string) *x509.Certificate {
		c := &x509.Certificate{}
		for _, s := range all {
			u, err := url.Parse(s)
			if err != nil {
				t.Fatal(err)
			}
			c.URIs = append(c.URIs, u)
		}
		return c
	}
	if tenant, err := TenantOf(uri("spiffe://csi-mpath.io/cluster/prod-1")); err != nil || tenant != "prod-1" {
		t.Error(tenant, err)
	}
	for _, bad := range [][]string{{}, {"spiffe://csi-mpath.io/cluster/a", "spiffe://csi-mpath.io/cluster/b"},
		{"spiffe://csi-mpath.io/cluster/a", "https://example.org"}, {"spiffe://csi-mpath.io/cluster/"}, {"spiffe://csi-mpath.io/cluster/a/"},
		{"spiffe://csi-mpath.io/cluster/a/b"}, {"spiffe://csi-mpath.io/cluster/../a"}, {"spiffe://csi-mpath.io/cluster/%61"},
		{"spiffe://csi-mpath.io/cluster/a?x=1"}, {"spiffe://csi-mpath.io/cluster/a#b"}, {"spiffe://u@csi-mpath.io/cluster/a"},
		{"spiffe://csi-mpath.io:1/cluster/a"}, {"spiffe://CSI-mpath.io/cluster/a"}, {"https://csi-mpath.io/cluster/a"},
		{"spiffe://csi-mpath.io/cluster/" + strings.Repeat("a", 64)}, {"spiffe://csi-mpath.io/clusters/a"}} {
		if tenant, err := TenantOf(uri(bad...)); err == nil {
			t.Errorf("%q is %q", bad, tenant)
		}
	}
}

func TestChangedFilesAreReadAgainAndBrokenOnesAreNot(t *testing.T) {
	dir := t.TempDir()
	initIn(t, dir)
	var failures []error
	s := open(t, dir, "server", func(err error) { failures = append(failures, err) })
	first := s.Identity()
	if s.Identity() != first {
		t.Error("read again without a change")
	}
	crt := filepath.Join(dir, "server.crt")
	old, err := os.ReadFile(crt)
	if err != nil {
		t.Fatal(err)
	}
	replace(t, crt, []byte("no certificate"))
	for range 2 {
		if s.Identity() != first {
			t.Error("another than the last that was right")
		}
	}
	if len(failures) != 1 || !strings.Contains(failures[0].Error(), crt) {
		t.Errorf("%v", failures)
	}
	replace(t, crt, old)
	if again := s.Identity(); again == first || !slices.EqualFunc(again.Cert.Certificate, first.Cert.Certificate, slices.Equal) {
		t.Error("not read again")
	}
	if err := os.Remove(crt); err != nil {
		t.Fatal(err)
	}
	if c := s.Identity(); c == nil || len(failures) != 2 || c.Cert.Leaf.VerifyHostname("192.0.2.1") != nil {
		t.Errorf("%v", failures)
	}
}

func replace(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path+".new", b, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func FuzzTenantOf(f *testing.F) {
	f.Add("spiffe://csi-mpath.io/cluster/prod")
	f.Add("spiffe://csi-mpath.io/cluster/%70rod?x#y")
	f.Fuzz(func(t *testing.T, uri string) {
		u, err := url.Parse(uri)
		if err != nil {
			return
		}
		tenant, err := TenantOf(&x509.Certificate{URIs: []*url.URL{u}})
		if err == nil && (CheckTenant(tenant) != nil || u.Host != "csi-mpath.io" || u.Path != "/cluster/"+tenant || u.RawQuery+u.Fragment != "" || u.User != nil) {
			t.Fatalf("%q is tenant %q", uri, tenant)
		}
	})
}
