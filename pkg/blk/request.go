// Package blk is the vocabulary of one I/O: what a client asks for (Request),
// what one path is asked to do (Command), and how each can end.
//
// It imports nothing of ours, so every other package can speak it.
package blk

// Op is the kind of an I/O.
type Op uint8

// The operations of a block device.
const (
	Read Op = iota + 1
	Write
	Flush
	Trim        // the range may become unmapped; its content is undefined after
	WriteZeroes // the range reads as zeroes after
)

// String names the operation as logs and tables print it.
func (o Op) String() string {
	switch o {
	case Read:
		return "read"
	case Write:
		return "write"
	case Flush:
		return "flush"
	case Trim:
		return "trim"
	case WriteZeroes:
		return "write-zeroes"
	}
	return "invalid"
}

// Mutates reports whether the operation is write-class (I3): it changes what
// a later read of its range returns.
func (o Op) Mutates() bool { return o == Write || o == Trim || o == WriteZeroes }

// Flags modify an operation.
type Flags uint8

const (
	// FUA: the data is on stable storage before the answer (Write, WriteZeroes, Trim).
	FUA Flags = 1 << iota
	// NoUnmap: WriteZeroes must leave the range allocated.
	NoUnmap
)

// Request is one I/O of a client.
//
// Ownership: the client's connection allocates it and fills everything above
// Status; from Lane.Submit until Owner.Complete it belongs to the datapath;
// Complete gives it back. Nothing may touch it after Complete (I2).
type Request struct {
	Op    Op
	Flags Flags
	// Slot is the request's index within its lane: unique among the requests
	// the lane has outstanding, below the lane's depth.
	Slot uint32
	// Off and Len are bytes, both multiples of the device's block size.
	Off uint64
	Len uint32
	// Buf is the payload of a Write or the destination of a Read, exactly Len
	// bytes; nil otherwise. It stays valid and unmoved until Complete.
	Buf []byte
	// Cookie is the client's own name for the request (NBD handle).
	Cookie uint64
	// Owner is told the outcome.
	Owner Completer

	// Status is the outcome; set by the datapath before Complete.
	Status Status

	// Next links requests in queues and batches; it belongs to whoever holds
	// the request.
	Next *Request
}

// End returns the offset just past the request's range.
func (r *Request) End() uint64 { return r.Off + uint64(r.Len) }

// NextPtr makes Request a member of an mpsc.Queue.
func (r *Request) NextPtr() **Request { return &r.Next }

// Completer takes finished requests back. Both methods may be called from any
// goroutine, concurrently, and never block.
type Completer interface {
	// Complete takes r back with r.Status set. The answer may be held until Flush.
	Complete(r *Request)
	// Flush sends the answers held so far. Callers call it once per batch.
	Flush()
}

// Status is how a Request ended, as its client sees it.
type Status uint8

// The outcomes of a request.
const (
	OK           Status = iota
	IOError             // medium, hardware or path failure that retries did not cure
	Invalid             // the request is malformed: alignment, range, flags
	NoSpace             // the backing store is full, or a write past the end
	NotPermitted        // the device is read-only or write protected
	Unsupported         // the operation is not offered
	NoMemory            // larger than any buffer
	Overflow            // the request is larger than the maximum payload
	Shutdown            // the device is being torn down
	Conflict            // reservation conflict: this host was fenced off
	Cancelled           // its connection went away before it reached a wire
)

var statusNames = [...]string{"ok", "I/O error", "invalid", "no space", "not permitted",
	"unsupported", "no memory", "overflow", "shutdown", "reservation conflict", "cancelled"}

// String names the status as logs print it.
func (s Status) String() string {
	if int(s) < len(statusNames) {
		return statusNames[s]
	}
	return "unknown"
}
