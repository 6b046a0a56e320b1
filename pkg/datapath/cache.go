package datapath

import (
	"sync/atomic"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
)

// cacheMark is the word of the ledger that says whether answered writes may be
// in the device's volatile cache alone (I4), so that a process that dies before
// it learns of a lost cache leaves that to learn to the next.
//
// 0: all is flushed. Else the low bits number the time since when something is
// not, and lostBit says that the cache is known to be lost and no client was
// told so yet. Set before the answer of a write leaves; cleared by a flush
// answered well if nothing was added since that flush began.
type cacheMark struct {
	word  *atomic.Uint64
	epoch atomic.Uint64
}

const lostBit = 1 << 63

// dirty notes that something is answered and not flushed. Once per flush or so.
func (m *cacheMark) dirty() {
	n := m.epoch.Add(1)
	for old := m.word.Load(); !m.word.CompareAndSwap(old, old&lostBit|n); old = m.word.Load() {
	}
}

// account keeps the books of I4 as a request is answered, and may turn a good
// flush into an error: once, when a volatile cache was provably lost with
// unflushed writes in it.
func (d *Device) account(s *slot, st blk.Status) blk.Status {
	r := s.req
	switch {
	case r.Op == blk.Flush:
		d.flushing.Add(-1)
		if st != blk.OK {
			d.addUnflushed() // and not what an earlier flush, still under way, makes durable
			return st
		}
		for m := d.mode.Load(); m&modePoison != 0; m = d.mode.Load() {
			if d.mode.CompareAndSwap(m, m&^modePoison) {
				return blk.IOError
			}
		}
		d.cache.word.CompareAndSwap(s.cover, 0)
	case st == blk.OK && r.Op.Mutates() && r.Flags&blk.FUA == 0 && !d.unflushed.Load():
		d.addUnflushed()
	}
	return st
}

func (d *Device) addUnflushed() {
	d.unflushed.Store(true)
	if d.cacheWB.Load() {
		d.cache.dirty()
	}
}

// flushBegins notes that a flush was taken in: what was answered before is
// covered by it. It returns what account wants to know of that. A flush that
// failed for a lost cache has been answered by now.
func (d *Device) flushBegins() (cover uint64) {
	d.flushing.Add(1)
	d.unflushed.Store(false)
	cover = d.cache.word.Load()
	if cover&lostBit != 0 && d.mode.Load()&modePoison == 0 {
		cover = d.cache.word.And(^uint64(lostBit)) &^ lostBit
	}
	return cover
}

// cacheLost is proof that the target lost its volatile cache (I4).
func (d *Device) cacheLost() {
	if !d.cacheWB.Load() || !d.unflushed.Load() && d.flushing.Load() == 0 {
		return
	}
	d.mode.Or(modePoison)
	d.cache.word.Or(lostBit)
	d.emit(Event{Kind: CacheLost, Detail: "the target was powered on with unflushed writes in its cache: the next flush fails"})
}

// inheritCache takes over what a dead predecessor knew of the cache.
func (d *Device) inheritCache() {
	d.cache.word = &d.ledger.words[wordCache]
	w := d.cache.word.Load()
	if w == 0 {
		return
	}
	d.cache.epoch.Store(w &^ lostBit)
	d.unflushed.Store(true)
	d.cacheWB.Store(true) // before any path says so: the first may bring the news
	if w&lostBit != 0 {
		d.mode.Or(modePoison)
	}
}
