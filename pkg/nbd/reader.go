package nbd

import (
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/bufpool"
	"github.com/csi-mpath/csi-mpath/pkg/nbd/proto"
)

// receiver is the reader goroutine's state; nobody else touches it.
type receiver struct {
	c       *conn
	elastic bufpool.Elastic
	// buf, elastic's: buf[r:w] is received and not yet decoded.
	buf  []byte
	r, w int

	// first..last is the batch for the lane.
	first, last *blk.Request
	answered    bool // the reader itself completed something since the last submit
	headers     uint64

	// cur is a write whose payload is being received: got bytes are there, or,
	// when it was refused, skip bytes are still to be dropped.
	cur  *blk.Request
	got  int
	skip uint64
	// large predicts a large write next: only a header is received ahead, so
	// that the payload goes straight into its buffer.
	large bool

	// free holds nfree slots, linked by Next. spare is a slot that waits for its
	// buffer of want bytes.
	free  *blk.Request
	nfree int
	made  int // slots there are by now
	spare *blk.Request
	want  int

	timer      *time.Timer
	canReserve func() bool // method values, made once: no allocation per wait
	allBack    func() bool
	clientLeft func() bool
}

func (x *receiver) init(c *conn) {
	x.c = c
	x.buf = x.elastic.Next(nil)
	x.timer = time.NewTimer(time.Hour)
	x.timer.Stop()
	x.canReserve, x.allBack, x.clientLeft = x.tryReserve, x.isAllBack, c.clientLeft
}

// receive reads and submits until the connection ends; nil means DISC or drain.
func (c *conn) receive() error {
	x := &c.rx
	for {
		disc, err := x.decode()
		x.submit()
		if disc || err != nil {
			return err
		}
		if c.draining.Load() && x.atBoundary() {
			return nil
		}
		if err := x.fill(); err != nil {
			return err
		}
	}
}

// atBoundary reports that no part of a request is received.
func (x *receiver) atBoundary() bool { return x.r == x.w && x.cur == nil }

// fill receives once: a pending payload straight into its buffer, and behind
// it as much as may be headers.
func (x *receiver) fill() error {
	x.buf = x.elastic.Next(x.buf[x.r:x.w]) // part of a header at most
	x.r, x.w = 0, x.w-x.r
	for {
		err := x.recv(x.ahead())
		if !interrupted(err) {
			return err
		}
		// A drain. In the middle of a request the rest of it is awaited.
		if err := x.c.sock.Conn().SetReadDeadline(time.Time{}); err != nil {
			return err
		}
		if x.atBoundary() {
			return nil
		}
	}
}

// ahead is how much of buf may be filled now: a draining connection receives
// no byte past the request it is in.
func (x *receiver) ahead() int {
	draining := x.c.draining.Load()
	switch {
	case x.skip > 0 && draining:
		return int(min(x.skip, uint64(len(x.buf))))
	case x.skip > 0:
		return len(x.buf)
	case x.cur != nil && draining:
		return 0
	case x.large || draining:
		return proto.RequestLen
	}
	return len(x.buf)
}

func (x *receiver) recv(ahead int) error {
	if x.c.gone.Load() {
		return errGone
	}
	if x.cur == nil || x.skip > 0 {
		n, err := x.c.sock.Recv(x.buf[x.w:ahead], nil)
		x.w += n
		x.elastic.Filled(x.w)
		return err
	}
	rest := x.cur.Buf[x.got:]
	n, err := x.c.sock.Recv(rest, x.buf[:ahead])
	k := min(n, len(rest))
	x.got += k
	x.w = n - k
	x.elastic.Filled(x.w)
	return err
}

// decode takes everything from buf that is there. It reports a DISC.
func (x *receiver) decode() (disc bool, err error) {
	info := x.c.export.Info()
	for {
		switch {
		case x.skip > 0:
			n := min(x.skip, uint64(x.w-x.r))
			x.r += int(n)
			if x.skip -= n; x.skip > 0 {
				return false, nil
			}
			x.answer(x.cur)
			x.cur = nil
		case x.cur != nil:
			n := copy(x.cur.Buf[x.got:], x.buf[x.r:x.w])
			x.r += n
			if x.got += n; x.got < len(x.cur.Buf) {
				return false, nil
			}
			x.queue(x.cur)
			x.cur = nil
		case x.w-x.r < proto.RequestLen:
			return false, nil
		default:
			var q proto.Request
			if !q.Parse(x.buf[x.r:]) {
				return false, protocolError("%v", proto.ErrMagic)
			}
			x.r += proto.RequestLen
			x.headers++
			if q.Cmd == proto.CmdDisc {
				return true, nil
			}
			if err := x.admit(&q, &info); err != nil {
				return false, err
			}
		}
	}
}

