package lio

import (
	"context"
	"errors"
	"fmt"
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
	s := &configfstest.Subject{Tree: configfstest.NewTarget(), Loops: &looptest.Devices{},
		Access: access,
		Waits:  aclPath,
		Strangers: func(ctx context.Context, tree *configfstest.Tree) error {
			e := configfs.NewEdit(ctx, tree)
			for _, p := range []string{"core/iblock_0", "core/iblock_0/disk", "core/" + adapter, "core/" + adapter + "/mine", "iscsi/iqn.2020-01.com.example:disk",
				"iscsi/iqn.2020-01.com.example:disk/tpgt_1", "iscsi/iqn.2020-01.com.example:disk/tpgt_1/acls/iqn.2020-01.com.example:host",
				"iscsi/iqn.2025-01.io.csi-mpath:vol:mine"} {
				e.Dir(configfs.Path(p))
			}
			return e.Err()
		}}
	x, err := New(Config{Portals: []export.Portal{{Listen: "192.0.2.1:3260"}, {Listen: "[::]:3260", Advertise: "[2001:db8::1]:3260"}}, FS: s.Tree, Loops: s.Loops})
	if err != nil {
		t.Fatal(err)
	}
	s.Exporter = x
	// It stays, once it was made.
	if err := s.Tree.Mkdir(t.Context(), "iscsi"); err != nil {
		t.Fatal(err)
	}
	return s
}

func access(n int) export.Access {
	a := export.Access{Initiator: fmt.Sprint("iqn.2025-01.io.csi-mpath:node", n, ":epoch")}
	a.Auth.CHAP = backend.CHAP{User: "user", Secret: "first-secret-1", MutualUser: "target", MutualSecret: "other-secret-2"}
	return a
}

func TestServing(t *testing.T) { configfstest.Run(t, subject) }

// want checks attributes of the tree: path and value in turn.
func want(t *testing.T, s *configfstest.Subject, kv ...string) {
	t.Helper()
	for i := 0; i < len(kv); i += 2 {
		got, err := s.Tree.Read(t.Context(), configfs.Path(kv[i]))
		if err != nil || got != kv[i+1] {
			t.Errorf("%s is %q, %v; want %q", kv[i], got, err, kv[i+1])
		}
	}
}

