package target

import (
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
	// senseSoftProtected: software write protect, by MODE SELECT.
	senseSoftProtected = scsi.Sense{Key: scsi.KeyDataProtect, ASC: 0x27, ASCQ: 0x02}
	senseStopped       = scsi.Sense{Key: scsi.KeyNotReady, ASC: 0x04, ASCQ: 0x02}
	senseMiscompare    = scsi.Sense{Key: scsi.KeyMiscompare, ASC: 0x1D}
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
	if t.unit.reservations.Held() && conflicts(&t.unit.reservations, t.sess.key, &t.cmd) {
		m.answer(t, scsi.StatusReservationConflict, nil)
		return
	}
	if t.unit.stopped && needsMedium(&t.cmd) {
		m.check(t, senseStopped)
		return
	}
	switch t.cmd.Op {
	case scsi.OpRead10, scsi.OpRead16, scsi.OpRead12, scsi.OpRead6:
		m.doRead(t)
	case scsi.OpWrite10, scsi.OpWrite16, scsi.OpWrite12, scsi.OpWrite6:
		m.doWrite(t)
	case scsi.OpSyncCache10, scsi.OpSyncCache16:
		m.doFlush(t)
	case scsi.OpUnmap:
		m.doUnmap(t)
	case scsi.OpWriteSame10, scsi.OpWriteSame16:
		m.doWriteSame(t)
	default:
		m.executeRare(t)
	}
}

func (m *Machine) executeRare(t *task) {
	switch t.cmd.Op {
	case scsi.OpVerify10, scsi.OpVerify12, scsi.OpVerify16:
		m.doVerify(t)
	case scsi.OpWriteVerify10, scsi.OpWriteVerify12, scsi.OpWriteVerify16:
		m.doWriteVerify(t)
	case scsi.OpCompareAndWrite:
		m.doCompareAndWrite(t)
	case scsi.OpOrWrite16:
		m.doOrWrite(t)
	case scsi.OpPrefetch10, scsi.OpPrefetch16:
		m.doPrefetch(t)
	case scsi.OpPersistentReserveIn:
		m.reserveIn(t)
	case scsi.OpPersistentReserveOut:
		m.reserveOut(t)
	case scsi.OpTestUnitReady:
		m.good(t)
	case scsi.OpStartStopUnit:
		m.startStop(t)
	case scsi.OpPreventAllow:
		m.good(t) // a fixed medium cannot be removed anyway
	case scsi.OpModeSelect6, scsi.OpModeSelect10:
		m.modeSelect(t)
	default:
		m.inform(t)
	}
}

// needsMedium reports whether a stopped unit refuses the command (SBC-3 4.20).
func needsMedium(c *scsi.Command) bool {
	switch c.Op {
	case scsi.OpTestUnitReady, scsi.OpReadCapacity10, scsi.OpVerify10, scsi.OpVerify12, scsi.OpVerify16,
		scsi.OpPrefetch10, scsi.OpPrefetch16:
		return true
	case scsi.OpServiceActionIn16:
		return true
	}
	return kindOf(c) != Others
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
