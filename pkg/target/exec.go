package target

import (
	"errors"

	"github.com/csi-mpath/csi-mpath/pkg/scsi"
)

// Senses of execution.
var (
	senseTransition  = scsi.Sense{Key: scsi.KeyNotReady, ASC: 0x04, ASCQ: 0x0A}
	senseStandby     = scsi.Sense{Key: scsi.KeyNotReady, ASC: 0x04, ASCQ: 0x0B}
	senseUnavailable = scsi.Sense{Key: scsi.KeyNotReady, ASC: 0x04, ASCQ: 0x0C}
	senseOffline     = scsi.Sense{Key: scsi.KeyNotReady, ASC: 0x04, ASCQ: 0x12}
	senseProtected   = scsi.Sense{Key: scsi.KeyDataProtect, ASC: 0x27}
	senseNoSpace     = scsi.Sense{Key: scsi.KeyDataProtect, ASC: 0x27, ASCQ: 0x07}
	senseWriteError  = scsi.Sense{Key: scsi.KeyMedium, ASC: 0x0C}
	senseReadError   = scsi.Sense{Key: scsi.KeyMedium, ASC: 0x11}
	// senseDataLost: write data missing or out of order (RFC 7143 11.4.7.2).
	senseDataLost = scsi.Sense{Key: scsi.KeyAborted, ASC: 0x0C, ASCQ: 0x0D}
	senseNoSaving = scsi.Sense{Key: scsi.KeyIllegalRequest, ASC: 0x39}
)

// attended answers with a pending unit attention, if there is one (SAM-5 5.14).
func (m *Machine) attended(t *task) bool {
	if t.unit == nil || len(t.sess.attentions) == 0 {
		return false
	}
	switch t.cmd.Op {
	case scsi.OpInquiry, scsi.OpReportLUNs, scsi.OpRequestSense:
		return false
	}
	n := t.unit.Number
	q := t.sess.attentions[n]
	if len(q) == 0 {
		return false
	}
	t.sess.attentions[n] = q[1:]
	if len(q) == 1 {
		delete(t.sess.attentions, n)
	}
	m.check(t, q[0])
	return true
}

// access refuses what the portal's ALUA state does not allow (SPC-4 5.15.2).
func (m *Machine) access(t *task) (scsi.Sense, bool) {
	state := m.groups[t.sess.portal.Group]
	if state.Usable() {
		return scsi.Sense{}, true
	}
	switch t.cmd.Op {
	case scsi.OpInquiry, scsi.OpReportLUNs, scsi.OpRequestSense, scsi.OpMaintenanceIn,
		scsi.OpPersistentReserveIn, scsi.OpPersistentReserveOut:
		return scsi.Sense{}, true
	case scsi.OpModeSense6, scsi.OpModeSense10, scsi.OpReadCapacity10, scsi.OpServiceActionIn16:
		if state == scsi.Standby {
			return scsi.Sense{}, true
		}
	}
	switch state {
	case scsi.Standby:
		return senseStandby, false
	case scsi.Offline:
		return senseOffline, false
	case scsi.Transitioning:
		return senseTransition, false
	}
	return senseUnavailable, false
}

// execute does a command.
func (m *Machine) execute(t *task) {
	if t.unit == nil {
		m.noUnit(t)
		return
	}
	if bad, ok := m.access(t); !ok {
		m.check(t, bad)
		return
	}
	if t.unit.reservations.held && t.unit.reservations.conflicts(t.sess.key, &t.cmd) {
		m.answer(t, scsi.StatusReservationConflict, nil)
		return
	}
	switch t.cmd.Op {
	case scsi.OpRead10, scsi.OpRead16:
		m.doRead(t)
	case scsi.OpWrite10, scsi.OpWrite16:
		m.doWrite(t)
	case scsi.OpSyncCache10, scsi.OpSyncCache16:
		m.stats.Flushes++
		if _, bad := m.extent(t); bad != (scsi.Sense{}) {
			m.check(t, bad)
			return
		}
		m.flush(t)
	case scsi.OpUnmap:
		m.doUnmap(t)
	case scsi.OpWriteSame16:
		m.doWriteSame(t)
	case scsi.OpPersistentReserveIn:
		m.reserveIn(t)
	case scsi.OpPersistentReserveOut:
		m.reserveOut(t)
	case scsi.OpTestUnitReady:
		m.good(t)
	default:
		m.inform(t)
	}
}

