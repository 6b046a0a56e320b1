package subsystem

import (
	"bytes"
	"errors"

	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	"github.com/csi-mpath/csi-mpath/pkg/target"
	"github.com/csi-mpath/csi-mpath/pkg/target/serve"
)

// device is what the command's namespace says of itself at its portal.
func (t *task) device() *Device { return t.q.ctrl.portal.device(t.ns) }

// ioWants finds the namespace of an I/O command, and what data it moves, bytes.
func (t *task) ioWants() (uint32, nvme.Status) {
	if t.cmd.Opcode == nvme.OpFlush && t.cmd.NSID == nvme.AllNamespaces {
		return 0, nvme.Success
	}
	if t.ns = t.m.namespaces[t.cmd.NSID]; t.ns == nil || t.q.ctrl.discovery {
		t.ns = nil
		return 0, nvme.InvalidNamespace.Final()
	}
	switch t.cmd.Opcode {
	case nvme.OpRead, nvme.OpWrite, nvme.OpCompare:
		n := uint64(t.cmd.Blocks()) * uint64(t.device().BlockSize)
		if n > 4096<<t.m.cfg.TransferShift {
			return 0, nvme.InvalidField.Final()
		}
		return uint32(n), nvme.Success
	case nvme.OpDataset:
		// Linux always sends room for all ranges there may be.
		return max(uint32(t.cmd.Ranges())*nvme.RangeLen, min(t.cmd.SGL.Len, nvme.MaxRanges*nvme.RangeLen)), nvme.Success
	case nvme.OpReserveReport:
		n := t.cmd.ReportLen()
		if n == 0 || n > serve.MaxTransfer {
			return 0, nvme.InvalidField.Final()
		}
		return n, nvme.Success
	case nvme.OpReserveRegister, nvme.OpReserveAcquire, nvme.OpReserveRelease:
		r, bad := nvme.ParseReserve(&t.cmd)
		return uint32(r.KeysLen()), bad
	case nvme.OpFlush, nvme.OpWriteZeroes, nvme.OpVerify:
		return 0, nvme.Success
	}
	return 0, nvme.InvalidOpcode.Final()
}

// executeIO does an I/O command.
func (t *task) executeIO() {
	if t.ns == nil {
		t.flushAll()
		return
	}
	if bad := t.refusal(); !bad.OK() {
		t.answer(bad)
		return
	}
	switch t.cmd.Opcode {
	case nvme.OpRead:
		t.doRead()
	case nvme.OpWrite:
		t.doWrite()
	case nvme.OpFlush:
		t.m.stats.Flushes++
		t.durable = true
		t.run((*task).settle)
	case nvme.OpWriteZeroes:
		t.doZero()
	case nvme.OpDataset:
		t.doDataset()
	case nvme.OpCompare, nvme.OpVerify:
		t.doCompare()
	case nvme.OpReserveReport:
		t.reserveReport()
	default:
		t.reserve()
	}
}

// refusal is why the namespace does not take the command now.
func (t *task) refusal() nvme.Status {
	n, x := t.ns, t.q.ctrl
	if n.gone {
		return nvme.InvalidNamespace.Final()
	}
	if bad := t.m.state(x.portal, n.ANAGroup).Refusal(); !bad.OK() {
		x.portal.refused++
		return bad
	}
	x.portal.taken++
	if n.reservations.Held() && n.reservations.Shuts(x.hostID, t.kind()) {
		return nvme.ReservationConflict
	}
	return nvme.Success
}

// extent checks a command that has a range: it goes to t.off and t.n.
func (t *task) extent() nvme.Status {
	d := t.device()
	bs := uint64(d.BlockSize)
	blocks, lba, n := d.Size/bs, t.cmd.LBA(), uint64(t.cmd.Blocks())
	switch {
	case lba > blocks || n > blocks-lba:
		return nvme.LBAOutOfRange.Final()
	case t.cmd.Protection() != 0:
		return nvme.InvalidField.Final()
	}
	t.off, t.n = lba*bs, n*bs
	return nvme.Success
}

// writable checks a command that changes a range.
func (t *task) writable() nvme.Status {
	if t.m.readOnly(t.ns, t.q.ctrl.host) {
		return nvme.WriteProtected.Final()
	}
	t.durable = t.cmd.IOFlags()&nvme.FUA != 0 || t.ns.WriteThrough
	return t.extent()
}

// work does a task's job with its store; see serve's jobs.go.
type work func(t *task) nvme.Status

// run does t's job, now or in its turn, and then finishes t.
func (t *task) run(w work) {
	if t.m.Run == nil || t.ns.inline() && t.n <= serve.MaxTransfer {
		t.bad = w(t)
		t.Finish()
		return
	}
	t.m.Work(&t.Task, &t.ns.turn, func() { t.bad = w(t) })
}

func (t *task) doRead() {
	if bad := t.extent(); !bad.OK() {
		t.answer(bad)
		return
	}
	t.m.stats.Reads++
	t.m.stats.BytesRead += t.n
	if !t.ns.inline() || t.Spoil != nil {
		t.readBeside()
		return
	}
	if t.silent() {
		return
	}
	c, cid, n, ns, at := t.conn, t.cmd.CID, int(t.n), t.ns, t.off
	if n > serve.CopyMax && !c.out.DataDigest {
		mem := ns.memory.View(at, t.n)
		t.over()
		c.send(cid, n, func(off, k int) { c.referred(mem[off : off+k]) })
		t.Free()
		return
	}
	t.over()
	t.Free()
	c.send(cid, n, func(off, k int) {
		b := c.Out.Room(k)
		_ = ns.Store.ReadAt(b, at+uint64(off)) // memory: it cannot fail
		c.trail(b)
	})
}

