package nvme

import "github.com/csi-mpath/csi-mpath/pkg/blk"

// Classify says what the completion of a command of kind op means: for the
// command (class, client's status) and for the namespace (evidence). It never
// panics, allocates or fails.
//
// The table differs from Linux's nvme_decide_disposition where that fails up a
// path's own error because of DNR: "do not retry" speaks of the subsystem, and
// an ANA refusal says which controllers may answer otherwise (B-26).
func Classify(op blk.Op, s Status) blk.Verdict {
	if s.OK() {
		return blk.Verdict{Class: blk.Good}
	}
	var v blk.Verdict
	switch s.Type() {
	case 0:
		v = classifyGeneric(op, s.Code())
	case 1:
		v = classifySpecific(s.Code())
	case 2:
		v = classifyMedia(s.Code())
	case 3:
		return classifyPath(s.Code())
	default: // reserved, vendor specific
		v = answer(blk.OtherPathOnce)
	}
	if s.DoNotRetry() && !ofPath(s.Code()) && v.Class != blk.LUNGone && v.Class != blk.Aborted {
		v.Class = blk.TargetError
	}
	return v
}

// Classify is the package's Classify, with how long this controller wants to be
// left alone before a retry (CRD, CRDT1..CRDT3, Base 4.2.3).
func (c *Controller) Classify(op blk.Op, s Status) blk.Verdict {
	v := Classify(op, s)
	if i := s.RetryDelay(); i > 0 && !s.DoNotRetry() {
		v.After = c.RetryDelays[i-1]
	}
	return v
}

// ofPath: outside of SCT 3, these speak of one controller or connection too.
func ofPath(c Status) bool {
	return c == SQDeleted || c == KeepAliveExpired || c == TransientTransport || c == AuthRequired
}

func answer(c blk.PathStatus) blk.Verdict { return blk.Verdict{Class: c, Status: blk.IOError} }

func fail(st blk.Status, e blk.Evidence) blk.Verdict {
	return blk.Verdict{Class: blk.TargetError, Status: st, Evidence: e}
}

func classifyGeneric(op blk.Op, c Status) blk.Verdict {
	switch c {
	case InvalidOpcode:
		return fail(blk.Unsupported, 0)
	case InvalidField, FusedFailed, FusedMissing, SGLSegmentInvalid, SGLCountInvalid, SGLLengthInvalid,
		MetadataSGLInvalid, SGLTypeInvalid, CMBInvalid, PRPOffsetInvalid, AtomicUnitExceeded,
		SGLOffsetInvalid, HostIDFormat, KeepAliveInvalid, SGLGranularityInvalid, NotSupportedInCMB, HostIDMissing:
		return fail(blk.Invalid, 0)
	case CIDConflict, DataTransferError, TransientTransport:
		return answer(blk.Retry)
	case AbortRequested:
		return answer(blk.Aborted)
	case PowerLoss, SQDeleted, KeepAliveExpired, CommandInterrupted, AdminMediaNotReady,
		NamespaceNotReady, FormatInProgress:
		return answer(blk.RetryLater)
	case InvalidNamespace: // detached, or another one took its number
		return blk.Verdict{Class: blk.LUNGone, Status: blk.IOError, Evidence: blk.IdentityChanged}
	case OperationDenied, WriteProtected, Lockdown:
		return fail(blk.NotPermitted, 0)
	case PreemptAborted:
		// Perhaps another key of this host: only the retry shows whether it is shut out.
		return blk.Verdict{Class: blk.Retry, Status: blk.Conflict, Evidence: blk.ReservationChanged}
	case SanitizeFailed, SanitizeInProgress: // takes hours
		return fail(blk.IOError, 0)
	case LBAOutOfRange: // the namespace is smaller than we think
		if op.Mutates() {
			return fail(blk.NoSpace, blk.CapacityChanged)
		}
		return fail(blk.Invalid, blk.CapacityChanged)
	case CapacityExceeded:
		return fail(blk.NoSpace, blk.OutOfSpace)
	case ReservationConflict:
		return fail(blk.Conflict, blk.Fenced)
	}
	return answer(blk.OtherPathOnce) // internal error, sequence error, vendor specific, reserved
}

func classifySpecific(c Status) blk.Verdict {
	switch c {
	case ConflictingAttributes, CommandSizeExceeded:
		return fail(blk.Invalid, 0)
	case ReadOnlyRange:
		return fail(blk.NotPermitted, 0)
	case AuthRequired: // this connection must authenticate first
		return answer(blk.RetryLater)
	}
	return fail(blk.IOError, 0)
}

func classifyMedia(c Status) blk.Verdict {
	switch {
	case c == AccessDenied:
		return fail(blk.NotPermitted, 0)
	case c >= WriteFault && c <= StorageTagCheck:
		return fail(blk.IOError, 0)
	}
	return answer(blk.OtherPathOnce)
}

// classifyPath: all of SCT 3 are definite answers, so nothing is in doubt (I3).
func classifyPath(c Status) blk.Verdict {
	switch c {
	case ANAPersistentLoss, ANAInaccessible, ANATransition:
		return blk.Verdict{Class: blk.WrongState, Status: blk.IOError, Evidence: blk.AccessChanged}
	case AbortedByHost:
		return answer(blk.Aborted)
	}
	return answer(blk.RetryLater)
}