func (m *Machine) noUnit(t *task) {
	switch t.cmd.Op {
	case scsi.OpInquiry, scsi.OpReportLUNs, scsi.OpRequestSense:
		m.inform(t)
	default:
		m.check(t, scsi.SenseNoLUN)
	}
}

// extent is the command's range in bytes; bad says why it is none.
func (m *Machine) extent(t *task) (e struct{ off, n uint64 }, bad scsi.Sense) {
	d := t.sess.portal.device(t.unit)
	bs := uint64(d.BlockSize)
	blocks := d.Size / bs
	if t.cmd.LBA > blocks || uint64(t.cmd.Blocks) > blocks-t.cmd.LBA {
		return e, scsi.SenseOutOfRange
	}
	e.off, e.n = t.cmd.LBA*bs, uint64(t.cmd.Blocks)*bs
	return e, bad
}

func (m *Machine) doRead(t *task) {
	e, bad := m.extent(t)
	if bad == (scsi.Sense{}) && e.n > maxTransfer {
		bad = scsi.SenseInvalidCDB
	}
	if bad != (scsi.Sense{}) {
		m.check(t, bad)
		return
	}
	m.stats.Reads++
	m.stats.BytesRead += e.n
	if m.silent(t) {
		return
	}
	c, n := t.conn, m.sendable(t, e.n)
	if v, ok := t.unit.Store.(viewer); ok && n > copyMax && !c.layout.DataDigest {
		mem := v.view(e.off, uint64(n))
		m.end(t)
		c.dataIn(t, n, e.n, func(off, k int) { c.out.refer(c.layout, mem[off:off+k]) })
		m.free(t)
		return
	}
	m.copyRead(t, n, e.off, e.n)
}

// copyRead reads into the output; a store's error takes the output back.
func (m *Machine) copyRead(t *task, n int, at, actual uint64) {
	c := t.conn
	buf, total := c.out.mark()
	statSN := c.statSN
	t.sess.maxCmdSN++ // as end will
	var err error
	c.dataIn(t, n, actual, func(off, k int) {
		b := c.out.room(k)
		if err == nil {
			err = t.unit.Store.ReadAt(b, at+uint64(off))
		}
		c.out.trailer(c.layout, k, b)
	})
	t.sess.maxCmdSN--
	if err != nil {
		c.out.rollback(buf, total)
		c.statSN = statSN
		m.check(t, senseReadError)
		return
	}
	m.end(t)
	m.free(t)
}

// storeSense is the sense for a store that refused to write.
func storeSense(err error) scsi.Sense {
	if errors.Is(err, ErrNoSpace) {
		return senseNoSpace
	}
	return senseWriteError
}

func (m *Machine) doWrite(t *task) {
	e, bad := m.extent(t)
	switch {
	case bad != (scsi.Sense{}):
	case t.unit.ReadOnly:
		bad = senseProtected
	default:
		// An EDTL smaller than the CDB's length: only the whole blocks that came.
		bs := uint64(t.sess.portal.device(t.unit).BlockSize)
		n := min(e.n, uint64(len(t.data)), uint64(t.got)) / bs * bs
		m.stats.Writes++
		m.stats.BytesWritten += n
		if t.conn == nil {
			m.stats.LateWrites++
		}
		if err := t.unit.Store.WriteAt(t.data[:n], e.off); err != nil {
			bad = storeSense(err)
		}
	}
	m.written(t, bad)
}

