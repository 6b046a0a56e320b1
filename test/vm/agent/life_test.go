//go:build vm

package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/agent/export"
	"github.com/csi-mpath/csi-mpath/pkg/agent/export/configfs/configfstest"
	"github.com/csi-mpath/csi-mpath/pkg/agent/export/lio"
	"github.com/csi-mpath/csi-mpath/pkg/agent/export/loop/looptest"
	"github.com/csi-mpath/csi-mpath/pkg/agent/export/nvmet"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/test/vm/rig"
)

// forget removes all of ours from the kernel by hand, as a reboot does.
func (s *server) forget() {
	s.t.Helper()
	all, err := s.Exported(s.ctx())
	rig.Must(s.t, err)
	for _, e := range all {
		rig.Must(s.t, s.Remove(s.ctx(), backend.ID{}, e.Identity))
	}
}

func TestAfterARebootTheSameIsServed(t *testing.T) {
	kinds(t, func(t *testing.T, s *server) {
		v, a, b := file(t), s.access(1, 1), s.access(2, 1)
		s.ensure(v, a, b)
		before := s.dial(v, a, 0)
		want, err := tree(s.kind.root)
		rig.Must(t, err)
		rig.Must(t, s.Remove(s.ctx(), v.Volume, v.Identity))
		<-before.Done()
		if !s.ensure(v, a, b) {
			t.Error("no change was told")
		}
		got, err := tree(s.kind.root)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%v; got\n%s\nwant\n%s", err, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		after := s.dial(v, a, 1)
		if after.Size != before.Size || after.WWID != before.WWID {
			t.Errorf("the volume was %s of %d bytes, and is %s of %d", before.WWID, before.Size, after.WWID, after.Size)
		}
		if s.ensure(v, a, b) {
			t.Error("another Ensure changed something")
		}
	})
}

func TestALinkThatSomebodyRemovedIsRepaired(t *testing.T) {
	kinds(t, func(t *testing.T, s *server) {
		v, a := file(t), s.access(1, 1)
		s.ensure(v, a)
		for _, l := range links(t) {
			rig.Must(t, os.Remove(l))
			if !s.ensure(v, a) {
				t.Errorf("%s was removed, and no change was told", l)
			}
			if _, err := os.Lstat(l); err != nil {
				t.Error(err)
			}
		}
		s.dial(v, a, 0)
	})
}

// admin makes an administrator's own target, as the facts of each kernel's tree
// have it, with demo settings of his.
func (s *server) admin(device string) (undo func()) {
	s.t.Helper()
	c := "/sys/kernel/config"
	if s.kind.name == "lio" {
		i := c + "/target/iscsi/iqn.2020-01.com.example:disk"
		b := c + "/target/core/iblock_0/disk"
		rig.Sh(s.t, fmt.Sprintf(`mkdir -p %[1]s; echo -n udev_path=%[3]s >%[1]s/control; echo 1 >%[1]s/enable
			mkdir -p %[2]s/tpgt_1; mkdir %[2]s/tpgt_1/np/127.0.0.1:3260 %[2]s/tpgt_1/lun/lun_0; ln -s %[1]s %[2]s/tpgt_1/lun/lun_0/disk; echo 1 >%[2]s/tpgt_1/enable`, b, i, device))
		return func() {
			rig.Sh(s.t, fmt.Sprintf(`echo 0 >%[2]s/tpgt_1/enable; rm %[2]s/tpgt_1/lun/lun_0/disk; rmdir %[2]s/tpgt_1/lun/lun_0 %[2]s/tpgt_1/np/127.0.0.1:3260 %[2]s/tpgt_1 %[2]s %[1]s %[3]s`, b, i, filepath.Dir(b)))
		}
	}
	n := c + "/nvmet/subsystems/nqn.2020-01.com.example:disk"
	p := c + "/nvmet/ports/1"
	rig.Sh(s.t, fmt.Sprintf(`mkdir %[1]s; echo 1 >%[1]s/attr_allow_any_host; mkdir %[1]s/namespaces/1; echo -n %[3]s >%[1]s/namespaces/1/device_path; echo 1 >%[1]s/namespaces/1/enable
		mkdir %[2]s; echo tcp >%[2]s/addr_trtype; echo ipv4 >%[2]s/addr_adrfam; echo 127.0.0.1 >%[2]s/addr_traddr; echo 4429 >%[2]s/addr_trsvcid; ln -s %[1]s %[2]s/subsystems/`, n, p, device))
	return func() {
		rig.Sh(s.t, fmt.Sprintf(`rm %[2]s/subsystems/*; rmdir %[2]s; echo 0 >%[1]s/namespaces/1/enable; rmdir %[1]s/namespaces/1 %[1]s`, n, p))
	}
}

