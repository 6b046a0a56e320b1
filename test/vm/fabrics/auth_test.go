//go:build vm

package fabrics

import (
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/nvmetcp"
	"github.com/csi-mpath/csi-mpath/pkg/nvmetcp/auth"
	"github.com/csi-mpath/csi-mpath/pkg/target"
	"github.com/csi-mpath/csi-mpath/pkg/target/subsystem"
	"github.com/csi-mpath/csi-mpath/test/vm/kmsg"
	"github.com/csi-mpath/csi-mpath/test/vm/rig"
)

// terms are those of one exchange.
type terms struct {
	hash  auth.Hash
	group auth.Group
	key   auth.Hash // what the secrets are transformed with, 0: not at all
	both  bool
}

// agreements are the terms that both ends must be able to agree on: each hash,
// each group, each way to use a secret; with LONG=1 all combinations; none where
// the kernel cannot prove itself.
func agreements() (out []terms) {
	if !kernelProves() {
		return nil
	}
	for h := auth.SHA256; h <= auth.SHA512; h++ {
		for g := auth.Null; g <= auth.FFDHE8192; g++ {
			for _, k := range []auth.Hash{0, h} {
				for _, both := range []bool{false, true} {
					each := g == auth.Null && k == h || g > auth.Null && h == auth.SHA256 && k == 0 && both
					if each || os.Getenv("CSI_MPATH_LONG") != "" {
						out = append(out, terms{h, g, k, both})
					}
				}
			}
		}
	}
	return out
}

// credentials are new secrets for the terms, of the length their hash asks for.
func (x terms) credentials() auth.Credentials {
	secret := func() auth.Secret {
		raw := make([]byte, map[auth.Hash]int{0: 32, auth.SHA256: 32, auth.SHA384: 48, auth.SHA512: 64}[x.key])
		_, _ = rand.Read(raw)
		return auth.FormatSecret(x.key, raw)
	}
	c := auth.Credentials{Secret: secret()}
	if x.both {
		c.ControllerSecret = secret()
	}
	return c
}

func TestEveryHashAndGroupOpensTheKernelsTarget(t *testing.T) {
	kmsg.Watch(t)
	s := newNvmet(t).(*nvmet)
	host := filepath.Join(configfs, "hosts", hostNQN)
	for i, x := range agreements() {
		c := x.credentials()
		if i == 0 {
			first := terms{both: true}.credentials() // a key once set stays set
			rig.Must(t, s.demand(string(first.Secret), string(first.ControllerSecret)))
		}
		rig.Must(t, set(host, "dhchap_hash", fmt.Sprintf("hmac(%v)", x.hash), "dhchap_dhgroup", x.group.String(), "dhchap_key", string(c.Secret)))
		if x.both {
			rig.Must(t, set(host, "dhchap_ctrl_key", string(c.ControllerSecret)))
		}
		start := time.Now()
		ctrl, err := nvmetcp.Dial(t.Context(), nvmetcp.Config{Portal: portals[0], Subsystem: s.name, HostNQN: hostNQN, HostID: [16]byte{1}, Auth: c,
			ConnectTimeout: time.Minute, LoginTimeout: time.Minute, PathTimeout: time.Minute})
		if err != nil {
			t.Errorf("%+v: %v", x, err)
			continue
		}
		t.Logf("%+v: %v", x, time.Since(start).Round(time.Millisecond))
		rig.Must(t, ctrl.Shutdown(t.Context()))
	}
}

func TestEveryHashAndGroupOpensOurTarget(t *testing.T) {
	kmsg.Watch(t)
	const name = "nqn.2026-01.io.csi-mpath:auth"
	for _, x := range agreements() {
		c := x.credentials()
		c.Hashes, c.Groups = auth.HashSet(x.hash), auth.GroupSet(x.group)
		s, err := subsystem.New(subsystem.Config{Name: name, Auth: c, Namespaces: []subsystem.Namespace{{ID: 1, Store: target.NewRAM(mib)}}})
		rig.Must(t, err)
		p, err := s.Listen("127.0.0.1:0")
		rig.Must(t, err)
		_, port, err := net.SplitHostPort(p.Addr())
		rig.Must(t, err)
		cmd := fmt.Sprintf("nvme connect -t tcp -a 127.0.0.1 -s %s -n %s -q %s -I %s -i 1 -S %s", port, name, hostNQN, hostID, string(c.Secret))
		if x.both {
			cmd += " -C " + string(c.ControllerSecret)
		}
		start := time.Now()
		out, err := rig.Try(cmd)
		t.Logf("%+v: %v", x, time.Since(start).Round(time.Millisecond))
		if err != nil || s.Stats().AuthFailures != 0 {
			t.Errorf("%+v: %v, %s", x, err, out)
		}
		rig.Sh(t, "nvme disconnect -n "+name)
		rig.Must(t, s.Close())
	}
}

// The two ports of the kernel's target refer to each other (B-21).
func TestTheKernelsReferralsAreFollowed(t *testing.T) {
	kmsg.Watch(t)
	s := newNvmet(t).(*nvmet)
	for i := range portals {
		addr, port, _ := net.SplitHostPort(portals[1-i])
		r := filepath.Join(s.port(i), "referrals", "other")
		t.Cleanup(func() { rig.Must(t, os.Remove(r)) })
		rig.Must(t, set(r, "addr_trtype", "tcp", "addr_adrfam", "ipv4", "addr_traddr", addr, "addr_trsvcid", port, "enable", "1"))
	}
	d, err := nvmetcp.Discover(t.Context(), nvmetcp.Config{Portal: portals[0], HostNQN: hostNQN, HostID: [16]byte{1}, ConnectTimeout: time.Minute, LoginTimeout: time.Minute})
	rig.Must(t, err)
	t.Logf("%+v", d)
	if len(d.Subsystems) != 1 || d.Subsystems[0].NQN != s.name || len(d.Subsystems[0].Portals) != 2 || len(d.Skipped) != 0 {
		t.Errorf("%+v", d)
	}
	out := rig.Sh(t, os.Getenv("CSI_MPATH_BIN")+" discover --timeout 30s --nvme-tcp "+portals[0])
	for _, want := range []string{s.name, portals[0], portals[1]} {
		if !strings.Contains(out, want) {
			t.Errorf("csi-mpath discover shows no %s:\n%s", want, out)
		}
	}
}
