package iscsi

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/poll"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
)

// The sender flag.
const (
	senderBusy   = 1 << iota // somebody sends, or the writer will
	senderClosed             // the retirer has it, or gets it next
)

// Session is one logged-in iSCSI session with one connection. Its goroutines
// are a reader, a writer that sleeps unless the socket was full, and a ticker;
// they end with it.
type Session struct {
	cfg  Config
	info Info
	sock *poll.Socket
	m    *machine
	base time.Time

	// sender is the sender flag. Changed by CAS from any goroutine: its holder
	// owns the transmitter's private part and the sending side of the socket.
	sender atomic.Uint32
	_      [60]byte

	wakeWriter chan bool // the flag goes to the writer; true: wait for room first
	senderGone chan struct{}
	quit       chan struct{} // closed when the flag is free for good
	calls      chan chan struct{}

	aborting atomic.Bool                  // the socket's Abort was called
	aborted  chan struct{}                // closed when it returned: who waits for it is durably blocked in a bubble
	cause    atomic.Pointer[SessionError] // first cause of the end
	done     chan struct{}

	mu   sync.Mutex // guards changes of the set of units, and dead
	dead bool
	byes atomic.Uint32 // logout of the target's wish: 1 once queued
}

// Info is what a login found out.
type Info struct {
	TSIH    uint16
	TPGT    uint16
	HasTPGT bool // the target told its portal group tag
	Params  Params
	Local   net.Addr
	Remote  net.Addr
}

// Info returns what the login found out.
func (s *Session) Info() Info { return s.info }

// Config is the configuration, defaults filled in.
func (s *Session) Config() Config { return s.cfg }

// SetPolling changes how the reader waits, at once.
func (s *Session) SetPolling(p poll.Polling) { s.sock.SetPolling(p) }

// Polling is how the reader waits.
func (s *Session) Polling() poll.Polling { return s.sock.Polling() }

// Done is closed when the session is over and every sink was told.
func (s *Session) Done() <-chan struct{} { return s.done }

// Err is why the session is ending or over; nil while it lives.
func (s *Session) Err() error {
	if e := s.cause.Load(); e != nil {
		return e
	}
	return nil
}

// Stats are system calls and oddities of the session so far.
func (s *Session) Stats() (recvs, sends, stale uint64) {
	return s.sock.Stats.Recvs.Load(), s.sock.Stats.Sends.Load(), s.m.tasks.stale.Load()
}

// Abort ends the session at once: the socket is reset, and every command goes
// to its sink's Lost. It does not wait for that: see Done.
func (s *Session) Abort(cause error) { s.fail(cause) }

// fail notes the first cause and aborts the socket. It returns when nobody is
// in a system call on it any more. Any goroutine.
func (s *Session) fail(cause error) {
	e := &SessionError{Portal: s.cfg.Portal, Target: s.cfg.TargetName, Err: cause}
	s.cause.CompareAndSwap(nil, e)
	s.abortSocket()
}

// abortSocket returns when somebody's Abort has returned.
func (s *Session) abortSocket() {
	if s.aborting.Swap(true) {
		<-s.aborted
		return
	}
	_ = s.sock.Abort()
	close(s.aborted)
}

// LUN opens a logical unit: at most depth of its commands are in the shared
// window. Close it when done. If the session is over already, sink.Lost is
// called before LUN returns.
func (s *Session) LUN(lun scsi.LUN, depth int, sink blk.Sink) *LUN {
	l := &LUN{s: s, lun: lun, sink: sink, cap: int32(min(max(depth, 1), s.cfg.QueueDepth))}
	s.mu.Lock()
	old := *s.m.luns.Load()
	dead := s.dead || len(old) >= maxLUNs
	if !dead {
		luns := append(append(make([]*LUN, 0, len(old)+1), old...), l)
		s.m.luns.Store(&luns)
	}
	s.mu.Unlock()
	if dead {
		l.closed.Store(true)
		err := s.Err()
		if err == nil {
			err = s.cfg.errorf("more than %d logical units on one session", maxLUNs)
		}
		sink.Lost(nil, err)
	} else if s.m.leaving.Load() != 0 {
		l.closed.Store(true)
	}
	return l
}

// Close gives the unit up: it waits until its commands are handed back, and no
// call to its sink comes after it returns. Not to be called by a sink.
func (l *LUN) Close() {
	l.closed.Store(true)
	t := time.NewTicker(time.Millisecond)
	defer t.Stop()
	for l.inflight.Load() != 0 {
		select {
		case <-l.s.done:
			return
		case <-t.C:
		}
	}
	l.s.remove(l)
	l.s.barrier()
}

func (s *Session) remove(l *LUN) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead {
		return
	}
	old := *s.m.luns.Load()
	luns := make([]*LUN, 0, len(old))
	for _, o := range old {
		if o != l {
			luns = append(luns, o)
		}
	}
	s.m.luns.Store(&luns)
}

// barrier returns when the reader is past what it was doing.
func (s *Session) barrier() {
	c := make(chan struct{})
	select {
	case s.calls <- c:
		s.wakeReader()
	case <-s.done:
		return
	}
	select {
	case <-c:
	case <-s.done:
	}
}

