package sim

import (
	"fmt"

	"github.com/csi-mpath/csi-mpath/pkg/scsi"
	"github.com/csi-mpath/csi-mpath/pkg/target"
)

// The verbs that change the volume, its target as a whole, or this host.

func makeGrow(a *args) func(r *run) func() {
	n := a.num(10, 1, 1<<20)
	return func(r *run) func() {
		size := r.array.size + uint64(n*r.Setup.BlockSize)
		if size > r.array.disk.Size() {
			return nil
		}
		r.array.size = size
		r.array.do(func(m *target.Machine) {
			_ = m.Resize(lunNumber, size)
			for _, p := range r.array.paths { // those that were told something of their own before
				if d, err := m.DeviceAt(p.index, lunNumber); err == nil && !p.foreign && d.Size != size {
					d.Size = size
					_ = m.SetDevice(p.index, lunNumber, d)
				}
			}
		})
		return nil
	}
}

// other is the volume that takes our number.
func (r *run) other() target.Device {
	return target.Device{Identity: scsi.Identity{NAA: "6000000000000000000000000000000b", Serial: "OTHER"},
		BlockSize: uint32(r.Setup.BlockSize), Size: r.array.size, MaxTransfer: uint32(r.Setup.MaxTransfer)}
}

// reused is what a target says of a number that means another volume now.
var reused = scsi.Sense{Key: scsi.KeyUnitAttention, ASC: 0x3F, ASCQ: 0x0E}

func makeSwap(a *args) func(r *run) func() {
	p := a.path()
	return func(r *run) func() {
		m := r.array.m
		if m == nil || r.path(p).foreign {
			return nil
		}
		ours, err := m.DeviceAt(p, lunNumber)
		if err != nil {
			return nil
		}
		set := func(foreign bool, d target.Device) {
			r.path(p).foreign = foreign
			if err := m.SetDevice(p, lunNumber, d); err != nil {
				r.oracle.report("swap: %v", err)
			}
			m.Attention(p, lunNumber, reused)
			r.array.settle()
		}
		set(true, r.other())
		return func() {
			if r.array.m != m {
				return
			}
			for _, l := range r.path(p).links {
				l.spy.armed, l.spy.heard = false, false
			}
			ours.Size = r.array.size
			set(false, ours)
		}
	}
}

func makeDie(a *args) func(r *run) func() {
	lose, silent := a.option("lose"), a.option("silent")
	return func(r *run) func() {
		if r.array.m == nil {
			return nil
		}
		r.array.die(silent)
		if lose {
			r.oracle.crashed(r.array.disk.crash(), r.array.disk.block)
		}
		return func() {
			if err := r.array.start(lose); err != nil {
				r.oracle.report("the target does not start: %v", err)
			}
		}
	}
}

func makeKill(a *args) func(r *run) func() {
	return func(r *run) func() {
		if r.dying {
			return nil
		}
		r.dying = true
		r.killNow()
		r.oracle.faultBegins() // until the next process is there
		r.jobs.Go(func() { r.restart(a.step.For) })
		return nil
	}
}

func makeReconnect(a *args) func(r *run) func() {
	i := a.num(10, 0, 15)
	if i >= a.setup.Clients {
		a.fail(fmt.Errorf("there are %d clients", a.setup.Clients))
	}
	return func(r *run) func() {
		r.oracle.mu.Lock()
		defer r.oracle.mu.Unlock()
		if c := r.clients[i]; r.proc != nil && !r.proc.dead && c.next == nil {
			c.next = r.proc
			c.cond.Broadcast()
		}
		return nil
	}
}
