package attach_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/attach/attachtest"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/iscsi/auth"
	"github.com/csi-mpath/csi-mpath/pkg/target"
	"github.com/csi-mpath/csi-mpath/pkg/target/serve"
	"github.com/csi-mpath/csi-mpath/pkg/target/subsystem"
	"github.com/csi-mpath/csi-mpath/pkg/volume"
	"github.com/csi-mpath/csi-mpath/pkg/volume/attrs"
)

// patience bounds what must come in the end, on however slow a machine.
const patience = time.Minute

// rig is a node over an array of ours with two portals.
type rig struct {
	*testing.T
	base    *serve.Server
	iscsi   *target.Server // nil over NVMe
	nvme    *subsystem.Server
	ram     *target.RAM
	portals []*target.Portal
	machine *attachtest.Node
	node    *volume.Node
	dir     string
}

const size = 16 << 20

// newRig is over iSCSI if cfg is not nil, else over NVMe/TCP.
func newRig(t *testing.T, cfg *target.Config) *rig {
	t.Helper()
	r := &rig{T: t, ram: target.NewRAM(size)}
	var err error
	if cfg != nil {
		cfg.Name, cfg.LUNs = "iqn.2026-01.test:vol", []target.LUN{{Number: 1, Store: r.ram}}
		r.iscsi, err = target.New(*cfg)
		r.must(err)
		r.base = r.iscsi.Server
	} else {
		r.nvme, err = subsystem.New(subsystem.Config{Name: "nqn.2026-01.test:vol", Namespaces: []subsystem.Namespace{{ID: 1, Store: r.ram}}})
		r.must(err)
		r.base = r.nvme.Server
	}
	t.Cleanup(func() { _ = r.base.Close() })
	for range 2 {
		p, err := r.base.ListenPortal("127.0.0.1:0", target.PortalConfig{TPGT: 1, Group: 1})
		r.must(err)
		r.portals = append(r.portals, p)
	}
	r.dir, err = os.MkdirTemp("", "at")
	r.must(err)
	t.Cleanup(func() { _ = os.RemoveAll(r.dir) })
	r.machine, err = attachtest.New(r.dir)
	r.must(err)
	r.start()
	t.Cleanup(r.end)
	return r
}

// end is that of the process.
func (r *rig) end() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_ = r.node.Close(ctx)
}

func (r *rig) start() {
	r.Helper()
	var err error
	r.node, err = volume.Open(volume.Config{State: filepath.Join(r.dir, "v"), Boot: "b", Devices: r.machine, Mounts: r.machine.Host})
	r.must(err)
	r.must(r.node.Recover(r.Context()))
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *rig) want(err, is error) {
	r.Helper()
	if !errors.Is(err, is) {
		r.Fatalf("error %v, want one that is %q", err, is)
	}
}

// attachment is the volume, changed.
func (r *rig) attachment(change func(*attrs.Attachment)) attrs.Attachment {
	a := attrs.Attachment{Fencing: attrs.FencingBackend, Connection: backend.Connection{Transport: backend.ISCSI, Target: "iqn.2026-01.test:vol", LUN: 1,
		Initiator: "iqn.2026-01.test:host:e1", Epoch: "e1", Content: backend.ContentBlank, Tunables: map[string]string{"fenceTimeout": "1s"}}}
	if r.nvme != nil {
		a.Transport, a.Target, a.NSID, a.Initiator = backend.NVMe, "nqn.2026-01.test:vol", 1, "nqn.2026-01.test:host:e1"
		a.Tunables = map[string]string{"keepAliveTimeout": "500ms"}
	}
	for _, p := range r.portals {
		a.Portals = append(a.Portals, backend.Portal{Address: p.Addr(), Group: 1})
	}
	if change != nil {
		change(&a)
	}
	return a
}

