package datapath

import (
	"context"
	"fmt"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/merge"
	"github.com/csi-mpath/csi-mpath/pkg/pathsel"
)

// Values of MergeDeadline besides 0 and a time.
const (
	// MergeAuto lets the device find the deadline that moves most.
	MergeAuto time.Duration = -1
	// MergeOff merges nothing, not even what comes together.
	MergeOff time.Duration = -2
)

const mergeOff = -1

// SetMergeDeadline changes the merge deadline, also under load.
func (d *Device) SetMergeDeadline(t time.Duration) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case t == MergeOff:
		d.tuning.Store(false)
		d.deadline.Store(mergeOff)
	case t == MergeAuto:
		d.deadline.Store(0)
		d.tuning.Store(true)
	case t >= 0 && t <= MaxMergeDeadline:
		d.tuning.Store(false)
		d.deadline.Store(int64(t))
	default:
		return fmt.Errorf("volume %s: merge deadline %v is not in 0..%v", d.cfg.Name, t, MaxMergeDeadline)
	}
	d.wakeTuner()
	return nil
}

// SetSelector changes how paths are picked, also under load.
func (d *Device) SetSelector(s pathsel.Selector) { d.selector.Store(&s) }

func (d *Device) pathSelector() pathsel.Selector { return *d.selector.Load() }

// MergeStats are what merging did so far.
type MergeStats struct {
	Deadline time.Duration `json:"deadlineNanoseconds"` // in force; MergeOff if none
	Auto     bool          `json:"auto"`
	Trying   bool          `json:"trying"` // auto is comparing deadlines
	Merged   uint64        `json:"merged"` // requests that went with another
	Held     uint64        `json:"held"`   // commands held back for more
	HeldFor  time.Duration `json:"heldNanoseconds"`
	Spared   uint64        `json:"rerunsAvoided"` // answers that had no reason to run their lane
}

// mergeStats sums the lanes. Lanes that are closed took their counts along.
func (d *Device) mergeStats() (m MergeStats) {
	m.Deadline, m.Auto = time.Duration(d.deadline.Load()), d.tuning.Load()
	m.Trying = m.Auto && d.trying.Load()
	if m.Deadline == mergeOff {
		m.Deadline = MergeOff
	}
	for i := range d.lanes[:d.laneTop.Load()] {
		if l := d.lanes[i].Load(); l != nil {
			m.Merged += l.counts.merged.Load()
			m.Spared += l.spared.Load()
			m.Held += l.counts.holds.Load()
			m.HeldFor += time.Duration(l.counts.heldFor.Load())
		}
	}
	return m
}

// contiguous sums the requests that continued what was in flight.
func (d *Device) contiguous() (n uint64) {
	for i := range d.lanes[:d.laneTop.Load()] {
		if l := d.lanes[i].Load(); l != nil {
			n += l.counts.contiguous.Load()
		}
	}
	return n
}

// unitLimit is the most one unit may have, bytes. Under the control lock.
func (d *Device) unitLimit() uint32 {
	if n := d.limitsLocked().MaxTransfer; n != 0 {
		return min(n, mergeUnit)
	}
	return mergeUnit
}

// tuned puts the tuner's choice in force, unless it is not asked to decide any
// more: an operator's word stays.
func (d *Device) tuned(deadline int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.tuning.Load() {
		d.deadline.Store(deadline)
	}
}

func (d *Device) wakeTuner() {
	select {
	case d.tuneWake <- struct{}{}:
	default:
	}
}

// tuneMerge runs the tuner while it is asked to decide and there is traffic.
func (d *Device) tuneMerge(ctx context.Context) {
	var t merge.Tuner
	known := int64(d.cfg.MergeLearned)
	t.Start(known)
	w := tuneWindow{d: d}
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.tuneWake:
			w.begin()
		case <-timer.C:
			bytes, took, contiguous := w.end()
			if !d.tuning.Load() {
				continue
			}
			d.tuned(t.Window(bytes, took, contiguous))
			d.trying.Store(!t.Settled())
			if c := t.Chosen(); c != known && d.cfg.Learned != nil {
				known = c
				d.cfg.Learned(time.Duration(c))
			}
			if d.resting.Load() {
				continue // lanes wake us together with the judge
			}
		}
		if d.tuning.Load() {
			timer.Reset(tunePeriod)
		}
	}
}

// tuneWindow measures what was moved between two looks.
type tuneWindow struct {
	d          *Device
	at         int64
	contiguous uint64
	seen       [MaxPaths]seenPath
}

// seenPath is what a path's commands added up to at the last look, packed.
type seenPath struct {
	live  *live
	ended uint64
}

func (w *tuneWindow) begin() { _, _, _ = w.end() }

// end returns what happened since the last look, and begins the next window.
func (w *tuneWindow) end() (bytes uint64, took int64, contiguous int) {
	now, seen := w.d.now(), w.d.contiguous()
	took, w.at = now-w.at, now
	if seen >= w.contiguous { // less than before: a lane has gone
		contiguous = int(seen - w.contiguous)
	}
	w.contiguous = seen
	return w.moved(), took, contiguous
}

func (w *tuneWindow) moved() (bytes uint64) {
	d := w.d
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, p := range d.paths {
		is := seenPath{live: p.live}
		if p.live != nil {
			if is.ended = p.live.endedSum(); w.seen[i].live == p.live {
				_, n := pathsel.Unpack(is.ended - w.seen[i].ended)
				bytes += n
			}
		}
		w.seen[i] = is
	}
	return bytes
}
