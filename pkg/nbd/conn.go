package nbd

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/bufpool"
	"github.com/csi-mpath/csi-mpath/pkg/mpsc"
	"github.com/csi-mpath/csi-mpath/pkg/nbd/proto"
	"github.com/csi-mpath/csi-mpath/pkg/poll"
)

// Config sizes a connection; zero fields mean the defaults of limits.go.
type Config struct {
	// Depth is how many requests may be outstanding, 1..MaxDepth.
	Depth int
	// Arena is the payload memory, bytes: a power of two of at least MinArena.
	Arena int
}

func (c *Config) fill() {
	if c.Depth <= 0 {
		c.Depth = DefaultDepth
	}
	c.Depth = min(c.Depth, MaxDepth)
	if c.Arena <= 0 {
		c.Arena = DefaultArena
	}
	c.Arena = max(c.Arena, MinArena)
}

// conn is one connection in the transmission phase, and the Completer of its
// requests.
//
// A slot goes round: free (the reader's list) → busy (reader, then lane) →
// done (Complete: the done queue) → sender → freed queue → free. Its buffer
// goes back to the arena just before it. So once all slots are back, nothing
// touches the arena, and it may be unmapped (I2).
type conn struct {
	sock       *poll.Socket
	export     Export
	lane       Lane
	structured bool
	arena      *bufpool.Arena
	slots      []*[slotChunk]slot // made as they are needed: see receiver.grow
	depth      int

	rx receiver // the reader's
	tx sender   // whoever holds sending

	// done holds answers not yet sent. Pushed by any goroutine in Complete,
	// drained by the holder of sending.
	done mpsc.Queue[blk.Request, *blk.Request]
	// sending is 1 while somebody sends. Taken by CAS, given up by Store; a
	// goroutine that reads a stale 1 leaves its answers to the holder, who looks
	// at done once more after giving up.
	sending atomic.Uint32
	_       [48]byte
	// wakeWriter hands sending, still 1, to the writer goroutine.
	wakeWriter chan struct{}

	// freed holds slots on their way back. Pushed by the holder of sending,
	// drained by the reader.
	freed mpsc.Queue[blk.Request, *blk.Request]
	// starved is set by the reader before it looks a last time and parks on
	// wakeReader; cleared by whoever gave something back and wakes it. A stale
	// false is harmless: the reader's last look comes after its Store, so it
	// sees what was given back before the flag was read.
	starved    atomic.Bool
	wakeReader chan struct{}

	// gone says that nothing can be sent any more. Set once, by reader or
	// sender; a stale false costs one failing send.
	gone atomic.Bool
	// draining asks the reader to stop at the next request boundary. Set by
	// Drain, followed by a read deadline that ends a Recv going on.
	draining atomic.Bool
	// aborted says that the server waits no longer. Set once, by abort.
	aborted atomic.Bool

	// requests counts headers read: written by the reader once per batch.
	requests atomic.Uint64
}

// slot is one outstanding request. busy is set by the reader when it hands
// the slot out and cleared by Complete: a second Complete is caught (I2).
type slot struct {
	req  blk.Request
	busy atomic.Bool
}

func (c *conn) slot(i uint32) *slot { return &c.slots[i/slotChunk][i%slotChunk] }

// errGone ends the reader when the sender found the connection broken.
var errGone = errors.New("nbd: connection is gone")

func newConn(nc net.Conn, e Export, lane Lane, structured bool, cfg Config) (*conn, error) {
	sock, err := poll.NewSocket(nc)
	if err != nil {
		return nil, err
	}
	arena, err := bufpool.New(cfg.Arena)
	if err != nil {
		return nil, fmt.Errorf("nbd: payload memory of a connection: %w", err)
	}
	if b, ok := nc.(interface{ SetWriteBuffer(int) error }); ok {
		_ = b.SetWriteBuffer(sendBuffer) // a wish
	}
	c := &conn{
		sock: sock, export: e, lane: lane, structured: structured, arena: arena,
		slots: make([]*[slotChunk]slot, (cfg.Depth+slotChunk-1)/slotChunk), depth: cfg.Depth,
		wakeWriter: make(chan struct{}, 1), wakeReader: make(chan struct{}, 1),
	}
	c.rx.init(c)
	return c, nil
}