// written ends a command that wrote: durable first, if that was asked.
func (m *Machine) written(t *task, bad scsi.Sense) {
	switch {
	case bad != (scsi.Sense{}):
		m.check(t, bad)
	case t.cmd.Flags&scsi.FUA != 0 || t.unit.WriteThrough:
		m.flush(t)
	default:
		m.good(t)
	}
}

// flush makes the store durable, beside the machine if it takes long, and
// answers. A task that is ended meanwhile gets no answer.
func (m *Machine) flush(t *task) {
	st := t.unit.Store
	done := func(err error) {
		t.running = false
		switch {
		case t.dead:
			m.free(t)
		case err != nil:
			m.check(t, senseWriteError)
		default:
			m.good(t)
		}
	}
	if _, memory := st.(viewer); memory || m.Run == nil {
		done(st.Flush())
		return
	}
	m.unbuffer(t) // what was to write is written
	t.data = nil
	if t.conn != nil {
		t.conn.list(t)
	}
	t.running = true
	m.Run(st.Flush, done)
}

func (m *Machine) doUnmap(t *task) {
	u := t.unit
	switch {
	case u.Thick:
		m.check(t, scsi.SenseInvalidOpcode)
		return
	case u.ReadOnly:
		m.check(t, senseProtected)
		return
	}
	list, err := scsi.ParseUnmap(nil, t.data[:min(uint32(len(t.data)), t.need)])
	if err != nil || len(list) > maxUnmapExtents {
		m.check(t, scsi.SenseParamLength)
		return
	}
	d := t.sess.portal.device(u)
	bs := uint64(d.BlockSize)
	total := uint64(0)
	for _, e := range list {
		if total += uint64(e.Blocks) * bs; e.LBA > d.Size/bs || uint64(e.Blocks) > d.Size/bs-e.LBA {
			m.check(t, scsi.SenseOutOfRange)
			return
		}
	}
	if total > maxUnmapBlocks*bs {
		m.check(t, scsi.SenseInvalidParam)
		return
	}
	for _, e := range list {
		if err := u.Store.Zero(e.LBA*bs, uint64(e.Blocks)*bs); err != nil {
			m.check(t, storeSense(err))
			return
		}
	}
	m.good(t)
}

func (m *Machine) doWriteSame(t *task) {
	e, bad := m.extent(t)
	bs := int(t.sess.portal.device(t.unit).BlockSize)
	ndob := t.cmd.Flags&scsi.NDOB != 0
	switch {
	case bad != (scsi.Sense{}):
	case e.n == 0 || e.n > maxZero || t.cmd.Flags&scsi.Unmap != 0 && t.unit.Thick:
		bad = scsi.SenseInvalidCDB
	case t.unit.ReadOnly:
		bad = senseProtected
	case !ndob && int(t.got) < bs:
		bad = scsi.SenseParamLength
	case ndob || allZero(t.data[:bs]):
		if err := t.unit.Store.Zero(e.off, e.n); err != nil {
			bad = storeSense(err)
		}
	default:
		bad = fill(t.unit.Store, t.data[:bs], e.off, e.n)
	}
	m.written(t, bad)
}

// fill writes one block over and over.
func fill(st Store, block []byte, off, n uint64) scsi.Sense {
	chunk := make([]byte, 0, ramStripe)
	for len(chunk) < cap(chunk) && uint64(len(chunk)) < n {
		chunk = append(chunk, block...)
	}
	for end := off + n; off < end; off += uint64(len(chunk)) {
		if err := st.WriteAt(chunk[:min(uint64(len(chunk)), end-off)], off); err != nil {
			return storeSense(err)
		}
	}
	return scsi.Sense{}
}

func allZero(b []byte) bool {
	for _, v := range b {
		if v != 0 {
			return false
		}
	}
	return true
}
