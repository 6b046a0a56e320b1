//go:build vm

package agent

import (
	"errors"
	"os"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/agent/export/loop"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/test/vm/kmsg"
	"github.com/csi-mpath/csi-mpath/test/vm/rig"
)

func TestALoopDeviceIsFoundAgainByItsMark(t *testing.T) {
	kmsg.Watch(t)
	var k loop.Kernel
	a, b := file(t), file(t)
	first, err := k.Attach(t.Context(), a.Identity, a.Backing.Path)
	rig.Must(t, err)
	again, err := (&loop.Kernel{}).Attach(t.Context(), a.Identity, a.Backing.Path)
	if err != nil || again != first {
		t.Errorf("found %s, %v; want %s", again, err, first)
	}
	other, err := k.Attach(t.Context(), b.Identity, b.Backing.Path)
	if err != nil || other == first {
		t.Errorf("another is %s, %v", other, err)
	}
	if _, err := k.Attach(t.Context(), a.Identity, b.Backing.Path); !errors.Is(err, backend.ErrConflict) {
		t.Errorf("over another file: %v, want ErrConflict", err)
	}
	if n, err := rig.Attribute(first, "queue/logical_block_size"); n != "512" {
		t.Errorf("blocks of %s bytes, %v", n, err)
	}
	rig.Must(t, errors.Join(os.Truncate(a.Backing.Path, 2*volumeSize), k.Resize(t.Context(), a.Identity)))
	if n, err := rig.Size(first); n != 2*volumeSize {
		t.Errorf("%d bytes, %v; want %d", n, err, 2*volumeSize)
	}
	for _, mark := range []string{a.Identity, b.Identity, b.Identity, "another"} {
		rig.Must(t, errors.Join(k.Release(t.Context(), mark), k.Resize(t.Context(), mark)))
	}
	for _, d := range []string{first, other} {
		if n, err := rig.Size(d); n != 0 {
			t.Errorf("%s still has %d bytes, %v", d, n, err)
		}
	}
}

// Somebody who looks into a device keeps it from being detached. Attached again
// meanwhile, it must not go when he closes it: its name would be another volume's.
func TestALoopDeviceThatWasBeingReleasedStays(t *testing.T) {
	kmsg.Watch(t)
	var k loop.Kernel
	a, b := file(t), file(t)
	device, err := k.Attach(t.Context(), a.Identity, a.Backing.Path)
	rig.Must(t, err)
	looks, err := os.Open(device)
	rig.Must(t, err)
	rig.Must(t, k.Release(t.Context(), a.Identity))
	again, err := k.Attach(t.Context(), a.Identity, a.Backing.Path)
	rig.Must(t, errors.Join(err, looks.Close()))
	other, err := k.Attach(t.Context(), b.Identity, b.Backing.Path)
	if n, e := rig.Size(again); other == again || n != volumeSize || err != nil || e != nil {
		t.Errorf("%s has %d bytes, the next volume is %s: %v, %v", again, n, other, err, e)
	}
	rig.Must(t, errors.Join(k.Release(t.Context(), a.Identity), k.Release(t.Context(), b.Identity)))
}
