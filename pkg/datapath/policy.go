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

// account keeps the books of I4 as a request is answered, and may turn a good
// flush into an error: once, when a volatile cache was provably lost with
// unflushed writes in it.
func (d *Device) account(r *blk.Request, st blk.Status) blk.Status {
	switch {
	case r.Op == blk.Flush:
		d.flushing.Add(-1)
		if st != blk.OK {
			d.unflushed.Store(true)
			return st
		}
		for m := d.mode.Load(); m&modePoison != 0; m = d.mode.Load() {
			if d.mode.CompareAndSwap(m, m&^modePoison) {
				return blk.IOError
			}
		}
	case st == blk.OK && r.Op.Mutates() && r.Flags&blk.FUA == 0 && !d.unflushed.Load():
		d.unflushed.Store(true)
	}
	return st
}

// flushBegins notes that a flush was taken in: what was answered before is
// covered by it.
func (d *Device) flushBegins() {
	d.flushing.Add(1)
	d.unflushed.Store(false)
}

// cacheLost is proof that the target lost its volatile cache (I4).
func (d *Device) cacheLost() {
	if !d.cacheWB.Load() || !d.unflushed.Load() && d.flushing.Load() == 0 {
		return
	}
	d.mode.Or(modePoison)
	d.emit(Event{Kind: CacheLost, Detail: "the target was powered on with unflushed writes in its cache: the next flush fails"})
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
	expired := d.table.Load().best() == nil
	if expired {
		d.mode.Or(modeNoPath)
	}
	d.mu.Unlock()
	if expired {
		d.kickAll()
	}
}