// run serves the connection until it ends and everything is back. pre is what
// the handshake read too much. It returns nil for DISC, drain and abort, and
// ErrHungUp for a client that has left.
func (c *conn) run(pre []byte) error {
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		c.write(quit)
		close(ended)
	}()
	c.rx.w = copy(c.rx.buf, pre) // less than the smallest buffer
	err := c.receive()
	if err == nil {
		// DISC or drain: all outstanding requests are carried out (proto.md,
		// NBD_CMD_DISC), also when the client does not wait for the answers.
		c.waitFor(c.rx.allBack, c.aborted.Load)
	}
	c.gone.Store(true)
	_ = c.sock.Abort()
	c.lane.Close()
	c.rx.dropPartial()
	c.waitFor(c.rx.allBack, nil)
	close(quit)
	<-ended
	c.rx.elastic.Close()
	if cerr := c.arena.Close(); cerr != nil {
		return cerr
	}
	if err != nil && cleanEnd(err) == nil && !c.aborted.Load() {
		return ErrHungUp
	}
	return cleanEnd(err)
}

// cleanEnd drops the errors that only say that the client has left.
func cleanEnd(err error) error {
	for _, e := range []error{io.EOF, errGone, net.ErrClosed, unix.ECONNRESET, unix.EPIPE, unix.ETIMEDOUT} {
		if errors.Is(err, e) {
			return nil
		}
	}
	return err
}

// Complete takes an answered request back; Flush sends it.
func (c *conn) Complete(r *blk.Request) {
	if !c.slot(r.Slot).busy.CompareAndSwap(true, false) {
		panic("nbd: BUG: request completed twice (I2)")
	}
	c.done.Push(r)
}

// fail marks the connection as gone, from any goroutine and without blocking;
// the reader does the rest.
func (c *conn) fail() {
	if c.gone.Swap(true) {
		return
	}
	if nc, ok := c.sock.Conn().(interface {
		CloseRead() error
		CloseWrite() error
	}); ok {
		_, _ = nc.CloseRead(), nc.CloseWrite()
	}
	c.wake()
}

// wake lets a reader that waits for something to come back look again.
func (c *conn) wake() {
	select {
	case c.wakeReader <- struct{}{}:
	default:
	}
}

// waitFor parks the reader until cond holds. It gives up, and returns false,
// when stop (if there is one) says so; stop is asked at least once per
// hangupCheck.
func (c *conn) waitFor(cond, stop func() bool) bool {
	for !cond() {
		c.starved.Store(true)
		held := cond() // the last look, see starved
		if !held && (stop == nil || !stop()) {
			c.park(stop != nil)
			continue
		}
		c.starved.Store(false)
		return held
	}
	return true
}

func (c *conn) park(timed bool) {
	if !timed {
		<-c.wakeReader
		return
	}
	c.rx.timer.Reset(hangupCheck)
	select {
	case <-c.wakeReader:
	case <-c.rx.timer.C:
	}
	c.rx.timer.Stop()
}

// clientLeft ends the wait of a reader that could read on.
func (c *conn) clientLeft() bool { return c.gone.Load() || c.sock.HungUp() }

// drain asks the reader to stop at the next request boundary.
func (c *conn) drain() {
	c.draining.Store(true)
	_ = c.sock.Conn().SetReadDeadline(time.Unix(1, 0))
}

// abort ends the connection now, from any goroutine: requests not on a wire
// are cancelled.
func (c *conn) abort() {
	c.aborted.Store(true)
	c.fail()
	c.wake()
}

// interrupted reports that err is a drain's way of ending a Recv.
func interrupted(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }

// protocolError says where the client lost its place.
func protocolError(format string, a ...any) error {
	return fmt.Errorf("nbd: protocol error of the client, connection closed: "+format, a...)
}

// put writes the header of r's answer into b and returns its length, and
// whether r's data follows it.
func (c *conn) put(b []byte, r *blk.Request) (int, bool) {
	errno := errnoOf(r.Status)
	switch {
	case r.Op != blk.Read:
		return proto.PutSimple(b, r.Cookie, errno), false
	case !c.structured:
		return proto.PutSimple(b, r.Cookie, errno), errno == 0 && r.Len > 0
	case errno != 0:
		return proto.PutErrorChunk(b, r.Cookie, errno), false
	case r.Len == 0:
		return proto.PutChunk(b, proto.ReplyNone, r.Cookie, 0), false
	}
	return proto.PutOffsetData(b, r.Cookie, r.Off, r.Len), true
}