func TestAnAdministratorsTargetIsUntouched(t *testing.T) {
	kinds(t, func(t *testing.T, s *server) {
		his := file(t)
		device := strings.TrimSpace(rig.Sh(t, "losetup -f --show "+his.Backing.Path))
		defer rig.Sh(t, "losetup -d "+device)
		defer s.admin(device)()
		want, err := tree(s.kind.root)
		rig.Must(t, err)
		v := file(t)
		s.ensure(v, s.access(1, 1))
		s.ensure(v, s.access(2, 1))
		s.forget()
		got, err := tree(s.kind.root)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%v; got\n%s\nwant\n%s", err, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}

func TestGrowthIsSeenByThoseWhoAreConnected(t *testing.T) {
	kinds(t, func(t *testing.T, s *server) {
		v, a := file(t), s.access(1, 1)
		s.ensure(v, a)
		p := s.dial(v, a, 0)
		if p.Size != volumeSize {
			t.Fatalf("%d bytes", p.Size)
		}
		v.Size = 2 * volumeSize
		rig.Must(t, errors.Join(os.Truncate(v.Backing.Path, v.Size), s.Resize(s.ctx(), v)))
		q := s.dial(v, a, 1)
		if q.Size != v.Size {
			t.Errorf("%d bytes, want %d", q.Size, v.Size)
		}
		if err := q.Write(make([]byte, 4096), v.Size-4096); err != nil {
			t.Error(err)
		}
	})
}

func TestReadOnlyIsEnforcedByTheKernel(t *testing.T) {
	kinds(t, func(t *testing.T, s *server) {
		v, a := file(t), s.access(1, 1)
		a.ReadOnly = true
		s.ensure(v, a)
		err := s.dial(v, a, 0).Write(make([]byte, 4096), 0)
		if s.kind.name == "nvmet" {
			return // it has no such thing: the node enforces it
		}
		if err == nil {
			t.Error("written")
		}
	})
}

// The tree in memory, which the exporters' tests use, has nothing that the
// kernel's has not.
func TestTheTreeOfTheTestsIsTheKernels(t *testing.T) {
	kinds(t, func(t *testing.T, s *server) {
		v, a := file(t), s.access(1, 1)
		v.Access = []export.Access{a}
		s.ensure(v, a)
		fake, err := twin(s.kind.name, s.Portals()[0].Address)
		rig.Must(t, err)
		if _, err := fake.x.Ensure(s.ctx(), v); err != nil {
			t.Fatal(err)
		}
		for _, p := range fake.tree.All() {
			if _, err := os.Lstat(filepath.Join(s.kind.root, p)); err != nil {
				t.Error(err)
			}
		}
	})
}

type fake struct {
	tree *configfstest.Tree
	x    export.Exporter
}

func twin(name, portal string) (f fake, err error) {
	portals := []export.Portal{{Listen: portal}}
	if name == "lio" {
		f.tree = configfstest.NewTarget()
		f.x, err = lio.New(lio.Config{Portals: portals, FS: f.tree, Loops: &looptest.Devices{}})
		return f, err
	}
	f.tree = configfstest.NewNvmet()
	f.x, err = nvmet.New(nvmet.Config{Portals: portals, FS: f.tree, Loops: &looptest.Devices{}})
	return f, err
}