// admit reserves what the request needs, and queues or answers it; a write
// becomes cur until its payload is there, or dropped.
func (x *receiver) admit(q *proto.Request, info *Info) error {
	t := check(q, info, x.c.structured)
	write := q.Cmd == proto.CmdWrite && q.Len > 0
	x.large = write && q.Len >= largeWrite
	if write && t.idle() && q.Len > proto.MaxSkippedPayload {
		return protocolError("a write of %d bytes, over the maximum of %d", q.Len, proto.MaxPayload)
	}
	need := 0
	if !t.idle() && (t.Op == blk.Read || t.Op == blk.Write) {
		need = int(t.Len)
	}
	r, err := x.reserve(need)
	if err != nil {
		return err
	}
	r.Op, r.Flags, r.Status, r.Off, r.Len, r.Cookie = t.Op, t.Flags, t.Status, t.Off, t.Len, q.Cookie
	switch {
	case write && t.idle():
		x.cur, x.skip = r, uint64(q.Len)
	case write:
		x.cur, x.got = r, 0
	case t.idle():
		x.answer(r)
	default:
		x.queue(r)
	}
	return nil
}

func (x *receiver) queue(r *blk.Request) {
	r.Next = nil
	if x.first == nil {
		x.first = r
	} else {
		x.last.Next = r
	}
	x.last = r
}

// answer completes a request that the lane never sees.
func (x *receiver) answer(r *blk.Request) {
	x.c.Complete(r)
	x.answered = true
}

// submit gives the batch to the lane and sends the reader's own answers.
func (x *receiver) submit() {
	if x.headers > 0 {
		x.c.requests.Add(x.headers)
		x.headers = 0
	}
	first := x.first
	x.first, x.last = nil, nil
	if first != nil {
		x.c.lane.Submit(first)
	}
	if x.answered {
		x.answered = false
		x.c.Flush()
	}
}

// reserve takes a slot with a buffer of n bytes (0: none). When there is none,
// it submits what it holds and stops reading until something comes back:
// back-pressure is the socket.
func (x *receiver) reserve(n int) (*blk.Request, error) {
	x.want = n
	if !x.tryReserve() {
		x.submit()
		if !x.c.waitFor(x.canReserve, x.clientLeft) {
			return nil, errGone
		}
	}
	r := x.spare
	x.spare = nil
	x.c.slot(r.Slot).busy.Store(true)
	return r, nil
}

func (x *receiver) tryReserve() bool {
	if x.spare == nil {
		if x.free == nil {
			x.collect()
		}
		if x.free == nil && !x.grow() {
			return false
		}
		x.spare = x.free
		x.free = x.spare.Next
		x.nfree--
		x.spare.Buf = nil
	}
	if x.want > 0 {
		x.spare.Buf = x.c.arena.Alloc(x.want)
		return x.spare.Buf != nil
	}
	return true
}

// grow makes more slots, up to the connection's depth: a client that is idle,
// or asks for one thing at a time, needs few.
func (x *receiver) grow() bool {
	n := min(slotChunk, x.c.depth-x.made)
	if n <= 0 {
		return false
	}
	chunk := new([slotChunk]slot)
	x.c.slots[x.made/slotChunk] = chunk
	for i := n - 1; i >= 0; i-- {
		r := &chunk[i].req
		r.Slot, r.Owner, r.Next = uint32(x.made+i), x.c, x.free
		x.free = r
	}
	x.made, x.nfree = x.made+n, x.nfree+n
	return true
}

// collect takes back the slots that others freed.
func (x *receiver) collect() {
	for r := x.c.freed.Drain(); r != nil; {
		next := r.Next
		r.Next = x.free
		x.free = r
		x.nfree++
		r = next
	}
}

func (x *receiver) isAllBack() bool {
	if x.spare != nil {
		x.spare.Next, x.free, x.spare = x.free, x.spare, nil
		x.nfree++
	}
	x.collect()
	return x.nfree == x.made
}

// dropPartial gives back, unanswered, a write whose payload never came in full.
func (x *receiver) dropPartial() {
	if x.cur == nil {
		return
	}
	x.cur.Status = blk.Cancelled
	x.c.Complete(x.cur)
	x.cur, x.skip = nil, 0
	x.c.Flush()
}