// request stages it.
func (r *rig) request(change func(*attrs.Attachment)) volume.StageRequest {
	r.Helper()
	c, err := attrs.PublishContext(r.attachment(change))
	r.must(err)
	return volume.StageRequest{Volume: "vol", Staging: filepath.Join(r.dir, "g"), Exclusive: true, PublishContext: c}
}

func (r *rig) unstage() {
	r.Helper()
	r.must(r.node.Unstage(r.Context(), "vol", filepath.Join(r.dir, "g")))
}

// until waits for something that an answer or an event brings about.
func (r *rig) until(what string, ok func() bool) {
	r.Helper()
	deadline, tick := time.After(patience), time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			r.Fatalf("not in %v: %s", patience, what)
		case <-tick.C:
		}
	}
}

func (r *rig) message() string {
	r.Helper()
	c, err := r.node.Condition("vol", "")
	r.must(err)
	return c.Message
}

// stored is what the storage has.
func (r *rig) stored(off, n uint64) []byte {
	r.Helper()
	b := make([]byte, n)
	r.must(r.ram.ReadAt(b, off))
	return b
}

// overBoth tells a story over each transport.
func overBoth(t *testing.T, story func(r *rig)) {
	t.Run("iSCSI", func(t *testing.T) { story(newRig(t, &target.Config{})) })
	t.Run("NVMe", func(t *testing.T) { story(newRig(t, nil)) })
}

func TestAFileSystemIsMadeOnTheStorage(t *testing.T) {
	overBoth(t, func(r *rig) {
		r.must(r.node.Stage(r.Context(), r.request(nil)))
		if magic := r.stored(1024+0x38, 2); magic[0] != 0x53 || magic[1] != 0xef {
			r.Errorf("no ext4 on the storage: %x", magic)
		}
		r.until("both paths", func() bool { return r.message() == "2 paths work" })
		r.unstage()
		if r.machine.Devices() != 0 {
			r.Error("a block device is left")
		}
	})
}

// Claim 5, report NetApp/trident#909: a portal that swallows everything.
func TestADeadPortalDoesNotKeepAVolumeFromBeingStaged(t *testing.T) {
	overBoth(t, func(r *rig) {
		l, err := net.Listen("tcp", "127.0.0.1:0") // it accepts, and answers nothing
		r.must(err)
		defer func() { _ = l.Close() }()
		q := r.request(func(a *attrs.Attachment) { a.Portals[1].Address = l.Addr().String() })
		begin := time.Now()
		r.must(r.node.Stage(r.Context(), q))
		r.Logf("staged in %v", time.Since(begin))
		if m := r.message(); !strings.HasPrefix(m, "1 of 2 paths work") {
			r.Errorf("condition %q", m)
		}
		r.unstage()
	})
}

func TestAllPortalsDeadIsAClearErrorInTime(t *testing.T) {
	overBoth(t, func(r *rig) {
		for _, p := range r.portals {
			p.Kill()
		}
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		err := r.node.Stage(ctx, r.request(nil))
		r.want(err, volume.ErrUnavailable)
		if !strings.Contains(err.Error(), r.portals[0].Addr()) || !strings.Contains(err.Error(), r.portals[1].Addr()) {
			r.Errorf("%v does not name the portals", err)
		}
	})
}

// I1: the portals show another volume than publish_context says.
func TestAnotherVolumeIsRefused(t *testing.T) {
	overBoth(t, func(r *rig) {
		q := r.request(func(a *attrs.Attachment) { a.WWID = "36001405000000000000000000000dead" })
		ctx, cancel := context.WithTimeout(r.Context(), patience)
		defer cancel()
		r.want(r.node.Stage(ctx, q), volume.ErrIdentity)
		for _, b := range r.stored(0, size) {
			if b != 0 {
				r.Fatal("something was written to it")
			}
		}
	})
}

