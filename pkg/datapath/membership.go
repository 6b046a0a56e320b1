package datapath

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
)

// ErrMismatch marks a path that shows another volume (I1).
var ErrMismatch = errors.New("identity mismatch")

func (d *Device) nextIncarnation() uint32 {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.incs++
	return d.incs
}

func (d *Device) setState(p *Path, st PathState, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.setStateLocked(p, st, err)
}

func (d *Device) setStateLocked(p *Path, st PathState, err error) {
	if p.state != st {
		p.state, p.stateSince = st, time.Now()
	}
	if err == nil {
		return
	}
	p.lastErr = err
	p.hopeless = errors.Is(err, ErrDefinite) || errors.Is(err, ErrMismatch)
	for _, o := range d.paths {
		if !o.hopeless || o.live != nil {
			return
		}
	}
	select {
	case d.hopeless <- struct{}{}:
	default:
	}
}

// check compares a path's facts with the device (I1).
func (d *Device) checkLocked(f *Facts) error {
	id := f.Identity
	if d.cfg.WWID != "" && id.Device != d.cfg.WWID {
		return fmt.Errorf("%w: the device is %s, wwid asks for %s", ErrMismatch, id.Device, d.cfg.WWID)
	}
	if id.Weak && d.cfg.WWID == "" {
		return fmt.Errorf("%w: device %q has no identity of its own (NAA, EUI, SCSI name, UUID or NGUID): give its wwid to use it", ErrMismatch, id.Device)
	}
	if f.Limits.BlockSize == 0 || f.Limits.Size == 0 || f.Limits.Size%uint64(f.Limits.BlockSize) != 0 {
		return fmt.Errorf("%w: size %d with blocks of %d bytes makes no sense", ErrMismatch, f.Limits.Size, f.Limits.BlockSize)
	}
	if d.reference == nil {
		return nil
	}
	ref := *d.reference
	if id.Weak == ref.Weak && id == ref {
		if have := d.size.Load(); f.Limits.Size < have {
			return fmt.Errorf("%w: it has %d bytes, the volume %d: a smaller device is another or a cut one", ErrMismatch, f.Limits.Size, have)
		}
		return nil
	}
	return fmt.Errorf("%w: it shows %s, the volume is %s", ErrMismatch, id, ref)
}

// leadsHere reports whether a path may be asked to claim the volume. The first
// that is says which volume that is: no other one gets a claim.
func (d *Device) leadsHere(f *Facts) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.checkLocked(f) != nil {
		return false
	}
	d.referLocked(f)
	return true
}

// referLocked makes the first path's volume the one that all others must show.
func (d *Device) referLocked(f *Facts) {
	if d.reference == nil {
		id := f.Identity
		d.reference = &id
		d.size.Store(f.Limits.Size)
	}
}

// stopping is the evidence after which nothing is sent before the path was looked
// at again: its queue has stopped by itself.
func (d *Device) stopping() blk.Evidence {
	if d.cfg.Claim == nil {
		return blk.IdentityChanged
	}
	return blk.IdentityChanged | blk.Fenced | blk.ReservationChanged
}

// String prints an identity for errors.
func (id Identity) String() string {
	return fmt.Sprintf("{target %s, device %s, serial %q, block %d}", id.Target, id.Device, id.Serial, id.BlockSize)
}

// join makes an incarnation part of the device, or refuses it (I1).
func (d *Device) join(lv *live) error {
	d.mu.Lock()
	p := lv.path
	if err := d.checkLocked(&lv.facts); err != nil {
		first := p.state != Quarantined
		d.setStateLocked(p, Quarantined, err)
		d.mu.Unlock()
		if first {
			d.emit(Event{Kind: PathIdentityMismatch, Path: p.tr.Name(), Detail: err.Error()})
		}
		return err
	}
	if lv.cause != nil {
		d.setStateLocked(p, Connecting, lv.cause)
		d.mu.Unlock()
		return nil //nolint:nilerr // it was fit to join and is gone already: serve sees that
	}
	d.referLocked(&lv.facts)
	if lv.facts.Limits.WriteCache {
		d.cacheWB.Store(true)
	}
	p.live, p.lastErr = lv, nil
	d.up.Add(1)
	f := lv.facts
	p.seen = &f
	p.connects++
	d.setStateLocked(p, Live, nil)
	grown := d.rebuildLocked()
	if d.everUp = max(d.everUp, d.liveLocked()); d.everUp >= d.cfg.MinPaths {
		select {
		case <-d.joined:
		default:
			close(d.joined)
		}
	}
	up := d.liveLocked()
	d.mu.Unlock()
	d.emit(Event{Kind: PathUp, Path: p.tr.Name(), Detail: fmt.Sprintf("%s, %d of %d paths live", lv.facts.Access, up, len(d.paths))})
	d.announce(grown)
	d.kickAll()
	d.pokeOthers(p)
	return nil
}

