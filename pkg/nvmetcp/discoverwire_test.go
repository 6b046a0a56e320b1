package nvmetcp

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	"github.com/csi-mpath/csi-mpath/pkg/nvmetcp/auth"
	"github.com/csi-mpath/csi-mpath/pkg/target"
	"github.com/csi-mpath/csi-mpath/pkg/target/subsystem"
)

// B-20, B-21: no keep alive, for some controllers refuse it; a log of several
// pages; and goodbye in order.
func TestB20ADiscoveryControllerIsAskedAndLeftInOrder(t *testing.T) {
	want := manyRecords(40, "192.0.2.1")
	s := newScripted(t)
	s.id.Kind = nvme.ControllerDiscovery
	s.admin = func(q *scriptedQueue, c *nvme.Command, _ []byte) bool {
		r := nvme.ParseLogRequest(c)
		if c.Opcode != nvme.AdminGetLog || r.Page != nvme.LogDiscovery {
			return false
		}
		q.give(c, logOf(3, want...)[r.Offset:][:r.Len])
		return true
	}
	var asked string
	s.connect = func(q *scriptedQueue, c nvme.ConnectCommand, d *nvme.ConnectData) nvme.Status {
		asked = d.Subsystem
		if c.KeepAlive != 0 {
			return nvme.ConnectInvalid.Final()
		}
		return nvme.Success
	}
	cfg := s.settings()
	cfg.Subsystem = ""
	d, err := Discover(t.Context(), cfg)
	if err != nil || len(d.Subsystems) != 40 || len(d.Skipped) != 0 {
		t.Fatalf("%+v, %v", d, err)
	}
	s.over()
	if asked != nvme.DiscoveryNQN || nvme.ParseConfig(s.config).Shutdown != nvme.ShutdownNormal || len(s.conns) != 1 {
		t.Errorf("%s was asked over %d connections, CC %#x", asked, len(s.conns), s.config)
	}
	if slices.ContainsFunc(s.commands, func(c nvme.Command) bool { return c.Opcode == nvme.AdminKeepAlive || c.Opcode == nvme.AdminAsyncEvent }) {
		t.Error("commands that a short visit does not need")
	}
}

func TestAControllerWithoutADiscoveryLogIsAnError(t *testing.T) {
	s := newScripted(t)
	s.admin = func(q *scriptedQueue, c *nvme.Command, _ []byte) bool {
		if c.Opcode == nvme.AdminGetLog {
			q.complete(c, 0, nvme.InvalidLogPage.Final())
		}
		return c.Opcode == nvme.AdminGetLog
	}
	var named *ControllerError
	if d, err := Discover(t.Context(), s.settings()); !errors.As(err, &named) || !errors.Is(err, nvme.InvalidLogPage.Final()) {
		t.Errorf("%+v, %v", d, err)
	}
}

// served is our own target with two portals, and what a host needs to ask it.
func served(t *testing.T, cred auth.Credentials) (cfg Config, portals []string) {
	t.Helper()
	s, err := subsystem.New(subsystem.Config{Name: someSubsystem, Auth: cred,
		Namespaces: []subsystem.Namespace{{ID: 1, Store: target.NewRAM(1 << 20)}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	for range 2 {
		p, err := s.Listen("127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		portals = append(portals, p.Addr())
	}
	return Config{Portal: portals[1], HostNQN: someHost, HostID: [16]byte{1}, ConnectTimeout: time.Minute, LoginTimeout: time.Minute}, portals
}

func TestOurTargetIsDiscovered(t *testing.T) {
	cfg, portals := served(t, auth.Credentials{})
	d, err := Discover(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Subsystems) != 1 || d.Subsystems[0].NQN != someSubsystem || len(d.Skipped) != 0 {
		t.Fatalf("%+v", d)
	}
	var got []string
	for _, p := range d.Subsystems[0].Portals {
		got = append(got, p.Address)
	}
	if slices.Sort(got); !slices.Equal(got, slices.Sorted(slices.Values(portals))) {
		t.Errorf("portals %v, not %v", got, portals)
	}
}

func TestDiscoveryProvesItselfWhereItIsAsked(t *testing.T) {
	secret := func(text string) auth.Secret { return auth.FormatSecret(auth.SHA256, []byte(text)) }
	both := auth.Credentials{Secret: secret("a secret of the host of 32 bytes"), ControllerSecret: secret("the controller has one of its so"),
		Groups: auth.GroupSet(auth.FFDHE2048)}
	cfg, _ := served(t, both)
	for name, c := range map[string]struct {
		cred auth.Credentials
		want error
	}{
		"right":            {both, nil},
		"none":             {auth.Credentials{}, ErrAuth},
		"wrong":            {auth.Credentials{Secret: both.ControllerSecret}, ErrAuth},
		"wrong controller": {auth.Credentials{Secret: both.Secret, ControllerSecret: both.Secret}, ErrAuth},
	} {
		cfg.Auth = c.cred
		if d, err := Discover(t.Context(), cfg); !errors.Is(err, c.want) || c.want == nil && len(d.Subsystems) != 1 {
			t.Errorf("%s: %+v, %v", name, d, err)
		}
	}
}

// B-26: a target that asks for nothing cannot prove itself.
func TestATargetWithoutAuthenticationIsRefusedWhereProofIsWanted(t *testing.T) {
	cfg, _ := served(t, auth.Credentials{})
	one := auth.FormatSecret(0, []byte("a secret of the host of 32 bytes"))
	cfg.Auth = auth.Credentials{Secret: one}
	if _, err := Discover(t.Context(), cfg); err != nil {
		t.Errorf("one way: %v", err)
	}
	cfg.Auth.ControllerSecret = one
	if d, err := Discover(t.Context(), cfg); err == nil {
		t.Errorf("two ways: %+v", d)
	}
}
