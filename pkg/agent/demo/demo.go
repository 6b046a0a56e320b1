// Package demo prepares a storage host in a pod, for people who want to see what the
// driver is like: certificates, which it shares with the cluster's controller by a
// Secret, and the agent's configuration. What it keeps is for trying, and goes with
// the pod.
package demo

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-mpath/csi-mpath/pkg/agent/config"
	"github.com/csi-mpath/csi-mpath/pkg/agent/pki"
	"github.com/csi-mpath/csi-mpath/pkg/durable"
)

// tenant is the cluster's name at its own storage host.
const tenant = "demo"

// renewBefore is how long before their end certificates are made anew, at a start.
const renewBefore = 30 * 24 * time.Hour

// keys are those of the Secret, each with the file that pki.Init makes of it.
var keys = map[string]string{
	"ca.crt": "ca.crt", "tls.crt": "client-" + tenant + ".crt", "tls.key": "client-" + tenant + ".key", // the controller's
	"server.crt": "server.crt", "server.key": "server.key",
}

// Host is a storage host.
type Host struct {
	// Dir is where everything of it is.
	Dir string
	// Address is what nodes and the controller reach it by; empty: the Service's.
	Address string
	// Namespace has the Service, and the Secret, which must be there, and may be empty.
	Namespace, Service, Secret string
}

// Prepare makes what the agent needs to start with Dir/agent.yaml.
func (h Host) Prepare(ctx context.Context, client kubernetes.Interface, now time.Time) error {
	address, err := h.address(ctx, client)
	if err != nil {
		return err
	}
	if err := h.certificates(ctx, client, address, now); err != nil {
		return err
	}
	text := configOf(h.Dir, address)
	if _, err := config.Parse([]byte(text)); err != nil {
		return fmt.Errorf("the demo's configuration: %w", err)
	}
	for _, d := range []string{"volumes", "state", "run"} {
		if err := os.MkdirAll(filepath.Join(h.Dir, d), 0o700); err != nil {
			return err
		}
	}
	return durable.Replace(filepath.Join(h.Dir, "agent.yaml"), []byte(text))
}

func (h Host) address(ctx context.Context, client kubernetes.Interface) (netip.Addr, error) {
	text := h.Address
	if text == "" {
		s, err := client.CoreV1().Services(h.Namespace).Get(ctx, h.Service, meta.GetOptions{})
		if err != nil {
			return netip.Addr{}, fmt.Errorf("service %s/%s: %w", h.Namespace, h.Service, err)
		}
		text = s.Spec.ClusterIP
	}
	a, err := netip.ParseAddr(text)
	if err != nil || a.IsUnspecified() {
		return netip.Addr{}, fmt.Errorf("%q is no address that nodes can reach: want an IP address", text)
	}
	return a, nil
}

// certificates are those of the Secret, as long as they are good for the address;
// else new ones, which the Secret is given too.
func (h Host) certificates(ctx context.Context, client kubernetes.Interface, address netip.Addr, now time.Time) error {
	secrets := client.CoreV1().Secrets(h.Namespace)
	s, err := secrets.Get(ctx, h.Secret, meta.GetOptions{})
	if err != nil {
		return fmt.Errorf("secret %s/%s: %w", h.Namespace, h.Secret, err)
	}
	if serves(s.Data, address, now) != nil {
		if s.Data, err = h.issue(address, now); err != nil {
			return err
		}
		if _, err := secrets.Update(ctx, s, meta.UpdateOptions{}); err != nil {
			return fmt.Errorf("secret %s/%s is not written: %w", h.Namespace, h.Secret, err)
		}
	}
	return h.write(s)
}

// serves says why certificates cannot be used.
func serves(data map[string][]byte, address netip.Addr, now time.Time) error {
	for k := range keys {
		if len(data[k]) == 0 {
			return fmt.Errorf("%s is missing", k)
		}
	}
	block, _ := pem.Decode(data["server.crt"])
	if block == nil {
		return errors.New("server.crt is no certificate")
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return err
	}
	if now.Add(renewBefore).After(c.NotAfter) {
		return fmt.Errorf("server.crt is valid until %v", c.NotAfter)
	}
	return c.VerifyHostname(address.String())
}

// issue makes new certificates. Their authority is forgotten: nobody else gets one.
func (h Host) issue(address netip.Addr, now time.Time) (data map[string][]byte, err error) {
	dir, err := os.MkdirTemp(h.Dir, "issue")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	hosts := []string{address.String()}
	if h.Service != "" {
		hosts = append(hosts, h.Service+"."+h.Namespace+".svc")
	}
	if _, err := pki.Init(dir, hosts, tenant, now); err != nil {
		return nil, err
	}
	data = map[string][]byte{}
	for k, file := range keys {
		if data[k], err = durable.Read(filepath.Join(dir, file), maxFile); err != nil {
			return nil, err
		}
	}
	return data, nil
}

// write gives the agent its files.
func (h Host) write(s *core.Secret) error {
	dir := filepath.Join(h.Dir, "tls")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, k := range []string{"ca.crt", "server.crt", "server.key"} {
		if err := durable.Replace(filepath.Join(dir, k), s.Data[k]); err != nil {
			return err
		}
	}
	return nil
}

// configOf is the agent's configuration: each volume over two portals.
func configOf(dir string, address netip.Addr) string {
	all := "0.0.0.0"
	if address.Is6() {
		all = "::"
	}
	portal := func(port uint16) string {
		return fmt.Sprintf("{listen: %q, advertise: %q}", netip.AddrPortFrom(netip.MustParseAddr(all), port), netip.AddrPortFrom(address, port))
	}
	return fmt.Sprintf(`# Made at the pod's start.
listen: %q
tls: {cert: %[2]s/tls/server.crt, key: %[2]s/tls/server.key, clientCA: %[2]s/tls/ca.crt}
state: %[2]s/state
admin: %[2]s/run/admin.sock
pools:
- name: demo
  directory: {path: %[2]s/volumes}
exports:
  iscsi: {kind: embedded, portals: [%[3]s, %[4]s]}
  nvme-tcp: {kind: embedded, portals: [%[5]s, %[6]s]}
`, netip.AddrPortFrom(netip.MustParseAddr(all), 7443), dir, portal(3260), portal(3261), portal(4420), portal(4421))
}
