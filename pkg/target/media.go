package target

import (
	"errors"

	"github.com/csi-mpath/csi-mpath/pkg/scsi"
	"github.com/csi-mpath/csi-mpath/pkg/target/serve"
)

// mediaRange checks a command that moves data: its range goes to t.off and t.n.
func (m *Machine) mediaRange(t *task, limit uint64) (bad scsi.Sense) {
	e, bad := m.extent(t)
	if bad == (scsi.Sense{}) && e.n > limit {
		bad = scsi.SenseInvalidCDB
	}
	t.off, t.n = e.off, e.n
	return bad
}

// protected is why nothing may be written to the unit; zero if it may.
func (u *unit) protected() scsi.Sense {
	switch {
	case u.ReadOnly:
		return senseProtected
	case u.swp:
		return senseSoftProtected
	}
	return scsi.Sense{}
}

// blockSize is that of the unit as t's portal shows it, bytes.
func (t *task) blockSize() uint64 { return uint64(t.sess.portal.device(t.unit).BlockSize) }

func (m *Machine) doRead(t *task) {
	if bad := m.mediaRange(t, serve.MaxTransfer); bad != (scsi.Sense{}) {
		m.check(t, bad)
		return
	}
	m.stats.Reads++
	m.stats.BytesRead += t.n
	v := t.unit.memory
	if !t.unit.inline() || t.Spoil != nil {
		m.readBeside(t)
		return
	}
	if m.silent(t) {
		return
	}
	c, n := t.conn, m.sendable(t, t.n)
	if n > serve.CopyMax && !c.layout.DataDigest {
		mem, actual := v.View(t.off, uint64(n)), t.n
		m.end(t)
		c.dataIn(t, n, actual, func(off, k int) { c.refer(mem[off : off+k]) })
		m.free(t)
		return
	}
	m.copyRead(t, n, t.off, t.n)
}

// copyRead reads into the output; a store's error takes the output back.
func (m *Machine) copyRead(t *task, n int, at, actual uint64) {
	c := t.conn
	mark := c.Out.Mark()
	statSN := c.statSN
	t.sess.maxCmdSN++ // as end will
	var err error
	c.dataIn(t, n, actual, func(off, k int) {
		b := c.Out.Room(k)
		if err == nil {
			err = t.unit.Store.ReadAt(b, at+uint64(off))
		}
		c.trail(k, b)
	})
	t.sess.maxCmdSN--
	if err != nil {
		c.Out.Rollback(mark)
		c.statSN = statSN
		m.check(t, senseReadError)
		return
	}
	m.end(t)
	m.free(t)
}

// readBeside reads into a buffer of the task's, whole blocks.
func (m *Machine) readBeside(t *task) {
	bs := t.blockSize()
	n := (uint64(m.sendable(t, t.n)) + bs - 1) / bs * bs
	t.reads = true
	switch {
	case n == 0:
		m.finish(t, scsi.Sense{})
	case !m.buffer(t, int(n)):
		m.answer(t, scsi.StatusTaskSetFull, nil)
	default:
		m.run(t, workRead)
	}
}

func workRead(t *task) scsi.Sense {
	if t.unit.Store.ReadAt(t.buf, t.off) != nil {
		return senseReadError
	}
	return scsi.Sense{}
}

// sendRead answers a read whose data is in the task's buffer. Long data goes out
// from there, and the output gives the buffer back.
func (m *Machine) sendRead(t *task) {
	if m.silent(t) {
		return
	}
	c, n := t.conn, m.sendable(t, t.n)
	if t.Spoil != nil {
		m.enclose(t, scsi.StatusGood, t.buf[:n], t.n)
		return
	}
	m.end(t)
	if n <= serve.CopyMax {
		c.dataIn(t, n, t.n, func(off, k int) { c.data(t.buf[off : off+k]) })
	} else {
		buf := t.buf
		t.buf = nil
		c.dataIn(t, n, t.n, func(off, k int) { c.refer(buf[off : off+k]) })
		c.Out.Own(&m.Buffers, buf)
	}
	m.free(t)
}

// storeSense is the sense for a store that refused to write.
func storeSense(err error) scsi.Sense {
	switch {
	case err == nil:
		return scsi.Sense{}
	case errors.Is(err, ErrNoSpace):
		return senseNoSpace
	}
	return senseWriteError
}

// writeRange checks a command that writes.
func (m *Machine) writeRange(t *task, limit uint64) scsi.Sense {
	if bad := m.mediaRange(t, limit); bad != (scsi.Sense{}) {
		return bad
	}
	t.durable = t.cmd.Flags&scsi.FUA != 0 || t.unit.uncached()
	return m.protected(t)
}

func (m *Machine) doWrite(t *task) {
	bad := m.writeRange(t, serve.MaxTransfer)
	if bad != (scsi.Sense{}) {
		m.check(t, bad)
		return
	}
	// An EDTL smaller than the CDB's length: only the whole blocks that came.
	bs := t.blockSize()
	t.n = min(t.n, uint64(len(t.data)), uint64(t.got)) / bs * bs
	m.countWrite(t)
	m.run(t, workWrite)
}

func (m *Machine) countWrite(t *task) {
	m.stats.Writes++
	m.stats.BytesWritten += t.n
	if t.conn == nil {
		m.stats.LateWrites++
	}
}

func workWrite(t *task) scsi.Sense {
	if err := t.unit.Store.WriteAt(t.data[:t.n], t.off); err != nil {
		return storeSense(err)
	}
	return t.settle()
}

// settle makes what t wrote durable, if that is wanted.
func (t *task) settle() scsi.Sense {
	if !t.durable {
		return scsi.Sense{}
	}
	return storeSense(t.unit.Store.Flush())
}

// doFlush does SYNCHRONIZE CACHE, the whole cache whatever its range, and
// answers after it, whatever IMMED says.
func (m *Machine) doFlush(t *task) {
	m.stats.Flushes++
	if _, bad := m.extent(t); bad != (scsi.Sense{}) {
		m.check(t, bad)
		return
	}
	t.durable = true
	m.run(t, (*task).settle)
}

// doPrefetch answers CONDITION MET where everything is in memory (SBC-3 5.9).
func (m *Machine) doPrefetch(t *task) {
	if bad := m.mediaRange(t, 1<<62); bad != (scsi.Sense{}) {
		m.check(t, bad)
		return
	}
	t.met = t.unit.memory != nil
	m.run(t, func(t *task) scsi.Sense {
		if p, ok := t.unit.Store.(prefetcher); ok {
			p.Prefetch(t.off, t.n)
		}
		return scsi.Sense{}
	})
}

// prefetcher is a store that can be told what will be read.
type prefetcher interface{ Prefetch(off, n uint64) }
