package blk

import "sync/atomic"

// PathStatus is the class of one command's outcome on one path: it decides
// whether, where and when the request goes on.
type PathStatus uint8

// The classes, from facts of SPC-4/SBC-3 (sense), SAM-5 (status) and NVMe Base.
const (
	Good PathStatus = iota
	// TargetError is definite: the same on every path. Goes up at once.
	TargetError
	// PathLost: the path went away under the command. If Sent, a write-class
	// command is in doubt (I3).
	PathLost
	// Busy: BUSY or TASK SET FULL. Retried after back-off with a smaller window;
	// the path stays.
	Busy
	// Retry: unit attention, aborted command. Retried on the same path, bounded.
	Retry
	// RetryLater: becoming ready, transitioning. Retried after a delay, other
	// path meanwhile.
	RetryLater
	// WrongState: refused by ALUA or ANA state. A definite answer: the group is
	// demoted, the path kept, nothing in doubt.
	WrongState
	// OtherPathOnce: hardware error. Tried once on another path, then goes up;
	// the path stays.
	OtherPathOnce
	// LUNGone: the logical unit is not there. The path is quarantined until it
	// has been identified again (I1).
	LUNGone
	// Aborted: ended by our own abort, acknowledged by the target. Definite:
	// not in doubt.
	Aborted
)

var pathStatusNames = [...]string{"good", "target error", "path lost", "busy", "retry",
	"retry later", "wrong access state", "hardware error", "lun gone", "aborted"}

// String names the class as logs print it.
func (s PathStatus) String() string {
	if int(s) < len(pathStatusNames) {
		return pathStatusNames[s]
	}
	return "unknown"
}

// Evidence is what an answer says about the device beyond the command itself.
// A set of bits.
type Evidence uint16

const (
	// IdentityChanged: REPORTED LUNS DATA HAS CHANGED, INQUIRY DATA HAS CHANGED,
	// LUN not supported, namespace changed: identify again before the next byte (I1).
	IdentityChanged Evidence = 1 << iota
	// CapacityChanged: re-read the size.
	CapacityChanged
	// AccessChanged: re-read ALUA / ANA.
	AccessChanged
	// ReservationChanged: reservations preempted, released or registrations gone.
	ReservationChanged
	// CacheLost: POWER ON OCCURRED (29h/01): a volatile cache may be gone (I4).
	CacheLost
	// OutOfSpace: the thin pool behind the device is full.
	OutOfSpace
	// SpaceLow: a thin-provisioning soft threshold was reached.
	SpaceLow
	// Fenced: reservation conflict.
	Fenced
)

// Verdict is the full reading of one answer of a target.
type Verdict struct {
	Class    PathStatus
	Status   Status // for the client when the class is TargetError or retries end
	Evidence Evidence
	// After is how long the target wants to be left alone before a retry, in steps
	// of 100 ms; 0: it does not say.
	After uint16
}

// Command is one part of a request, given to one path.
//
// Ownership: the datapath fills the first block and gives it to Queue.Submit;
// the transport owns it until Sink.Complete, or until it is handed back in
// Sink.Lost, exactly once.
type Command struct {
	Op    Op
	Flags Flags
	// Off and Len are bytes, multiples of the path's block size.
	Off uint64
	Len uint32
	// Buf is the payload (Write) or destination (Read), Len bytes.
	Buf []byte
	// Vec is the payload in pieces, together Len bytes, instead of Buf. Only for
	// transports that say so (datapath.Facts).
	Vec [][]byte
	// Lane and Slot find the request this is a part of.
	Lane, Slot uint32

	// Verdict is the outcome, set by the transport.
	Verdict Verdict
	// Sent says that a byte of the command may have reached the wire. Set by
	// the transport; only meaningful when Verdict.Class is PathLost.
	Sent bool

	// Next links commands in queues; it belongs to whoever holds the command.
	Next *Command

	// What follows is private to the transport that holds the command.

	Tag   uint32        // transport's tag
	Seq   uint64        // order of sending on its path
	Moved uint32        // payload bytes received or asked for so far
	Tick  uint32        // coarse clock of its submission
	Tx    atomic.Uint32 // see the transport: payload still referenced by the sender
}

// Piece is the payload from byte off to the end of the piece it lies in.
func (c *Command) Piece(off uint32) []byte {
	if c.Vec == nil {
		return c.Buf[off:c.Len]
	}
	for _, v := range c.Vec {
		if off < uint32(len(v)) {
			return v[off:]
		}
		off -= uint32(len(v))
	}
	return nil
}

// LaneBit is the command's lane as BatchEnd wants it. Read it before Complete:
// then the command may be in use again.
func (c *Command) LaneBit() uint64 { return 1 << (c.Lane & 63) }

// NextPtr makes Command a member of an mpsc.Queue.
func (c *Command) NextPtr() **Command { return &c.Next }

// Sink receives what happens to the commands and the logical unit of one
// path. Calls come from the path's reader, or from the goroutine that retires
// the path; they must not block.
type Sink interface {
	// Complete returns a command with its Verdict set. A path with several
	// queues may have several readers.
	Complete(c *Command)
	// BatchEnd is called by a reader once after one or more of its Complete calls.
	// lanes has the LaneBit of each command that was in them.
	BatchEnd(lanes uint64)
	// Evidence reports unit attentions and events that came with no command of
	// this sink, or with one (then before its Complete).
	Evidence(e Evidence)
	// Lost is called exactly once when the path is gone, after its sender and
	// reader have left their system calls: no buffer of these commands will be
	// touched again. first is linked by Next in order of submission; commands
	// that never reached the wire have Sent false. cause says why.
	Lost(first *Command, cause error)
}

// Limits is what one path, or the whole device, can do. Zero means "no limit
// known" for the Max fields unless said otherwise.
type Limits struct {
	BlockSize     uint32 // bytes: 512 or 4096
	PhysicalBlock uint32 // bytes, >= BlockSize
	OptimalIO     uint32 // bytes, 0 = not reported
	Size          uint64 // bytes
	MaxTransfer   uint32 // bytes of one read or write
	MaxUnmap      uint64 // bytes of one trim; 0 = trim is not supported
	MaxZero       uint64 // bytes of one write-zeroes; 0 = not supported, zeroes are written
	UnmapGranule  uint32 // bytes
	ZeroUnmaps    bool   // write-zeroes may unmap and still reads as zeroes (LBPRZ)
	WriteCache    bool   // the device has a volatile cache: flush matters
	FUA           bool   // FUA is honoured by the device
	ReadOnly      bool
}
