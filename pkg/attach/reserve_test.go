package attach_test

import (
	"strings"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/target"
	"github.com/csi-mpath/csi-mpath/pkg/volume"
	"github.com/csi-mpath/csi-mpath/pkg/volume/attrs"
)

// static is the volume as a static one, fenced by reservation, from node n.
func static(n string) func(*attrs.Attachment) {
	return func(a *attrs.Attachment) {
		a.Fencing, a.Epoch = attrs.FencingReservation, ""
		a.Content = backend.ContentUnknown
		a.Initiator = strings.Replace(a.Initiator, "host:e1", n, 1)
	}
}

// Issue 8, 6, and I9: the next Stage fences a static volume.
func TestAStaticVolumeIsTakenFromANodeThatDidNotLetItGo(t *testing.T) {
	overBoth(t, func(r *rig) {
		r.must(r.node.Stage(r.Context(), r.request(static("n1"))))
		r.until("both paths", func() bool { return r.message() == "2 paths work" })
		o := r.another()
		r.must(o.node.Stage(r.Context(), o.request(static("n2"))))
		r.until("the first knows", func() bool {
			_, _ = r.node.Expand(r.Context(), "vol", size) // over iSCSI who sends nothing is told nothing, until the next look
			return strings.Contains(r.message(), "another node holds it")
		})
		if c, err := r.node.Condition("vol", ""); err != nil || !c.Abnormal || !c.Inaccessible {
			r.Errorf("condition %+v, %v", c, err)
		}
		o.unstage()
		r.must(r.node.Stage(r.Context(), r.request(static("n1")))) // a new stage has it again
		r.until("both paths", func() bool { return r.message() == "2 paths work" })
		r.unstage()
		if n := r.machine.Devices() + o.machine.Devices(); n != 0 {
			r.Errorf("%d block devices are left", n)
		}
	})
}

func TestARestartedNodeKeepsItsStaticVolume(t *testing.T) {
	overBoth(t, func(r *rig) {
		r.must(r.node.Stage(r.Context(), r.request(static("n1"))))
		r.must(r.node.Close(r.Context()))
		r.start()
		r.until("both paths", func() bool { return r.message() == "2 paths work" })
		r.unstage()
	})
}

func TestAVolumeThatManyMayHaveTakesNoReservation(t *testing.T) {
	overBoth(t, func(r *rig) {
		q := r.request(static("n1"))
		q.Exclusive, q.Block = false, true
		r.must(r.node.Stage(r.Context(), q))
		o := r.another()
		q = o.request(static("n2"))
		q.Exclusive, q.Block = false, true
		r.must(o.node.Stage(r.Context(), q))
		r.until("the first works on", func() bool { return r.message() == "2 paths work" })
		o.unstage()
		r.unstage()
	})
}

// An array that refuses PERSISTENT RESERVE commands.
func TestStorageWithoutReservationsIsRefusedWithTheWayOut(t *testing.T) {
	r := newRig(t, &target.Config{})
	r.iscsi.Do(func(m *target.Machine) { m.RefuseReservations() })
	err := r.node.Stage(r.Context(), r.request(static("n1")))
	r.want(err, volume.ErrUnsupported)
	if !strings.Contains(err.Error(), "fencing: none") {
		t.Errorf("%v names no way out", err)
	}
	r.must(r.node.Stage(r.Context(), r.request(func(a *attrs.Attachment) { a.Fencing = attrs.FencingNone })))
	r.unstage()
}
