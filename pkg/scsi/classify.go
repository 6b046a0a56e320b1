package scsi

import "github.com/csi-mpath/csi-mpath/pkg/blk"

// Classify says what a SCSI answer to a command of kind op means: for the
// command (class, client's status) and for the device (evidence). sense may
// have any length and content. It never panics, allocates or fails: an answer
// that makes no sense is retried like one without sense data.
//
// The table differs from Linux's scsi_error.c where that fails a healthy path
// for an error every path would give (medium errors), or a healthy volume for
// an error of one path (LUN not supported).
func Classify(op blk.Op, status byte, sense []byte) blk.Verdict {
	switch status {
	case StatusGood, StatusConditionMet:
		return blk.Verdict{Class: blk.Good}
	case StatusCheckCondition:
		s, ok := ParseSense(sense)
		if !ok {
			return retry(0)
		}
		return classifySense(op, s)
	case StatusBusy, StatusTaskSetFull:
		return blk.Verdict{Class: blk.Busy, Status: blk.IOError}
	case StatusReservationConflict:
		return blk.Verdict{Class: blk.TargetError, Status: blk.Conflict, Evidence: blk.Fenced}
	case StatusTaskAborted:
		// Another initiator's TMF ended it (SAM-5 5.3.1, TAS): definite, not executed further.
		return retry(0)
	case StatusACAActive:
		return blk.Verdict{Class: blk.RetryLater, Status: blk.IOError}
	}
	return elsewhere()
}

func retry(e blk.Evidence) blk.Verdict {
	return blk.Verdict{Class: blk.Retry, Status: blk.IOError, Evidence: e}
}

func elsewhere() blk.Verdict {
	return blk.Verdict{Class: blk.OtherPathOnce, Status: blk.IOError}
}

func fail(st blk.Status, e blk.Evidence) blk.Verdict {
	return blk.Verdict{Class: blk.TargetError, Status: st, Evidence: e}
}

func classifySense(op blk.Op, s Sense) blk.Verdict {
	if s.Deferred {
		return classifyDeferred(s)
	}
	switch s.Key {
	case KeyNoSense, KeyRecovered, KeyCompleted:
		return blk.Verdict{Class: blk.Good, Evidence: spaceLow(s)}
	case KeyNotReady:
		return classifyNotReady(s)
	case KeyMedium, KeyBlankCheck, KeyCopyAborted, KeyVolumeOverflow, KeyMiscompare:
		return fail(blk.IOError, 0)
	case KeyIllegalRequest:
		return classifyIllegal(op, s)
	case KeyUnitAttention:
		return retry(unitAttention(s))
	case KeyDataProtect:
		if s.ASC == 0x27 && s.ASCQ == 0x07 { // space allocation failed write protect
			return fail(blk.NoSpace, blk.OutOfSpace)
		}
		return fail(blk.NotPermitted, 0)
	case KeyAborted:
		if s.ASC == 0x10 { // protection information
			return fail(blk.IOError, 0)
		}
		return retry(0)
	}
	return elsewhere() // hardware error, vendor specific, reserved keys
}

// classifyDeferred: this command was not executed; an earlier, already
// answered one failed. If that was the write-back of a cache, acknowledged
// data is lost, and the next flush must say so (I4).
func classifyDeferred(s Sense) blk.Verdict {
	if s.Key == KeyMedium || s.Key == KeyHardware {
		return retry(blk.CacheLost)
	}
	return retry(0)
}

func classifyNotReady(s Sense) blk.Verdict {
	if s.ASC != 0x04 {
		return elsewhere()
	}
	switch s.ASCQ {
	case 0x0A: // asymmetric access state transition
		return blk.Verdict{Class: blk.RetryLater, Status: blk.IOError, Evidence: blk.AccessChanged}
	case 0x0B, 0x0C, 0x12: // target port standby, unavailable; offline
		return blk.Verdict{Class: blk.WrongState, Status: blk.IOError, Evidence: blk.AccessChanged}
	case 0x00, 0x01, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x11, 0x14, 0x1A, 0x1B, 0x1D:
		return blk.Verdict{Class: blk.RetryLater, Status: blk.IOError}
	case 0x24, 0x25: // depopulation: takes hours
		return fail(blk.IOError, 0)
	}
	return elsewhere() // needs START UNIT, manual intervention, ...: perhaps only here
}

func classifyIllegal(op blk.Op, s Sense) blk.Verdict {
	switch s.ASC {
	case 0x25: // logical unit not supported: unmapped, or another one took its number
		return blk.Verdict{Class: blk.LUNGone, Status: blk.IOError, Evidence: blk.IdentityChanged}
	case 0x20: // invalid opcode
		return fail(blk.Unsupported, 0)
	case 0x21: // LBA out of range: the device is smaller than we think
		if op.Mutates() {
			return fail(blk.NoSpace, blk.CapacityChanged)
		}
		return fail(blk.Invalid, blk.CapacityChanged)
	case 0x22, 0x24, 0x26:
		return fail(blk.Invalid, 0)
	case 0x27:
		return fail(blk.NotPermitted, 0)
	}
	return fail(blk.IOError, 0)
}

func spaceLow(s Sense) blk.Evidence {
	if s.ASC == 0x38 && s.ASCQ == 0x07 { // thin provisioning soft threshold reached
		return blk.SpaceLow
	}
	return 0
}

// unitAttention reads the evidence in a UNIT ATTENTION; the command itself is
// always retried.
func unitAttention(s Sense) blk.Evidence {
	switch s.ASC {
	case 0x28: // not ready to ready change: the medium may be another one
		return blk.IdentityChanged | blk.CapacityChanged
	case 0x29: // power on, reset, or bus device reset
		e := blk.ReservationChanged | blk.AccessChanged
		if s.ASCQ == 0x01 { // POWER ON OCCURRED: the only proof of a lost cache (I4)
			e |= blk.CacheLost
		}
		return e
	case 0x2A:
		return parametersChanged(s.ASCQ)
	case 0x3F:
		return conditionsChanged(s.ASCQ)
	}
	return spaceLow(s)
}

func parametersChanged(ascq byte) blk.Evidence {
	switch ascq {
	case 0x01, 0x06, 0x07: // mode parameters, ALUA state, implicit transition failed
		return blk.AccessChanged
	case 0x03, 0x04, 0x05: // reservations preempted, released, registrations preempted
		return blk.ReservationChanged
	case 0x09: // capacity data
		return blk.CapacityChanged
	}
	return 0
}

func conditionsChanged(ascq byte) blk.Evidence {
	switch ascq {
	// Operating definition, INQUIRY data, device identifier, volume set created,
	// deleted, deassigned, reassigned, REPORTED LUNS data.
	case 0x02, 0x03, 0x05, 0x0A, 0x0B, 0x0C, 0x0D, 0x0E:
		return blk.IdentityChanged
	}
	return 0
}
