//go:build vm

package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/agent/export"
	"github.com/csi-mpath/csi-mpath/pkg/agent/export/lio"
	"github.com/csi-mpath/csi-mpath/pkg/agent/export/nvmet"
	"github.com/csi-mpath/csi-mpath/pkg/agent/store"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/test/node"
	"github.com/csi-mpath/csi-mpath/test/vm/kmsg"
	"github.com/csi-mpath/csi-mpath/test/vm/rig"
)

// dbRoot is where LIO would keep persistent reservations, which Debian has not.
var dbRoot = regexp.MustCompile(`db_root: cannot open`)

func TestMain(m *testing.M) { os.Exit(kmsg.Main(m, dbRoot)) }

const (
	mib        = 1 << 20
	volumeSize = 2 * mib
)

// kind is one of the kernel's targets.
type kind struct {
	name string
	open func() (export.Exporter, error)
	root string // of its tree
}

var (
	kindLIO = kind{"lio", func() (export.Exporter, error) {
		return lio.New(lio.Config{Portals: []export.Portal{{Listen: "127.0.0.1:3260"}, {Listen: "127.0.0.2:3260"}}})
	}, lio.Root}
	kindNvmet = kind{"nvmet", func() (export.Exporter, error) {
		return nvmet.New(nvmet.Config{Portals: []export.Portal{{Listen: "127.0.0.1:4420"}, {Listen: "127.0.0.2:4420"}}})
	}, nvmet.Root}
)

// server is an exporter of one kind, in a test.
type server struct {
	export.Exporter
	t    *testing.T
	kind kind
}

// kinds runs a test for each of the kernel's targets. At its end there is nothing
// of ours left in the target's tree.
func kinds(t *testing.T, f func(t *testing.T, s *server)) {
	for _, k := range []kind{kindLIO, kindNvmet} {
		t.Run(k.name, func(t *testing.T) {
			kmsg.Watch(t, kmsg.KeptOut)
			x, err := k.open()
			rig.Must(t, err)
			s := &server{x, t, k}
			t.Cleanup(s.clean)
			f(t, s)
		})
	}
}

// clean removes what is exported, and fails if something stays.
func (s *server) clean() {
	ctx, cancel := context.WithTimeout(context.Background(), rig.Patience)
	defer cancel()
	all, err := s.Exported(ctx)
	if err != nil {
		s.t.Error(err)
	}
	for _, e := range all {
		if err := s.Remove(ctx, backend.ID{}, e.Identity); err != nil {
			s.t.Error(err)
		}
	}
	if left, err := tree(s.kind.root); err != nil || strings.Contains(strings.Join(left, "\n"), "csi-mpath") {
		s.t.Errorf("%v; left in %s:\n%s", err, s.kind.root, strings.Join(left, "\n"))
	}
}

// tree lists what is below a directory of configfs.
func tree(root string) (all []string, err error) {
	err = filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
		if path != root {
			all = append(all, strings.TrimPrefix(path, root+"/"))
		}
		return err
	})
	return all, err
}

func (s *server) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), rig.Patience)
	s.t.Cleanup(cancel)
	return ctx
}

func (s *server) ensure(v export.Export, access ...export.Access) (changed bool) {
	s.t.Helper()
	v.Access = access
	changed, err := s.Ensure(s.ctx(), v)
	rig.Must(s.t, err)
	return changed
}

// access is that of node n, in an epoch.
func (s *server) access(n, epoch int) export.Access {
	if s.Transport() == backend.NVMe {
		return export.Access{Initiator: fmt.Sprintf("nqn.2026-01.io.test:node%d:%d", n, epoch), HostID: fmt.Sprintf("%032x", n*1000+epoch+1)}
	}
	return export.Access{Initiator: fmt.Sprintf("iqn.2026-01.io.test:node%d:%d", n, epoch)}
}

// connection is what a node would be told.
func (s *server) connection(v export.Export, a export.Access) backend.Connection {
	return backend.Connection{Transport: s.Transport(), Target: s.Target(v.Identity, a.Initiator), LUN: export.LUN, NSID: export.NSID,
		Portals: s.Portals(), Initiator: a.Initiator, HostID: a.HostID, WWID: export.WWID(s.Transport(), v.Identity)}
}

func (s *server) dial(v export.Export, a export.Access, portal int) *node.Path {
	s.t.Helper()
	p, err := node.Dial(s.ctx(), s.connection(v, a), portal, a.Auth)
	rig.Must(s.t, err)
	s.t.Cleanup(p.Close)
	if want := export.WWID(s.Transport(), v.Identity); p.WWID != want {
		s.t.Fatalf("the volume is %s at portal %d, want %s", p.WWID, portal, want)
	}
	return p
}

// refused fails unless a may not log in.
func (s *server) refused(v export.Export, a export.Access) {
	s.t.Helper()
	for portal := range s.Portals() {
		if p, err := node.Dial(s.ctx(), s.connection(v, a), portal, a.Auth); err == nil {
			p.Close()
			s.t.Fatalf("%s logged in at portal %d", a.Initiator, portal)
		}
	}
}

// volumes counts them: each has another identity.
var volumes int

// file is a volume in a file in memory.
func file(t *testing.T) export.Export {
	t.Helper()
	volumes++
	path := fmt.Sprintf("/run/volume%d", volumes)
	rig.Must(t, errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, volumeSize)))
	t.Cleanup(func() { _ = os.Remove(path) })
	sum := sha256.Sum256([]byte(path))
	return export.Export{Volume: backend.ID{Pool: "p", Object: fmt.Sprint("v", volumes)}, Identity: hex.EncodeToString(sum[:16]),
		Backing: store.Backing{Path: path}, Size: volumeSize, Cache: true, Discard: true}
}

// slow is a volume whose writes take delay milliseconds.
func slow(t *testing.T, delay int) disk {
	t.Helper()
	v := file(t)
	path := v.Backing.Path
	name := filepath.Base(path)
	loop := strings.TrimSpace(rig.Sh(t, "losetup -f --show "+path))
	t.Cleanup(func() { _, _ = rig.Try("losetup -d " + loop) })
	rig.Sh(t, fmt.Sprintf("DM_DISABLE_UDEV=1 dmsetup create %s --table '0 %d delay %s 0 0 %[3]s 0 %d'", name, volumeSize/512, loop, delay))
	t.Cleanup(func() {
		if _, err := rig.Try("DM_DISABLE_UDEV=1 dmsetup remove " + name); err != nil {
			t.Error(err)
		}
	})
	v.Backing = store.Backing{Path: "/dev/mapper/" + name, Block: true}
	return disk{v, path}
}