// readBeside reads into a buffer of the task's.
func (t *task) readBeside() {
	if !t.buffer(int(t.n)) {
		t.Busy()
		return
	}
	t.reads = true
	t.run(func(t *task) nvme.Status { return readStatus(t.ns.Store.ReadAt(t.buf, t.off)) })
}

// sendRead answers a read whose data is in the task's buffer. Long data goes out
// from there, and the output gives the buffer back.
func (t *task) sendRead() {
	if t.silent() {
		return
	}
	if t.Spoil != nil {
		t.mail(&letter{conn: t.conn, c: nvme.Completion{CID: t.cmd.CID}, data: bytes.Clone(t.buf[:t.n])})
		return
	}
	c, cid, buf := t.conn, t.cmd.CID, t.buf
	t.over()
	if len(buf) <= serve.CopyMax {
		c.send(cid, len(buf), func(off, n int) { c.copied(buf[off : off+n]) })
	} else {
		t.buf = nil
		c.send(cid, len(buf), func(off, n int) { c.referred(buf[off : off+n]) })
		c.Out.Own(&c.m.Buffers, buf)
	}
	t.Free()
}

func readStatus(err error) nvme.Status {
	if err != nil {
		return nvme.ReadError.Final()
	}
	return nvme.Success
}

// writeStatus is the status for a store that refused to write.
func writeStatus(err error) nvme.Status {
	switch {
	case err == nil:
		return nvme.Success
	case errors.Is(err, target.ErrNoSpace):
		return nvme.CapacityExceeded.Final()
	}
	return nvme.WriteFault.Final()
}

func (t *task) doWrite() {
	if bad := t.writable(); !bad.OK() {
		t.answer(bad)
		return
	}
	t.m.stats.Writes++
	t.m.stats.BytesWritten += t.n
	if t.conn == nil {
		t.m.stats.LateWrites++
	}
	t.run(workWrite)
}

func workWrite(t *task) nvme.Status {
	if bad := writeStatus(t.ns.Store.WriteAt(t.data[:t.n], t.off)); !bad.OK() {
		return bad
	}
	return t.settle()
}

// settle makes what t wrote durable, if that is wanted.
func (t *task) settle() nvme.Status {
	if !t.durable {
		return nvme.Success
	}
	return writeStatus(t.ns.Store.Flush())
}

// flushAll does Flush of all namespaces, one after the other, in the turn of
// the first that takes long.
func (t *task) flushAll() {
	m := t.m
	var all []*namespace
	for _, id := range m.ids {
		all = append(all, m.namespaces[id])
	}
	m.stats.Flushes++
	if len(all) == 0 {
		t.answer(nvme.Success)
		return
	}
	t.ns = all[0]
	for _, n := range all {
		if !n.inline() {
			t.ns = n
		}
	}
	t.run(func(*task) nvme.Status {
		for _, n := range all {
			if bad := writeStatus(n.Store.Flush()); !bad.OK() {
				return bad
			}
		}
		return nvme.Success
	})
}

func (t *task) doZero() {
	if bad := t.writable(); !bad.OK() {
		t.answer(bad)
		return
	}
	t.run(func(t *task) nvme.Status {
		if bad := writeStatus(t.ns.Store.Zero(t.off, t.n)); !bad.OK() {
			return bad
		}
		return t.settle()
	})
}

// doDataset does Dataset Management: deallocation; the other attributes are
// hints, and are taken for that.
func (t *task) doDataset() {
	list, err := nvme.ParseRanges(nil, t.data, t.cmd.Ranges())
	switch {
	case err != nil:
		t.answer(nvme.InvalidField.Final())
		return
	case t.cmd.CDW11&nvme.DatasetDeallocate == 0 || t.ns.Thick:
		t.answer(nvme.Success) // a hint too, where nothing can be freed
		return
	case t.m.readOnly(t.ns, t.q.ctrl.host):
		t.answer(nvme.WriteProtected.Final())
		return
	}
	d := t.device()
	bs := uint64(d.BlockSize)
	for _, r := range list {
		if blocks := d.Size / bs; r.LBA > blocks || uint64(r.Blocks) > blocks-r.LBA {
			t.answer(nvme.LBAOutOfRange.Final())
			return
		}
		t.n += uint64(r.Blocks) * bs
	}
	if t.n > maxZero {
		t.answer(nvme.InvalidField.Final())
		return
	}
	t.durable = t.ns.WriteThrough
	t.run(func(t *task) nvme.Status {
		for _, r := range list {
			if r.Blocks == 0 {
				continue
			}
			if bad := writeStatus(t.ns.Store.Zero(r.LBA*bs, uint64(r.Blocks)*bs)); !bad.OK() {
				return bad
			}
		}
		return t.settle()
	})
}

// doCompare does Compare, and Verify, which only reads.
func (t *task) doCompare() {
	if bad := t.extent(); !bad.OK() {
		t.answer(bad)
		return
	}
	var want func(at, n uint64) []byte // nil only reads
	if t.cmd.Opcode == nvme.OpCompare {
		want = func(at, n uint64) []byte { return t.data[at : at+n] }
	}
	t.run(func(t *task) nvme.Status {
		_, same, err := target.CompareStore(t.ns.Store, t.off, t.n, want)
		switch {
		case err != nil:
			return nvme.ReadError.Final()
		case !same:
			return nvme.CompareFailure.Final()
		}
		return nvme.Success
	})
}