// wakeReader makes a parked reader look at what waits for it besides bytes.
func (s *Session) wakeReader() { _ = s.sock.Conn().SetReadDeadline(time.Unix(1, 0)) }

// kick sends what is queued unless somebody else does. It never blocks.
func (s *Session) kick() {
	for s.m.tx.ready() && s.cause.Load() == nil && s.sender.CompareAndSwap(0, senderBusy) {
		if !s.send() {
			return
		}
		s.release()
	}
}

// release gives the flag up. What was pushed meanwhile is for whoever looks
// next: callers check ready again after it.
func (s *Session) release() {
	if s.sender.And(^uint32(senderBusy))&senderClosed != 0 {
		close(s.senderGone)
	}
}

// send sends batches until nothing is left. False means that the writer has
// the flag now. The holder only.
func (s *Session) send() bool {
	t := &s.m.tx
	for range maxRounds {
		if s.cause.Load() != nil {
			return true // no payload is touched once the session ends
		}
		iov := t.gather()
		if len(iov) == 0 {
			s.afterSend()
			return true
		}
		n, err := s.sock.Send(iov)
		switch {
		case errors.Is(err, poll.ErrAgain):
			s.afterSend()
			s.wakeWriter <- true // has room: one token for one flag
			return false
		case err != nil:
			s.fail(fmt.Errorf("send: %w", err))
			return true
		}
		t.accept(n)
	}
	s.afterSend()
	s.wakeWriter <- false
	return false
}

// afterSend wakes the reader if a command waits for it to be completed.
func (s *Session) afterSend() {
	if s.m.tx.wake {
		s.m.tx.wake = false
		s.wakeReader()
	}
}

// write is the writer goroutine: it has the flag whenever it is woken.
func (s *Session) write() {
	for {
		var wait bool
		select {
		case wait = <-s.wakeWriter:
		case <-s.quit:
			return
		}
		if wait {
			if err := s.sock.WaitWritable(); err != nil {
				s.fail(fmt.Errorf("send: %w", err))
			}
		}
		if s.send() {
			s.release()
			s.kick()
		}
	}
}

// read is the reader goroutine. It ends the session when it ends.
func (s *Session) read() {
	r := &s.m.rx
	for held := 0; ; {
		n, err := s.receive(held)
		switch {
		case err == nil:
			s.m.received.Add(1)
			err = r.fed(n)
		case errors.Is(err, poll.ErrAgain):
			held, err = maxHeld, nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			err = s.woken()
		default:
			err = fmt.Errorf("receive: %w", err)
		}
		s.m.completeEarly()
		if held++; err == nil && held < maxHeld && r.peek > 0 && s.cause.Load() == nil {
			continue
		}
		held = 0
		r.endBatch()
		if err != nil {
			s.fail(err)
		}
		if s.cause.Load() != nil {
			break
		}
		s.kick()
	}
	s.retire()
}

// receive receives the next bytes. Large payloads come one at a time: their
// completions are held and end as one batch, as long as more is there at once.
func (s *Session) receive(held int) (int, error) {
	a, b := s.m.rx.space()
	if held > 0 && (len(s.m.rx.touched) > 0 || s.m.tx.ready()) {
		return s.sock.RecvNow(a, b)
	}
	return s.sock.Recv(a, b)
}

// woken handles what the reader was woken for.
func (s *Session) woken() error {
	if err := s.sock.Conn().SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	for {
		select {
		case c := <-s.calls:
			s.m.rx.endBatch()
			close(c)
			continue
		default:
		}
		break
	}
	if s.m.reviewWanted.Swap(false) {
		return s.m.rx.review(s.m.tick.Load(), ticks(s.cfg.CommandTimeout), ticks(abortTimeout))
	}
	return nil
}

func ticks(d time.Duration) uint32 { return uint32(max(d/tickInterval, 1)) }

// retire hands every command back, after the socket was aborted and the
// sender has let go (section 4 of the design, "Retiring a path"). Reader only.
func (s *Session) retire() {
	s.abortSocket() // waits for an abort under way
	if s.sender.Or(senderClosed)&senderBusy != 0 {
		<-s.senderGone
	}
	close(s.quit)
	// From here no system call and no goroutine but this touches a buffer.
	s.mu.Lock()
	s.dead = true
	luns := *s.m.luns.Load()
	s.mu.Unlock()
	s.m.completeEarly()
	s.m.rx.endBatch()
	s.m.lose(luns, s.Err())
	close(s.done)
}

// lose collects the commands of every unit and hands them to its sink.
func (m *machine) lose(luns []*LUN, cause error) {
	for _, l := range luns {
		l.closed.Store(true)
	}
	lost := collector{m: m}
	lost.sent()
	for _, l := range luns {
		// A Submit that came before closed either takes itself back or pushes.
		for {
			lost.unsent()
			n := lost.count(l)
			if int32(n) == l.inflight.Load() {
				break
			}
			runtime.Gosched()
		}
	}
	for _, l := range luns {
		first, n := lost.chain(l)
		l.inflight.Add(int32(-n))
		l.sink.Lost(first, cause)
	}
}