// pokeOthers hints to paths in back-off that something came back.
func (d *Device) pokeOthers(came *Path) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range d.paths {
		if p != came && p.state == Connecting {
			p.poke()
		}
	}
}

func (d *Device) liveLocked() (n int) {
	for _, p := range d.paths {
		if p.live != nil {
			n++
		}
	}
	return n
}

// retire takes a lost incarnation out of the table. Nothing is sent on it after.
// It reports whether the device grew: the paths left agree on a larger size.
func (d *Device) retire(lv *live, cause error) (grown bool) {
	d.mu.Lock()
	p := lv.path
	lv.cause = cause
	if lv.cause == nil {
		lv.cause = errors.New("closed")
	}
	was := p.live == lv
	var left int
	if was {
		p.live = nil
		d.up.Add(-1)
		p.downs++
		if p.state == Live {
			d.setStateLocked(p, Connecting, lv.cause)
		}
		grown = d.rebuildLocked()
		left = d.liveLocked()
	}
	closing := d.closed
	d.mu.Unlock()
	if !was || closing {
		return false
	}
	d.emit(Event{Kind: PathDown, Path: p.tr.Name(), Detail: fmt.Sprintf("%v; %d of %d paths live", lv.cause, left, len(d.paths))})
	if left == 0 {
		d.emit(Event{Kind: AllPathsLost, Detail: "I/O is held until a path is back"})
	}
	return grown
}

// suspend takes a path whose identity is in question out of the table; its
// queue has stopped sending by itself (I1).
func (d *Device) suspend(lv *live) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !lv.suspended {
		lv.suspended = true
		lv.question()
		d.rebuildLocked()
		lv.evidence.Or(uint32(blk.IdentityChanged)) // read again, whoever asked
		lv.path.poke()
	}
}

// demote takes a path that refused a command by its access state out of use
// until the state has been read again.
func (d *Device) demote(lv *live) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if lv.access.usable() {
		lv.access = Unavailable
		d.rebuildLocked()
		lv.path.poke()
	}
}

// update takes in what a refresh found.
func (d *Device) update(lv *live, f Facts) error {
	d.mu.Lock()
	if err := d.checkLocked(&f); err != nil {
		d.setStateLocked(lv.path, Quarantined, err)
		d.mu.Unlock()
		d.emit(Event{Kind: PathIdentityMismatch, Path: lv.path.tr.Name(), Detail: err.Error() + lv.exposure()})
		return err
	}
	lv.exposed.Store(0)
	was := lv.access
	lv.suspended, lv.access = false, f.Access
	seen := f
	lv.path.seen = &seen
	lv.path.looks++
	grown := d.rebuildLocked()
	d.mu.Unlock()
	if was != f.Access {
		d.emit(Event{Kind: PathAccess, Path: lv.path.tr.Name(), Detail: fmt.Sprintf("%s, was %s", f.Access, was)})
	}
	d.announce(grown)
	return nil
}

// exposure tells what a path sent before it was known to lead to another volume.
func (lv *live) exposure() string {
	n := lv.exposed.Load()
	if n == 0 {
		return "" // nothing hinted at it: it was found at a look
	}
	return fmt.Sprintf("; %d commands were in flight when the hint came and may have reached it, none was sent after", n-1)
}

// rebuildLocked publishes a new table, and grows the device when every live
// path shows the same larger size. It reports whether it grew.
func (d *Device) rebuildLocked() (grown bool) { return d.rebuild(false) }

// rebuild is rebuildLocked; now skips the wait of Failback. Under mu.
func (d *Device) rebuild(now bool) (grown bool) {
	lives := make([]*live, 0, len(d.paths))
	sizes := make([]uint64, 0, len(d.paths))
	for _, p := range d.paths {
		if p.live != nil {
			lives = append(lives, p.live)
			sizes = append(sizes, p.seen.Limits.Size)
		}
	}
	if len(sizes) > 0 && slices.Min(sizes) == slices.Max(sizes) && sizes[0] > d.size.Load() {
		d.size.Store(sizes[0])
		grown = true
	}
	old, t := d.table.Load(), buildTable(lives, d.size.Load())
	if t.since = old.since; old.best() == nil {
		t.since = time.Now()
	}
	d.settleGroupLocked(t, now)
	d.table.Store(t)
	d.noPathLocked(t.best() != nil)
	return grown
}

func (d *Device) announce(grown bool) {
	if !grown {
		return
	}
	d.emit(Event{Kind: Grown, Detail: fmt.Sprintf("the volume has %d bytes now", d.size.Load())})
	if d.cfg.Grown != nil {
		d.cfg.Grown(d.size.Load())
	}
}
