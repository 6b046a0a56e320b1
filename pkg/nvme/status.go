package nvme

import "fmt"

// Status is the status field of a completion without its phase tag (Base
// 4.2.3): code 7:0, code type 10:8, retry delay 12:11, More 13, Do Not Retry 14.
type Status uint16

const (
	statusCode = 0x7FF
	more       = 1 << 13
	doNotRetry = 1 << 14
)

// Code is code and code type alone: compare it with the constants.
func (s Status) Code() Status { return s & statusCode }

// Type is the status code type (SCT).
func (s Status) Type() uint8 { return uint8(s >> 8 & 7) }

// OK reports success.
func (s Status) OK() bool { return s.Code() == Success }

// DoNotRetry reports DNR: no controller of the subsystem will answer otherwise.
func (s Status) DoNotRetry() bool { return s&doNotRetry != 0 }

// More reports that the error log says more.
func (s Status) More() bool { return s&more != 0 }

// RetryDelay is the index (CRD) of the delay before a retry: 0 none, 1..3 CRDT1..CRDT3.
func (s Status) RetryDelay() int { return int(s >> 11 & 3) }

// Final is the status with Do Not Retry set.
func (s Status) Final() Status { return s | doNotRetry }

// After is the status with the index of a retry delay set.
func (s Status) After(crd int) Status { return s&^(3<<11) | Status(crd&3)<<11 }

// Error makes every status but success usable as an error.
func (s Status) Error() string { return "nvme status " + s.String() }

// Err is nil for success, else the status.
func (s Status) Err() error {
	if s.OK() {
		return nil
	}
	return s
}

// Is makes errors.Is compare the codes.
func (s Status) Is(target error) bool {
	t, ok := target.(Status)
	return ok && t.Code() == s.Code()
}

// String gives the code in hex, its name, and the bits that are set.
func (s Status) String() string {
	n := names[s.Code()]
	if n == "" {
		n = "unknown"
	}
	out := fmt.Sprintf("%X/%02Xh %s", s.Type(), uint8(s), n)
	if d := s.RetryDelay(); d != 0 {
		out += fmt.Sprintf(", retry after CRDT%d", d)
	}
	if s.DoNotRetry() {
		out += ", do not retry"
	}
	return out
}

// Generic command status (SCT 0).
const (
	Success               Status = 0x000
	InvalidOpcode         Status = 0x001
	InvalidField          Status = 0x002
	CIDConflict           Status = 0x003
	DataTransferError     Status = 0x004
	PowerLoss             Status = 0x005
	InternalError         Status = 0x006
	AbortRequested        Status = 0x007
	SQDeleted             Status = 0x008
	FusedFailed           Status = 0x009
	FusedMissing          Status = 0x00A
	InvalidNamespace      Status = 0x00B
	SequenceError         Status = 0x00C
	SGLSegmentInvalid     Status = 0x00D
	SGLCountInvalid       Status = 0x00E
	SGLLengthInvalid      Status = 0x00F
	MetadataSGLInvalid    Status = 0x010
	SGLTypeInvalid        Status = 0x011
	CMBInvalid            Status = 0x012
	PRPOffsetInvalid      Status = 0x013
	AtomicUnitExceeded    Status = 0x014
	OperationDenied       Status = 0x015
	SGLOffsetInvalid      Status = 0x016
	HostIDFormat          Status = 0x018
	KeepAliveExpired      Status = 0x019
	KeepAliveInvalid      Status = 0x01A
	PreemptAborted        Status = 0x01B
	SanitizeFailed        Status = 0x01C
	SanitizeInProgress    Status = 0x01D
	SGLGranularityInvalid Status = 0x01E
	NotSupportedInCMB     Status = 0x01F
	WriteProtected        Status = 0x020
	CommandInterrupted    Status = 0x021
	TransientTransport    Status = 0x022
	Lockdown              Status = 0x023
	AdminMediaNotReady    Status = 0x024
	HostIDMissing         Status = 0x027
	LBAOutOfRange         Status = 0x080
	CapacityExceeded      Status = 0x081
	NamespaceNotReady     Status = 0x082
	ReservationConflict   Status = 0x083
	FormatInProgress      Status = 0x084
)

