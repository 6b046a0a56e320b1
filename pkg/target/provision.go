package target

import (
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
)

// mapper is a store that knows where it has nothing: n bytes from off on, at
// least 1, are all a hole (they read as zeroes and take no space) or are not.
type mapper interface {
	Mapped(off uint64) (n uint64, hole bool, err error)
}

func (m *Machine) doUnmap(t *task) {
	u := t.unit
	if u.Thick {
		m.check(t, scsi.SenseInvalidOpcode)
		return
	}
	if bad := m.protected(t); bad != (scsi.Sense{}) {
		m.check(t, bad)
		return
	}
	list, err := scsi.ParseUnmap(nil, t.data[:min(uint32(len(t.data)), t.need)])
	if err != nil || len(list) > maxUnmapExtents {
		m.check(t, scsi.SenseParamLength)
		return
	}
	bs := t.blockSize()
	blocks, total := t.sess.portal.device(u).Size/bs, uint64(0)
	for _, e := range list {
		if total += uint64(e.Blocks); e.LBA > blocks || uint64(e.Blocks) > blocks-e.LBA {
			m.check(t, scsi.SenseOutOfRange)
			return
		}
	}
	if total > maxUnmapBlocks {
		m.check(t, scsi.SenseInvalidParam)
		return
	}
	t.durable, t.n = u.uncached(), total*bs
	m.run(t, func(t *task) scsi.Sense {
		for _, e := range list {
			if err := u.Store.Zero(e.LBA*bs, uint64(e.Blocks)*bs); err != nil {
				return storeSense(err)
			}
		}
		return t.settle()
	})
}

func (m *Machine) doWriteSame(t *task) {
	bs := t.blockSize()
	bad := m.writeRange(t, maxZero)
	switch ndob := t.cmd.Flags&scsi.NDOB != 0; {
	case bad != (scsi.Sense{}):
	case t.n == 0 || t.cmd.Flags&scsi.Unmap != 0 && t.unit.Thick:
		bad = scsi.SenseInvalidCDB // WSNZ: no blocks is not "up to the end"
	case !ndob && (uint64(t.got) < bs || uint64(t.edtl) != bs):
		bad = scsi.SenseInvalidCDB // the data is one block, no more, no less
	}
	if bad != (scsi.Sense{}) {
		m.check(t, bad)
		return
	}
	m.run(t, func(t *task) scsi.Sense {
		if t.cmd.Flags&scsi.NDOB != 0 || allZero(t.data[:bs]) {
			if err := t.unit.Store.Zero(t.off, t.n); err != nil {
				return storeSense(err)
			}
			return t.settle()
		}
		if err := fill(t.unit.Store, t.data[:bs], t.off, t.n); err != nil {
			return storeSense(err)
		}
		return t.settle()
	})
}

// fill writes one block over and over.
func fill(st Store, block []byte, off, n uint64) error {
	chunk := make([]byte, 0, ramStripe)
	for len(chunk) < cap(chunk) && uint64(len(chunk)) < n {
		chunk = append(chunk, block...)
	}
	for end := off + n; off < end; off += uint64(len(chunk)) {
		if err := st.WriteAt(chunk[:min(uint64(len(chunk)), end-off)], off); err != nil {
			return err
		}
	}
	return nil
}

func allZero(b []byte) bool {
	for _, v := range b {
		if v != 0 {
			return false
		}
	}
	return true
}

// lbaStatus does GET LBA STATUS (SBC-3 5.4). A store that does not know its
// holes has none.
func (m *Machine) lbaStatus(t *task) {
	d := t.sess.portal.device(t.unit)
	bs := uint64(d.BlockSize)
	if t.cmd.LBA >= d.Size/bs {
		m.check(t, scsi.SenseOutOfRange)
		return
	}
	size, thick, most := d.Size, t.unit.Thick, int(min(max(t.cmd.Alloc, 24)-8, 16*maxStatusExtents)/16)
	m.run(t, func(t *task) scsi.Sense {
		list, err := status(t.unit.Store, thick, t.cmd.LBA*bs, size, bs, most)
		if err != nil {
			return senseReadError
		}
		t.result = scsi.AppendLBAStatus(nil, list...)
		return scsi.Sense{}
	})
}

// status lists at most most ranges from off to end, bytes. A block that is a
// hole in part only is none.
func status(st Store, thick bool, off, end, bs uint64, most int) (list []scsi.LBAStatus, err error) {
	maps, ok := st.(mapper)
	if !ok || thick {
		return appendStatus(nil, off/bs, (end-off)/bs, false), nil
	}
	for at := off; at < end && len(list) <= most; {
		n, hole, err := maps.Mapped(at)
		if err != nil {
			return nil, err
		}
		to := min(end, at+max(n, 1))
		if next := to / bs * bs; hole && next > at {
			to = next
		} else {
			hole = false
			to = min(end, (to+bs-1)/bs*bs)
		}
		list = appendStatus(list, at/bs, (to-at)/bs, hole)
		at = to
	}
	return list[:min(len(list), most)], nil
}

// appendStatus joins a range to the last one where both are the same.
func appendStatus(list []scsi.LBAStatus, lba, blocks uint64, hole bool) []scsi.LBAStatus {
	if n := len(list); n > 0 && list[n-1].Hole == hole && uint64(list[n-1].Blocks)+blocks < 1<<32 {
		list[n-1].Blocks += uint32(blocks)
		return list
	}
	return append(list, scsi.LBAStatus{LBA: lba, Blocks: uint32(min(blocks, 1<<32-1)), Hole: hole})
}
