// Package pdu encodes and decodes iSCSI PDUs (RFC 7143 section 11), their text
// keys (section 6.1) and digests (section 13.1), for both ends of a connection.
//
// Each PDU is a struct with Put, which writes its 48-byte header in place, and
// Decode, which reads one. Neither allocates. Data segments are not copied:
// the caller puts them behind the header, Layout says where.
package pdu

import "fmt"

// Opcode is the kind of a PDU (RFC 7143 11.2.1.2).
type Opcode uint8

// The opcodes of RFC 7143.
const (
	OpNOPOut         Opcode = 0x00
	OpSCSICommand    Opcode = 0x01
	OpTMFRequest     Opcode = 0x02
	OpLoginRequest   Opcode = 0x03
	OpTextRequest    Opcode = 0x04
	OpDataOut        Opcode = 0x05
	OpLogoutRequest  Opcode = 0x06
	OpSNACK          Opcode = 0x10
	OpNOPIn          Opcode = 0x20
	OpSCSIResponse   Opcode = 0x21
	OpTMFResponse    Opcode = 0x22
	OpLoginResponse  Opcode = 0x23
	OpTextResponse   Opcode = 0x24
	OpDataIn         Opcode = 0x25
	OpLogoutResponse Opcode = 0x26
	OpR2T            Opcode = 0x31
	OpAsync          Opcode = 0x32
	OpReject         Opcode = 0x3f
)

var opcodeNames = map[Opcode]string{
	OpNOPOut: "NOP-Out", OpSCSICommand: "SCSI Command", OpTMFRequest: "Task Management Request",
	OpLoginRequest: "Login Request", OpTextRequest: "Text Request", OpDataOut: "SCSI Data-Out",
	OpLogoutRequest: "Logout Request", OpSNACK: "SNACK Request", OpNOPIn: "NOP-In",
	OpSCSIResponse: "SCSI Response", OpTMFResponse: "Task Management Response",
	OpLoginResponse: "Login Response", OpTextResponse: "Text Response", OpDataIn: "SCSI Data-In",
	OpLogoutResponse: "Logout Response", OpR2T: "R2T", OpAsync: "Asynchronous Message", OpReject: "Reject",
}

// String names the opcode as RFC 7143 does.
func (o Opcode) String() string {
	if s, ok := opcodeNames[o]; ok {
		return s
	}
	return fmt.Sprintf("opcode 0x%02x", uint8(o))
}

// NoTag is the reserved value of Initiator and Target Task Tags.
const NoTag = 0xffffffff

// Bits of byte 1 that several PDUs share.
const (
	bitFinal    = 0x80 // F; T in login PDUs
	bitContinue = 0x40 // C in text and login PDUs
	bitImmed    = 0x40 // I, in byte 0
)

// Reject reasons (RFC 7143 11.17.1).
const (
	RejectDataDigest     = 0x02
	RejectSNACK          = 0x03
	RejectProtocol       = 0x04
	RejectNotSupported   = 0x05
	RejectTooManyImmed   = 0x06
	RejectTaskInProgress = 0x07
	RejectInvalidAck     = 0x08
	RejectInvalidField   = 0x09
	RejectLongOperation  = 0x0a
	RejectWaitForLogout  = 0x0c
)

// Task management functions (RFC 7143 11.5.1).
const (
	TMFAbortTask        = 1
	TMFAbortTaskSet     = 2
	TMFClearACA         = 3
	TMFClearTaskSet     = 4
	TMFLUNReset         = 5
	TMFTargetWarmReset  = 6
	TMFTargetColdReset  = 7
	TMFTaskReassign     = 8
	TMFQueryTask        = 9 // RFC 7144
	TMFQueryTaskSet     = 10
	TMFNexusReset       = 11
	TMFQueryAsyncEvents = 12
)

// Task management responses (RFC 7143 11.6.1).
const (
	TMFComplete       = 0
	TMFNoTask         = 1
	TMFNoLUN          = 2
	TMFStillAllegiant = 3
	TMFNoReassign     = 4
	TMFNotSupported   = 5
	TMFAuthFailed     = 6
	TMFRejected       = 255
)

// Asynchronous events (RFC 7143 11.9.1).
const (
	AsyncSCSI         = 0
	AsyncLogout       = 1
	AsyncDropConn     = 2
	AsyncDropAll      = 3
	AsyncRenegotiate  = 4
	AsyncTasksAborted = 5 // RFC 7143: all active tasks of the LUN ended
	AsyncVendor       = 255
)

// Logout reasons and responses (RFC 7143 11.14.1, 11.15.1).
const (
	LogoutSession  = 0
	LogoutConn     = 1
	LogoutRecovery = 2

	LogoutDone         = 0
	LogoutNoCID        = 1
	LogoutNoRecovery   = 2
	LogoutCleanupError = 3
)

// Login stages (RFC 7143 11.12.3).
const (
	StageSecurity    = 0
	StageOperational = 1
	StageFull        = 3
)

// Login status classes (RFC 7143 11.13.5).
const (
	LoginSuccess        = 0
	LoginRedirect       = 1
	LoginInitiatorError = 2
	LoginTargetError    = 3
)

// SCSI Response codes (RFC 7143 11.4.3).
const (
	ResponseCompleted     = 0
	ResponseTargetFailure = 1
)
