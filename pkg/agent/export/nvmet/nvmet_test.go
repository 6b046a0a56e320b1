package nvmet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/agent/export"
	"github.com/csi-mpath/csi-mpath/pkg/agent/export/configfs"
	"github.com/csi-mpath/csi-mpath/pkg/agent/export/configfs/configfstest"
	"github.com/csi-mpath/csi-mpath/pkg/agent/export/loop/looptest"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

func subject(t *testing.T) *configfstest.Subject {
	t.Helper()
	s := &configfstest.Subject{Tree: configfstest.NewNvmet(), Loops: &looptest.Devices{}, Access: access, Strangers: strangers}
	x, err := New(Config{Portals: []export.Portal{{Listen: "192.0.2.1:4420"}, {Listen: "[2001:db8::1]:4420", Group: 7}}, FS: s.Tree, Loops: s.Loops})
	if err != nil {
		t.Fatal(err)
	}
	s.Exporter = x
	s.Waits = func(identity, initiator string) configfs.Path {
		return namespacePath(x.Target(identity, initiator)).Add("enable")
	}
	return s
}

func access(n int) export.Access {
	a := export.Access{Initiator: fmt.Sprint("nqn.2025-01.io.csi-mpath:node", n, ":epoch")}
	a.Auth.DHCHAP = backend.DHCHAP{Host: "DHHC-1:01:first:", Controller: "DHHC-1:01:other:"}
	return a
}

// strangers: an administrator's subsystem, on a port of his own, with a host that
// is also ours.
func strangers(ctx context.Context, tree *configfstest.Tree) error {
	e := configfs.NewEdit(ctx, tree)
	s := configfs.Path("subsystems/nqn.2020-01.com.example:disk")
	h := configfs.Path("hosts").Add(access(1).Initiator)
	for _, p := range []configfs.Path{s, h, s.Add("namespaces", "1"), "ports/1", "subsystems/nqn.2025-01.io.csi-mpath:vol:mine", "hosts/nqn.2020-01.com.example:host"} {
		e.Dir(p)
	}
	e.Attrs(h, "dhchap_key", "DHHC-1:01:first:", "dhchap_ctrl_key", "DHHC-1:01:other:", "dhchap_dhgroup", "ffdhe2048")
	e.Link(h, s.Add("allowed_hosts", h.Name()))
	e.Attrs("ports/1", "addr_trtype", "tcp", "addr_adrfam", "ipv4", "addr_traddr", "192.0.2.1", "addr_trsvcid", "4421")
	e.Link(s, configfs.Path("ports/1/subsystems").Add(s.Name()))
	return e.Err()
}

func TestServing(t *testing.T) { configfstest.Run(t, subject) }

func want(t *testing.T, s *configfstest.Subject, dir configfs.Path, kv ...string) {
	t.Helper()
	for i := 0; i < len(kv); i += 2 {
		got, err := s.Tree.Read(t.Context(), dir.Add(kv[i]))
		if err != nil || got != kv[i+1] {
			t.Errorf("%s/%s is %q, %v; want %q", dir, kv[i], got, err, kv[i+1])
		}
	}
}

func ensure(t *testing.T, s *configfstest.Subject, v export.Export) {
	t.Helper()
	if _, err := s.Ensure(t.Context(), v); err != nil {
		t.Fatal(err)
	}
}

func TestEachInitiatorHasASubsystemWithTheSameVolume(t *testing.T) {
	s := subject(t)
	v := s.Volume(1, 1, 2)
	ensure(t, s, v)
	var names []string
	for _, a := range v.Access {
		nqn := s.Target(v.Identity, a.Initiator)
		names = append(names, nqn)
		want(t, s, subsystemPath(nqn), "attr_allow_any_host", "0", "attr_serial", v.Identity[:20], "attr_model", "volume")
		want(t, s, namespacePath(nqn), "device_path", "/dev/loop0", "device_uuid", export.UUID(v.Identity), "device_nguid", export.UUID(v.Identity), "enable", "1")
		hosts, err := s.Tree.List(t.Context(), allowedPath(nqn))
		if err != nil || !slices.Equal(hosts, []string{a.Initiator}) {
			t.Errorf("%s lets in %v, %v", nqn, hosts, err)
		}
		want(t, s, hostPath(a.Initiator), "dhchap_key", "DHHC-1:01:first:", "dhchap_ctrl_key", "DHHC-1:01:other:", "dhchap_dhgroup", "ffdhe2048")
	}
	if names[0] == names[1] {
		t.Error("both have one name")
	}
	want(t, s, portPath("41500"), "addr_trtype", "tcp", "addr_adrfam", "ipv4", "addr_traddr", "192.0.2.1", "addr_trsvcid", "4420")
	want(t, s, portPath("7"), "addr_adrfam", "ipv6", "addr_traddr", "2001:db8::1")
}

