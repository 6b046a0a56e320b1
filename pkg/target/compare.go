package target

import (
	"bytes"

	"github.com/csi-mpath/csi-mpath/pkg/scsi"
	"github.com/csi-mpath/csi-mpath/pkg/target/serve"
)

// whole reports whether all the data a command needs has come; else it ends
// the task: these commands do nothing by halves.
func (m *Machine) whole(t *task, n uint64) bool {
	if uint64(len(t.data)) < n || uint64(t.got) < n {
		m.check(t, scsi.SenseInvalidCDB)
		return false
	}
	return true
}

// doVerify does VERIFY: that the medium can be read, or that it has what the
// initiator sends (BYTCHK).
func (m *Machine) doVerify(t *task) {
	limit := uint64(serve.MaxTransfer)
	if t.cmd.ByteCheck != 1 {
		limit = maxZero
	}
	if bad := m.mediaRange(t, limit); bad != (scsi.Sense{}) {
		m.check(t, bad)
		return
	}
	if bs := t.blockSize(); m.whole(t, uint64(m.wants(t))) {
		m.run(t, func(t *task) scsi.Sense { return workVerify(t, bs) })
	}
}

func workVerify(t *task, bs uint64) scsi.Sense {
	switch t.cmd.ByteCheck {
	case 1:
		return t.compare(func(at, n uint64) []byte { return t.data[at : at+n] })
	case 3:
		many := repeat(t.data[:bs], t.n) // pieces begin at whole blocks
		return t.compare(func(_, n uint64) []byte { return many[:n] })
	}
	if t.unit.memory != nil {
		return scsi.Sense{} // memory is always readable
	}
	return t.compare(nil)
}

// repeat is a block over and over, as long as a piece of compare, or as n.
func repeat(block []byte, n uint64) []byte {
	return bytes.Repeat(block, int(max(1, min(n, comparePiece)/uint64(len(block)))))
}

// compare compares the range with want; see CompareStore. The sense of a
// difference says where it is, in bytes from the beginning (SBC-3 5.2).
func (t *task) compare(want func(at, n uint64) []byte) scsi.Sense {
	at, same, err := CompareStore(t.unit.Store, t.off, t.n, want)
	switch {
	case err != nil:
		return senseReadError
	case !same:
		s := senseMiscompare
		s.HasInfo, s.Info = true, at
		return s
	}
	return scsi.Sense{}
}

// CompareStore reads n bytes of a store from off on, in pieces, and compares
// each with want(its place, its length); a nil want only reads. at is the first
// byte that differs, from off on.
func CompareStore(st Store, off, n uint64, want func(at, n uint64) []byte) (at uint64, same bool, err error) {
	buf := make([]byte, min(n, comparePiece))
	for ; at < n; at += uint64(len(buf)) {
		piece := buf[:min(uint64(len(buf)), n-at)]
		if err := st.ReadAt(piece, off+at); err != nil {
			return at, false, err
		}
		if want == nil {
			continue
		}
		if w := want(at, uint64(len(piece))); !bytes.Equal(piece, w) {
			return at + firstDifference(piece, w), false, nil
		}
	}
	return n, true, nil
}

func firstDifference(a, b []byte) uint64 {
	for i := range a {
		if a[i] != b[i] {
			return uint64(i)
		}
	}
	return uint64(len(a))
}

// doWriteVerify does WRITE AND VERIFY: written, durable, and read back.
func (m *Machine) doWriteVerify(t *task) {
	bad := m.writeRange(t, serve.MaxTransfer)
	if bad != (scsi.Sense{}) {
		m.check(t, bad)
		return
	}
	bs := t.blockSize()
	t.n = min(t.n, uint64(len(t.data)), uint64(t.got)) / bs * bs
	t.durable = true // what is verified is the medium
	m.countWrite(t)
	m.run(t, func(t *task) scsi.Sense {
		if bad := workWrite(t); bad != (scsi.Sense{}) {
			return bad
		}
		return t.compare(func(at, n uint64) []byte { return t.data[at : at+n] })
	})
}

// doCompareAndWrite does COMPARE AND WRITE (SBC-3 5.2): nothing of this target
// comes between the comparison and the write, see task.alone.
func (m *Machine) doCompareAndWrite(t *task) {
	bs := t.blockSize()
	bad := m.writeRange(t, maxCompareWrite*bs)
	if bad != (scsi.Sense{}) {
		m.check(t, bad)
		return
	}
	if uint64(t.edtl) != 2*t.n { // 256 blocks read as none in its field
		m.check(t, scsi.SenseInvalidCDB)
		return
	}
	if !m.whole(t, 2*t.n) {
		return
	}
	m.countWrite(t)
	m.run(t, func(t *task) scsi.Sense {
		if bad := t.compare(func(at, n uint64) []byte { return t.data[at : at+n] }); bad != (scsi.Sense{}) {
			return bad
		}
		if err := t.unit.Store.WriteAt(t.data[t.n:2*t.n], t.off); err != nil {
			return storeSense(err)
		}
		return t.settle()
	})
}

// doOrWrite does ORWRITE(16) (SBC-3 5.8), atomic like COMPARE AND WRITE.
func (m *Machine) doOrWrite(t *task) {
	bad := m.writeRange(t, serve.MaxTransfer)
	if bad != (scsi.Sense{}) {
		m.check(t, bad)
		return
	}
	if !m.whole(t, t.n) {
		return
	}
	m.countWrite(t)
	m.run(t, func(t *task) scsi.Sense {
		old := make([]byte, t.n)
		if t.unit.Store.ReadAt(old, t.off) != nil {
			return senseReadError
		}
		for i, v := range t.data[:t.n] {
			old[i] |= v
		}
		if err := t.unit.Store.WriteAt(old, t.off); err != nil {
			return storeSense(err)
		}
		return t.settle()
	})
}