func TestAVolumeIsServedUnderItsIdentity(t *testing.T) {
	s := subject(t)
	v := s.Volume(1, 1, 2)
	v.Access[1] = export.Access{Initiator: "IQN.2025-01.io.csi-mpath:Node2", ReadOnly: true}
	if _, err := s.Ensure(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	store, group := "core/iblock_4150/v-"+v.Identity, "iscsi/iqn.2025-01.io.csi-mpath:vol:"+v.Identity+"/tpgt_1"
	want(t, s, store+"/udev_path", "/dev/loop0", store+"/enable", "1", store+"/wwn/vpd_unit_serial", v.Identity,
		store+"/wwn/vendor_id", "csimpath", store+"/wwn/product_id", "volume", store+"/attrib/emulate_3pc", "0", store+"/attrib/emulate_tpu", "1",
		group+"/enable", "1", group+"/attrib/authentication", "1", group+"/attrib/generate_node_acls", "0", group+"/attrib/demo_mode_discovery", "0",
		group+"/np/192.0.2.1:3260/iser", "0", group+"/np/[::]:3260/iser", "0")
	first, second := group+"/acls/"+v.Access[0].Initiator, group+"/acls/iqn.2025-01.io.csi-mpath:node2"
	want(t, s, first+"/auth/password", "first-secret-1", first+"/auth/password_mutual", "other-secret-2", first+"/attrib/authentication", "1",
		first+"/lun_0/write_protect", "0", second+"/attrib/authentication", "0", second+"/lun_0/write_protect", "1")
	all := s.Portals()
	if len(all) != 2 || all[0] != (backend.Portal{Address: "192.0.2.1:3260", Group: 1}) || all[1] != (backend.Portal{Address: "[2001:db8::1]:3260", Group: 1}) {
		t.Errorf("portals are %v", all)
	}
}

func TestIdentitiesAreThereBeforeAnybodySeesThem(t *testing.T) {
	s := subject(t)
	v := s.Volume(1, 1)
	if _, err := s.Ensure(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	order := strings.Join(s.Tree.Changes(), "\n")
	last := -1
	for _, step := range []string{"/wwn/vpd_unit_serial", "link iscsi/" + export.Target(backend.ISCSI, v.Identity) + "/tpgt_1/lun/lun_0", "/auth/password_mutual",
		"/acls/" + v.Access[0].Initiator + "/lun_0/lun_0", "tpgt_1/enable"} {
		i := strings.Index(order, step)
		if i < last || i < 0 {
			t.Errorf("%s is not after what precedes it in:\n%s", step, order)
		}
		last = i
	}
}

func TestASecretThatIsGoneIsForgotten(t *testing.T) {
	s := subject(t)
	v := s.Volume(1, 1)
	for _, auth := range []backend.Auth{v.Access[0].Auth, {}} {
		v.Access[0].Auth = auth
		if _, err := s.Ensure(t.Context(), v); err != nil {
			t.Fatal(err)
		}
	}
	p := string(aclPath(v.Identity, v.Access[0].Initiator))
	want(t, s, p+"/auth/password", "NULL", p+"/auth/userid", "NULL", p+"/attrib/authentication", "0")
	if changed, err := s.Ensure(t.Context(), v); changed || err != nil {
		t.Errorf("once more: changed %v, %v", changed, err)
	}
}

func TestWhoIsLoggedInIsTold(t *testing.T) {
	s := subject(t)
	v := s.Volume(1, 1, 2)
	if _, err := s.Ensure(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	s.Tree.Connect(export.Target(backend.ISCSI, v.Identity), v.Access[1].Initiator, true)
	all, err := s.Sessions(t.Context())
	if err != nil || len(all) != 1 || all[0] != (export.Session{Identity: v.Identity, Initiator: v.Access[1].Initiator}) {
		t.Errorf("got %v, %v", all, err)
	}
}

func TestAPortalThatIsConfiguredNoMoreIsClosed(t *testing.T) {
	s := subject(t)
	v := s.Volume(1, 1)
	if _, err := s.Ensure(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	x, err := New(Config{Portals: []export.Portal{{Listen: "192.0.2.9:3260"}}, FS: s.Tree, Loops: s.Loops})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := x.Ensure(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	got, err := s.Tree.List(t.Context(), groupPath(v.Identity).Add("np"))
	if err != nil || len(got) != 1 || got[0] != "192.0.2.9:3260" {
		t.Errorf("portals %v, %v", got, err)
	}
}

func TestPortalsThatCannotWorkAreRefused(t *testing.T) {
	for _, p := range []export.Portal{{Listen: "host:3260"}, {Listen: "0.0.0.0:3260"}, {Listen: "192.0.2.1:3260", Group: 2}, {Listen: "192.0.2.1:3260", Advertise: "x"}} {
		if _, err := New(Config{Portals: []export.Portal{p}, FS: configfstest.NewTarget()}); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("%+v: got %v, want ErrInvalid", p, err)
		}
	}
}

func TestAKernelThatKnowsOneRuleForAllGetsOne(t *testing.T) {
	s := subject(t)
	s.Tree.Lack("attrib/authentication")
	v := s.Volume(1, 1, 2)
	if _, err := s.Ensure(t.Context(), v); err != nil {
		t.Error("all have secrets:", err)
	}
	v.Access[1].Auth = backend.Auth{}
	if _, err := s.Ensure(t.Context(), v); !errors.Is(err, backend.ErrUnsupported) {
		t.Errorf("one has a secret: got %v, want ErrUnsupported", err)
	}
	v.Access[0].Auth = backend.Auth{}
	if _, err := s.Ensure(t.Context(), v); err != nil {
		t.Error("none has:", err)
	}
	want(t, s, string(groupPath(v.Identity).Add("attrib", "authentication")), "0")
}