// Case I10, report kubernetes-csi/csi-lib-iscsi#116.
func TestSecretsComeFromTheCall(t *testing.T) {
	right := auth.Credentials{User: "node", Secret: "marked-secret-01", MutualUser: "array", MutualSecret: "marked-secret-02"}
	r := newRig(t, &target.Config{Auth: right})
	secrets := volume.Secrets{"node.session.auth.username": "node", "node.session.auth.password": right.Secret,
		"node.session.auth.username_in": "array", "node.session.auth.password_in": right.MutualSecret}
	q := r.request(func(a *attrs.Attachment) { a.CHAP = true })
	r.want(r.node.Stage(r.Context(), q), volume.ErrInvalid)
	q.Secrets = volume.Secrets{"node.session.auth.username": "node", "node.session.auth.password": "marked-wrong-0001"}
	err := r.node.Stage(r.Context(), q)
	r.want(err, volume.ErrDenied)
	if strings.Contains(err.Error(), "marked") {
		t.Errorf("a secret is in %v", err)
	}
	q.Secrets = secrets
	r.must(r.node.Stage(r.Context(), q))
	r.unstage()
}

func TestWhatCannotBeHadIsRefused(t *testing.T) {
	r := newRig(t, &target.Config{})
	for key, change := range map[string]func(*attrs.Attachment){
		"lanes":           func(a *attrs.Attachment) { a.Tunables = map[string]string{"lanes": "2", "noPathTimeout": "1s"} },
		"sessionsPerPath": func(a *attrs.Attachment) { a.Tunables = map[string]string{"sessionsPerPath": "2"} },
		"dataDigest":      func(a *attrs.Attachment) { a.Tunables = map[string]string{"dataDigest": "crc32c"} },
	} {
		err := r.node.Stage(r.Context(), r.request(change))
		r.want(err, volume.ErrUnsupported)
		if !strings.Contains(err.Error(), key) {
			t.Errorf("%v does not say %s", err, key)
		}
	}
}

func TestAVolumeGrowsOnline(t *testing.T) {
	overBoth(t, func(r *rig) {
		r.must(r.node.Stage(r.Context(), r.request(nil)))
		r.until("both paths", func() bool { return r.message() == "2 paths work" })
		_, err := r.node.Expand(r.Context(), "vol", 2*size)
		r.want(err, volume.ErrUnavailable)
		if r.nvme != nil {
			r.must(r.nvme.Grow(1, 2*size))
		} else {
			r.must(r.iscsi.Grow(1, 2*size))
		}
		got, err := r.node.Expand(r.Context(), "vol", 2*size)
		if err != nil || got != 2*size || r.machine.Ran("resize2fs") == 0 {
			r.Errorf("%d, %v", got, err)
		}
		r.unstage()
	})
}

// I8, as far as it goes without a kernel: the next process takes the volume over.
func TestTheNextProcessTakesTheVolumeOver(t *testing.T) {
	overBoth(t, func(r *rig) {
		r.must(r.node.Stage(r.Context(), r.request(nil)))
		r.must(r.node.Close(r.Context()))
		r.start()
		r.must(r.node.Stage(r.Context(), r.request(nil)))
		if r.machine.Devices() != 1 || r.machine.Ran("mkfs.ext4") != 1 {
			r.Errorf("%d block devices, %d formats", r.machine.Devices(), r.machine.Ran("mkfs.ext4"))
		}
		r.unstage()
	})
}

// Claim 5 over real sessions: all paths are lost, an operator gives the volume up.
func TestAVolumeThatWasGivenUpIsUnstagedWithoutItsStorage(t *testing.T) {
	overBoth(t, func(r *rig) {
		r.must(r.node.Stage(r.Context(), r.request(nil)))
		for _, p := range r.portals {
			p.Kill()
		}
		r.until("no path", func() bool { return strings.HasPrefix(r.message(), "none of 2 paths works") })
		r.must(r.node.Revoke(r.Context(), "vol", "given up"))
		r.unstage()
		if r.machine.Devices() != 0 {
			r.Error("a block device is left")
		}
	})
}
