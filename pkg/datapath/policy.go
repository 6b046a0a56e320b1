package datapath

import (
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
)

// refusal says why a request can not be sent at all; OK when it can. Two loads
// in the usual case.
func (d *Device) refusal(r *blk.Request, havePath bool) blk.Status {
	if m := d.mode.Load(); m != 0 {
		switch {
		case m&modeShutdown != 0:
			return blk.Shutdown
		case m&modeNoPath != 0 && !havePath:
			return blk.IOError
		}
	}
	if r.Op == blk.Flush {
		return blk.OK
	}
	if r.End() > d.size.Load() || r.Off > r.End() || r.Len == 0 {
		return blk.Invalid
	}
	if d.cfg.ReadOnly && r.Op.Mutates() {
		return blk.NotPermitted
	}
	return blk.OK
}

// noPathLocked starts or stops the clock of NoPathTimeout. Under mu.
func (d *Device) noPathLocked(usable bool) {
	if usable {
		if d.noPath != nil {
			d.noPath.Stop()
			d.noPath = nil
		}
		d.mode.And(^uint32(modeNoPath))
		return
	}
	if d.noPath != nil || d.cfg.NoPathTimeout < 0 {
		return
	}
	d.noPath = time.AfterFunc(d.cfg.NoPathTimeout, d.noPathExpired)
}

func (d *Device) noPathExpired() {
	d.mu.Lock()
	expired := d.noPath != nil && d.table.Load().best() == nil
	if expired {
		d.mode.Or(modeNoPath)
	}
	d.mu.Unlock()
	if expired {
		d.kickAll()
	}
}