// Command specific status (SCT 1).
const (
	InvalidQueueID          Status = 0x101
	InvalidQueueSize        Status = 0x102
	AbortLimitExceeded      Status = 0x103
	AsyncEventLimitExceeded Status = 0x105
	InvalidLogPage          Status = 0x109
	NotSaveable             Status = 0x10D
	NotChangeable           Status = 0x10E
	NotNamespaceSpecific    Status = 0x10F
	ConflictingAttributes   Status = 0x180 // I/O
	InvalidProtection       Status = 0x181 // I/O
	ReadOnlyRange           Status = 0x182 // I/O
	CommandSizeExceeded     Status = 0x183 // I/O
	IncompatibleFormat      Status = 0x180 // Connect, Disconnect
	ControllerBusy          Status = 0x181 // Connect
	ConnectInvalid          Status = 0x182 // Connect: invalid parameters
	RestartDiscovery        Status = 0x183 // Connect
	InvalidHost             Status = 0x184 // Connect
	DiscoverRestart         Status = 0x190
	AuthRequired            Status = 0x191
)

// Media and data integrity errors (SCT 2).
const (
	WriteFault      Status = 0x280
	ReadError       Status = 0x281
	GuardCheck      Status = 0x282
	AppTagCheck     Status = 0x283
	RefTagCheck     Status = 0x284
	CompareFailure  Status = 0x285
	AccessDenied    Status = 0x286
	Unwritten       Status = 0x287
	StorageTagCheck Status = 0x288
)

// Path related status (SCT 3).
const (
	InternalPathError   Status = 0x300
	ANAPersistentLoss   Status = 0x301
	ANAInaccessible     Status = 0x302
	ANATransition       Status = 0x303
	ControllerPathError Status = 0x360
	HostPathError       Status = 0x370
	AbortedByHost       Status = 0x371
)

var names = map[Status]string{
	Success: "success", InvalidOpcode: "invalid opcode", InvalidField: "invalid field",
	CIDConflict: "command ID conflict", DataTransferError: "data transfer error",
	PowerLoss: "aborted by power loss", InternalError: "internal error",
	AbortRequested: "abort requested", SQDeleted: "aborted: queue deleted",
	FusedFailed: "fused command failed", FusedMissing: "fused command missing",
	InvalidNamespace: "invalid namespace or format", SequenceError: "command sequence error",
	SGLSegmentInvalid: "invalid SGL segment", SGLCountInvalid: "invalid number of SGLs",
	SGLLengthInvalid: "data SGL length invalid", MetadataSGLInvalid: "metadata SGL length invalid",
	SGLTypeInvalid: "SGL type invalid", CMBInvalid: "invalid use of controller memory",
	PRPOffsetInvalid: "PRP offset invalid", AtomicUnitExceeded: "atomic write unit exceeded",
	OperationDenied: "operation denied", SGLOffsetInvalid: "SGL offset invalid",
	HostIDFormat: "host identifier of the wrong format", KeepAliveExpired: "keep alive expired",
	KeepAliveInvalid: "keep alive timeout invalid", PreemptAborted: "aborted by preempt and abort",
	SanitizeFailed: "sanitize failed", SanitizeInProgress: "sanitize in progress",
	SGLGranularityInvalid: "SGL granularity invalid", NotSupportedInCMB: "not supported for a queue in controller memory",
	WriteProtected: "namespace is write protected", CommandInterrupted: "command interrupted",
	TransientTransport: "transient transport error", Lockdown: "prohibited by lockdown",
	AdminMediaNotReady: "media not ready", HostIDMissing: "host identifier not initialized",
	LBAOutOfRange: "LBA out of range", CapacityExceeded: "capacity exceeded",
	NamespaceNotReady: "namespace not ready", ReservationConflict: "reservation conflict",
	FormatInProgress: "format in progress",
	InvalidQueueID:   "invalid queue ID", InvalidQueueSize: "invalid queue size",
	AbortLimitExceeded: "abort limit exceeded", AsyncEventLimitExceeded: "async event limit exceeded",
	InvalidLogPage: "invalid log page", NotSaveable: "feature not saveable",
	NotChangeable: "feature not changeable", NotNamespaceSpecific: "feature not namespace specific",
	ConflictingAttributes: "incompatible format, or conflicting attributes",
	InvalidProtection:     "controller busy, or invalid protection information",
	ReadOnlyRange:         "invalid parameters, or write to a read-only range",
	CommandSizeExceeded:   "restart discovery, or command size exceeded",
	InvalidHost:           "host not allowed", DiscoverRestart: "restart discovery", AuthRequired: "authentication required",
	WriteFault: "write fault", ReadError: "unrecovered read error", GuardCheck: "guard check error",
	AppTagCheck: "application tag check error", RefTagCheck: "reference tag check error",
	CompareFailure: "compare failure", AccessDenied: "access denied",
	Unwritten: "deallocated or unwritten block", StorageTagCheck: "storage tag check error",
	InternalPathError: "internal path error", ANAPersistentLoss: "ANA persistent loss",
	ANAInaccessible: "ANA inaccessible", ANATransition: "ANA transition",
	ControllerPathError: "controller pathing error", HostPathError: "host pathing error",
	AbortedByHost: "aborted by the host",
}
