package sim

import "math/rand/v2"

// disk is a target.Store with a volatile cache: what was not flushed may be gone
// after a power loss, block by block. Under world.mu.
type disk struct {
	bs      int
	cur     []byte // what reads see
	durable []byte // what is left without power
	dirty   []bool // per block: cur is not durable
	rng     *rand.Rand
	say     func(format string, args ...any)
}

func newDisk(blocks, bs int, rng *rand.Rand) *disk {
	return &disk{bs: bs, cur: make([]byte, blocks*bs), durable: make([]byte, blocks*bs), dirty: make([]bool, blocks), rng: rng}
}

// Size implements target.Store.
func (d *disk) Size() uint64 { return uint64(len(d.cur)) }

// ReadAt implements target.Store.
func (d *disk) ReadAt(p []byte, off uint64) error {
	copy(p, d.cur[off:])
	return nil
}

// WriteAt implements target.Store.
func (d *disk) WriteAt(p []byte, off uint64) error {
	copy(d.cur[off:], p)
	if v, ok := number(p[:d.bs], off/uint64(d.bs)); d.say != nil {
		d.say("disk: write %d (%v) of %d bytes at %d", v, ok, len(p), off)
	}
	d.touch(off, uint64(len(p)))
	return nil
}

// Zero implements target.Store.
func (d *disk) Zero(off, n uint64) error {
	clear(d.cur[off : off+n])
	if d.say != nil {
		d.say("disk: zeroes of %d bytes at %d", n, off)
	}
	d.touch(off, n)
	return nil
}

func (d *disk) touch(off, n uint64) {
	for b := off / uint64(d.bs); b < (off+n)/uint64(d.bs); b++ {
		d.dirty[b] = true
		if d.rng.IntN(8) == 0 {
			d.destage(int(b)) // caches write back when they like
		}
	}
}

func (d *disk) block(b int) []byte { return d.cur[b*d.bs : (b+1)*d.bs] }

func (d *disk) destage(b int) {
	copy(d.durable[b*d.bs:(b+1)*d.bs], d.block(b))
	d.dirty[b] = false
}

// Flush implements target.Store.
func (d *disk) Flush() error {
	for b, dirty := range d.dirty {
		if dirty {
			d.destage(b)
		}
	}
	return nil
}

// Close implements target.Store.
func (d *disk) Close() error { return nil }

// crash is a loss of power. It reports the blocks that went back to an older
// content; some are kept by luck, now and then none.
func (d *disk) crash() (back []int) {
	all := d.rng.IntN(2) == 0
	for b, dirty := range d.dirty {
		switch {
		case !dirty:
		case !all && d.rng.IntN(3) == 0:
			d.destage(b)
		default:
			copy(d.block(b), d.durable[b*d.bs:(b+1)*d.bs])
			d.dirty[b] = false
			back = append(back, b)
		}
	}
	return back
}
