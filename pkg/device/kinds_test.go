package device_test

import (
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/datapath"
	"github.com/csi-mpath/csi-mpath/pkg/device"
	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
	"github.com/csi-mpath/csi-mpath/pkg/target"
	"github.com/csi-mpath/csi-mpath/pkg/target/subsystem"
)

// kind makes a rig over one protocol.
type kind func(t *testing.T, portals int) *rig

func overISCSI(t *testing.T, portals int) *rig { return newRig(t, portals, target.Config{}) }

func overNVMe(t *testing.T, portals int) *rig { return newNVMeRig(t, portals, subsystem.Config{}) }

// overBoth tells a story over each protocol.
func overBoth(t *testing.T, story func(t *testing.T, over kind)) {
	t.Run("iSCSI", func(t *testing.T) { story(t, overISCSI) })
	t.Run("NVMe", func(t *testing.T) { story(t, overNVMe) })
}

// protocol is how the rig's volume is reached.
func (r *rig) protocol() device.Protocol {
	if r.sub != nil {
		return device.NVMe{Subsystem: r.sub.Name(), NSID: 1, HostNQN: "nqn.2026-01.test:host"}
	}
	return device.ISCSI{Target: r.name(), LUN: mustLUN(r.T, "1"), Initiator: "iqn.2026-01.test:host", FenceTimeout: time.Second}
}

// fencedAfter is a configuration whose lost paths the clock fences after d.
func fencedAfter(cfg device.Config, d time.Duration) device.Config {
	switch p := cfg.Protocol.(type) {
	case device.ISCSI:
		p.FenceTimeout = d
		cfg.Protocol = p
	case device.NVMe:
		p.KeepAlive = d / 2
		cfg.Protocol = p
	}
	return cfg
}

// elsewhere is a protocol's part that names no target, or no unit, that is there.
func (r *rig) elsewhere(target, unit bool) device.Protocol {
	switch p := r.protocol().(type) {
	case device.ISCSI:
		if target {
			p.Target = "iqn.2026-01.test:other"
		}
		if unit {
			p.LUN = mustLUN(r.T, "7")
		}
		return p
	case device.NVMe:
		if target {
			p.Subsystem = "nqn.2026-01.test:other"
		}
		if unit {
			p.NSID = 7
		}
		return p
	}
	return nil
}

// volume is what the target may say that the rig's volume is.
type volume struct {
	id        byte // another: another volume
	blockSize uint32
	size      uint64
}

// show makes the unit that volume at one portal, without telling anybody.
func (r *rig) show(portal *target.Portal, v volume) {
	r.Helper()
	digits := "0123456789abcdef"[v.id : v.id+1]
	var err error
	if r.sub != nil {
		err = r.sub.SetDevice(portal.Number(), 1, subsystem.Device{BlockSize: v.blockSize, Size: v.size,
			Identity: nvme.Identity{UUID: "60000000-0000-4000-8000-00000000000" + digits}})
	} else {
		err = r.srv.SetDevice(portal.Number(), 1, target.Device{BlockSize: v.blockSize, Size: v.size,
			Identity: scsi.Identity{NAA: "6000000000000000000000000000000" + digits, Serial: "SN1"}})
	}
	if err != nil {
		r.Fatal(err)
	}
}

// hint tells the sessions at a portal that the unit is another, or has another size.
func (r *rig) hint(portal *target.Portal, size bool) {
	switch {
	case r.sub != nil:
		r.sub.NamespaceChanged(portal.Number(), 1)
	case size:
		r.srv.Attention(portal.Number(), 1, scsi.Sense{Key: scsi.KeyUnitAttention, ASC: 0x2a, ASCQ: 0x09})
	default:
		r.srv.Attention(portal.Number(), 1, scsi.Sense{Key: scsi.KeyUnitAttention, ASC: 0x3f, ASCQ: 0x0e})
	}
}

// setAccess changes the access state of a portal.
func (r *rig) setAccess(portal int, a datapath.Access) {
	group := uint16(portal + 1)
	if r.sub != nil {
		r.sub.SetANA(group, 0, map[datapath.Access]nvme.AccessState{datapath.Optimized: nvme.Optimized,
			datapath.NonOptimized: nvme.NonOptimized, datapath.Unavailable: nvme.Inaccessible, datapath.Transitioning: nvme.Changing}[a])
		return
	}
	r.srv.SetALUA(group, map[datapath.Access]scsi.AccessState{datapath.Optimized: scsi.Optimized,
		datapath.NonOptimized: scsi.NonOptimized, datapath.Unavailable: scsi.Unavailable, datapath.Transitioning: scsi.Transitioning}[a])
}

// lateWrites is how many writes the target executed after their connection was gone.
func (r *rig) lateWrites() uint64 {
	if r.sub != nil {
		return r.sub.Stats().LateWrites
	}
	return r.srv.Stats().LateWrites
}

// refuse makes a portal refuse whoever logs in, as if it did not know target or host.
func (r *rig) refuse(portal *target.Portal, on bool) {
	if r.sub != nil {
		st := nvme.Success
		if on {
			st = nvme.InvalidHost
		}
		r.sub.Do(func(m *subsystem.Machine) { r.must(m.RefuseConnects(portal.Number(), st)) })
		return
	}
	class, detail := byte(0), byte(0)
	if on {
		class, detail = 2, 3 // target not found
	}
	r.srv.Do(func(m *target.Machine) { r.must(m.RefuseLogins(portal.Number(), class, detail)) })
}

// must is for goroutines that may not end a test.
func (r *rig) must(err error) {
	if err != nil {
		r.Error(err)
	}
}