func TestNobodySeesASubsystemThatIsNotComplete(t *testing.T) {
	s := subject(t)
	ensure(t, s, s.Volume(1, 1))
	order := strings.Join(s.Tree.Changes(), "\n")
	last := -1
	for _, step := range []string{"attr_serial", "device_uuid", "namespaces/1/enable", "dhchap_ctrl_key", "/allowed_hosts/", "link ports/41500/subsystems", "link ports/7/subsystems"} {
		i := strings.Index(order, step)
		if i < last || i < 0 {
			t.Errorf("%s is not after what precedes it in:\n%s", step, order)
		}
		last = i
	}
}

func TestControllersEndBeforeTheNamespaceIsWaitedFor(t *testing.T) {
	s := subject(t)
	v := s.Volume(1, 1)
	ensure(t, s, v)
	s.Tree.Changes()
	if err := s.Remove(t.Context(), v.Volume, v.Identity); err != nil {
		t.Fatal(err)
	}
	order := strings.Join(s.Tree.Changes(), "\n")
	last := -1
	for _, step := range []string{"/allowed_hosts/", "unlink ports/41500/subsystems", "unlink ports/7/subsystems", "write " + string(namespacePath(s.Target(v.Identity, v.Access[0].Initiator)).Add("enable")), "rmdir subsystems"} {
		i := strings.Index(order, step)
		if i < last || i < 0 {
			t.Errorf("%s is not after what precedes it in:\n%s", step, order)
		}
		last = i
	}
}

// An agent that was killed while the kernel waited for requests left a namespace
// that says it is disabled. That proves nothing: it must not be taken into use.
func TestANamespaceFoundDisabledIsMadeAnew(t *testing.T) {
	s := subject(t)
	v := s.Volume(1, 1)
	ensure(t, s, v)
	ns := namespacePath(s.Target(v.Identity, v.Access[0].Initiator))
	if err := s.Tree.Write(t.Context(), ns.Add("enable"), "0"); err != nil {
		t.Fatal(err)
	}
	s.Tree.Changes()
	ensure(t, s, v)
	if all := s.Tree.Changes(); !slices.Contains(all, "rmdir "+string(ns)) || !slices.Contains(all, "mkdir "+string(ns)) {
		t.Errorf("changes were\n%s", strings.Join(all, "\n"))
	}
}

func TestASecretThatIsGoneIsForgotten(t *testing.T) {
	s := subject(t)
	v := s.Volume(1, 1)
	ensure(t, s, v)
	v.Access[0].Auth = backend.Auth{}
	ensure(t, s, v)
	want(t, s, hostPath(v.Access[0].Initiator), "dhchap_key", "", "dhchap_ctrl_key", "")
}

func TestAPortOfAnAdministratorIsNotTakenOver(t *testing.T) {
	s := subject(t)
	if err := strangers(t.Context(), s.Tree); err != nil {
		t.Fatal(err)
	}
	x, err := New(Config{Portals: []export.Portal{{Listen: "192.0.2.1:4420", Group: 1}}, FS: s.Tree, Loops: s.Loops})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := x.Ensure(t.Context(), s.Volume(1, 1)); !errors.Is(err, backend.ErrConflict) {
		t.Errorf("got %v, want ErrConflict", err)
	}
	want(t, s, portPath("1"), "addr_trsvcid", "4421")
}

func TestTwoPortalsInOneGroupAreRefused(t *testing.T) {
	_, err := New(Config{Portals: []export.Portal{{Listen: "192.0.2.1:4420", Group: 3}, {Listen: "192.0.2.2:4420", Group: 3}}, FS: configfstest.NewNvmet()})
	if !errors.Is(err, backend.ErrInvalid) {
		t.Errorf("got %v, want ErrInvalid", err)
	}
}

func TestAKernelThatCannotAuthenticateLetsNobodyInWithASecret(t *testing.T) {
	s := subject(t)
	s.Tree.Lack("dhchap_key")
	v := s.Volume(1, 1)
	if _, err := s.Ensure(t.Context(), v); !errors.Is(err, backend.ErrUnsupported) {
		t.Errorf("got %v, want ErrUnsupported", err)
	}
	if links, err := s.Tree.List(t.Context(), allowedPath(s.Target(v.Identity, v.Access[0].Initiator))); err != nil || len(links) > 0 {
		t.Errorf("lets in %v, %v", links, err)
	}
	v.Access[0].Auth = backend.Auth{}
	ensure(t, s, v)
}
