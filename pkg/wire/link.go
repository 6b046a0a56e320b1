package wire

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/poll"
)

// The sender flag.
const (
	senderBusy   = 1 << iota // somebody sends, or the writer will
	senderClosed             // the retirer has it, or gets it next
)

// Owner is whose connection a Link is.
type Owner interface {
	// Fail notes why the link cannot go on, and stops it and what belongs to it.
	// It returns when that has happened. Any goroutine.
	Fail(cause error)
	// Woken is called by the reader after Wake. An error ends the link.
	Woken() error
	// Retired is called by the reader at its end: the socket is closed and the
	// sender flag free for good. No system call and no other goroutine touches a
	// buffer any more.
	Retired()
}

// Link is the shell around one Flow: its socket, and two goroutines, a reader,
// and a writer that sleeps unless the socket was full. They end with it.
type Link struct {
	Sock  *poll.Socket
	Flow  *Flow
	owner Owner

	// sender is the sender flag. Changed by CAS from any goroutine: its holder
	// owns the flow's sending part and the sending side of the socket.
	sender atomic.Uint32
	_      [60]byte

	wakeWriter chan bool // the flag goes to the writer; true: wait for room first
	senderGone chan struct{}
	quit       chan struct{} // closed when the flag is free for good
	calls      chan chan struct{}

	// ending is set once, before the socket is aborted: no payload is touched once
	// it is seen.
	ending   atomic.Bool
	aborting atomic.Bool   // the socket's Abort was called
	aborted  chan struct{} // closed when it returned: who waits for it is durably blocked in a bubble
}

// NewLink makes a link; Run starts it.
func NewLink(sock *poll.Socket, f *Flow, owner Owner) *Link {
	return &Link{Sock: sock, Flow: f, owner: owner, wakeWriter: make(chan bool, 1), senderGone: make(chan struct{}),
		quit: make(chan struct{}), calls: make(chan chan struct{}, maxCalls), aborted: make(chan struct{})}
}

// Run starts reader and writer.
func (l *Link) Run() {
	go l.read()
	go l.write()
}

// Quit is closed when the sender flag is free for good.
func (l *Link) Quit() <-chan struct{} { return l.quit }

// Stop aborts the socket. It returns when nobody is in a system call on it any
// more. Any goroutine; the owner's, which has noted the cause.
func (l *Link) Stop() {
	l.ending.Store(true)
	if l.aborting.Swap(true) {
		<-l.aborted
		return
	}
	_ = l.Sock.Abort()
	close(l.aborted)
}

// Kick sends what is queued unless somebody else does. It never blocks.
func (l *Link) Kick() {
	for l.Flow.Ready() && !l.ending.Load() && l.sender.CompareAndSwap(0, senderBusy) {
		if !l.send() {
			return
		}
		l.release()
	}
}

// release gives the flag up. What was pushed meanwhile is for whoever looks
// next: callers check Ready again after it.
func (l *Link) release() {
	if l.sender.And(^uint32(senderBusy))&senderClosed != 0 {
		close(l.senderGone)
	}
}

// send sends batches until nothing is left. False means that the writer has
// the flag now. The holder only.
func (l *Link) send() bool {
	f := l.Flow
	for range maxRounds {
		if l.ending.Load() {
			return true // no payload is touched once the link ends
		}
		iov := f.Gather()
		if len(iov) == 0 {
			l.afterSend()
			return true
		}
		n, err := l.Sock.Send(iov)
		switch {
		case errors.Is(err, poll.ErrAgain):
			l.afterSend()
			l.wakeWriter <- true // has room: one token for one flag
			return false
		case err != nil:
			l.owner.Fail(fmt.Errorf("send: %w", err))
			return true
		}
		f.Accept(n)
	}
	l.afterSend()
	l.wakeWriter <- false
	return false
}

// afterSend wakes the reader if a command waits for it to be completed.
func (l *Link) afterSend() {
	if l.Flow.WantsReader() {
		l.Wake()
	}
}

// write is the writer goroutine: it has the flag whenever it is woken.
func (l *Link) write() {
	for {
		var wait bool
		select {
		case wait = <-l.wakeWriter:
		case <-l.quit:
			return
		}
		if wait {
			if err := l.Sock.WaitWritable(); err != nil {
				l.owner.Fail(fmt.Errorf("send: %w", err))
			}
		}
		if l.send() {
			l.release()
			l.Kick()
		}
	}
}

// read is the reader goroutine. It ends the link when it ends.
func (l *Link) read() {
	f := l.Flow
	for held := 0; ; {
		n, err := l.receive(held)
		switch {
		case err == nil:
			f.received.Add(1)
			err = f.In.Fed(n)
		case errors.Is(err, poll.ErrAgain):
			held, err = maxHeld, nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			err = l.woken()
		default:
			err = fmt.Errorf("receive: %w", err)
		}
		f.CompleteEarly()
		if held++; err == nil && held < maxHeld && f.In.Bulky() && !l.ending.Load() {
			continue
		}
		held = 0
		f.EndBatch()
		if err != nil {
			l.owner.Fail(err)
		}
		if l.ending.Load() {
			break
		}
		l.Kick()
	}
	l.retire()
}

// receive receives the next bytes. Large payloads come one at a time: their
// completions are held and end as one batch, as long as more is there at once.
func (l *Link) receive(held int) (int, error) {
	a, b := l.Flow.In.Space()
	if held > 0 && (len(l.Flow.touched) > 0 || l.Flow.Ready()) {
		return l.Sock.RecvNow(a, b)
	}
	return l.Sock.Recv(a, b)
}

// Wake makes a parked reader look at what waits for it besides bytes.
func (l *Link) Wake() { _ = l.Sock.Conn().SetReadDeadline(time.Unix(1, 0)) }

// woken handles what the reader was woken for.
func (l *Link) woken() error {
	if err := l.Sock.Conn().SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	for {
		select {
		case c := <-l.calls:
			l.Flow.EndBatch()
			close(c)
			continue
		default:
		}
		break
	}
	return l.owner.Woken()
}

// Barrier returns when the reader is past what it was doing, or done is closed.
func (l *Link) Barrier(done <-chan struct{}) {
	c := make(chan struct{})
	select {
	case l.calls <- c:
		l.Wake()
	case <-done:
		return
	}
	select {
	case <-c:
	case <-done:
	}
}

// retire ends the reader, after the socket was aborted and the sender has let go
// (section "Retiring a path" of ARCHITECTURE.md). Reader only.
func (l *Link) retire() {
	l.Stop() // waits for an abort under way
	if l.sender.Or(senderClosed)&senderBusy != 0 {
		<-l.senderGone
	}
	close(l.quit)
	l.Flow.CompleteEarly()
	l.Flow.EndBatch()
	l.owner.Retired()
}
