package iscsi

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
	"github.com/csi-mpath/csi-mpath/pkg/wire"
)

func (f *fake) open(cfg Config) (*Session, *LUN, *waiter) {
	f.t.Helper()
	s, w := f.dial(cfg), newWaiter()
	l := s.LUN(1<<48, 64, w)
	l.SetProfile(testProfile())
	return s, l, w
}

func TestASessionReadsAndWritesOverTCP(t *testing.T) {
	f := newFake(t)
	s, l, w := f.open(f.config())
	for _, size := range []int{512, 4096, 16 << 10, 64 << 10, 200 << 10, 1 << 20} {
		var writes, reads []*blk.Command
		for i := range 12 {
			wr := write(i*size, size)
			writes = append(writes, wr)
			reads = append(reads, read(i*size, size))
		}
		do(t, l, w, writes...)
		do(t, l, w, reads...)
		for i := range reads {
			equal(t, "the data", reads[i].Buf, writes[i].Buf)
		}
	}
	if i := s.Info(); i.TSIH != 1 || i.TPGT != 1 || i.Params.MaxSend != 65536 || i.Local == nil {
		t.Errorf("%+v", i)
	}
	if l.Latency() <= 0 || l.Inflight() != 0 {
		t.Errorf("latency %v, %d in flight", l.Latency(), l.Inflight())
	}
	l.Close()
	if l.Submit(read(0, 512), 0) {
		t.Error("a closed unit takes commands")
	}
	if err := s.Logout(testCtx(t)); err != nil {
		t.Error(err)
	}
	<-s.Done()
	if !errors.Is(s.Err(), ErrLoggedOut) || len(w.lost) != 0 {
		t.Errorf("%v, %d lost", s.Err(), len(w.lost))
	}
}

// The buffers of lost commands are used for something else at once: nothing
// of that may go out under an old header, although the sender was in the
// middle of a payload when the path was retired.
func TestABufferReusedAfterLostIsNeverSent(t *testing.T) {
	bad := bytes.Repeat([]byte{0xee}, 256<<10)
	for range 4 {
		f := newFake(t)
		f.keys = strings.Replace(usual, "FirstBurstLength=65536", "FirstBurstLength=262144", 1)
		stalled, goOn := make(chan net.Conn, 1), make(chan struct{})
		release := sync.OnceFunc(func() { close(goOn) })
		t.Cleanup(release)
		f.handle = func(c *fakeConn, _ *pdu.SCSICommand, _ []byte) bool {
			stalled <- c.Conn
			<-goOn
			c.ended = true // the test reads the rest
			return true
		}
		s, l, w := f.open(f.config())
		var cmds []*blk.Command
		for i := range 40 {
			cmds = append(cmds, &blk.Command{Op: blk.Write, Off: uint64(i) << 18, Len: 256 << 10, Buf: bytes.Repeat([]byte{1}, 256<<10)})
			l.Submit(cmds[i], 0)
		}
		l.Kick(0)
		conn := <-stalled
		poisoned := 0
		w.onLost = func() {
			for _, c := range cmds {
				copy(c.Buf, bad)
			}
			_ = conn.SetReadDeadline(time.Now().Add(2 * time.Second))
			buf := make([]byte, 1<<20)
			for n, err := conn.Read(buf); err == nil; n, err = conn.Read(buf) {
				poisoned += bytes.Count(buf[:n], bad[:64])
			}
		}
		s.Abort(errTest)
		<-s.Done()
		if lost := <-w.lost; len(lost) != len(cmds) || !lost[0].Sent {
			t.Fatalf("%d lost", len(lost))
		}
		if poisoned > 0 {
			t.Fatal("a reused buffer was sent")
		}
		release()
	}
}

// tally is a sink that counts how often each command is out; one that is not
// counted yet may come back first. It takes any number of completions.
type tally struct {
	mu     sync.Mutex
	out    map[*blk.Command]int
	losses int
}

func newTally() *tally { return &tally{out: map[*blk.Command]int{}} }

func (w *tally) add(c *blk.Command, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.out[c] += n
}

func (w *tally) Complete(c *blk.Command) { w.add(c, -1) }
func (w *tally) BatchEnd(uint64)         {}
func (w *tally) Evidence(blk.Evidence)   {}
func (w *tally) Lost(first *blk.Command, _ error) {
	for c := first; c != nil; c = c.Next {
		w.add(c, -1)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.losses++
}

func TestEveryCommandComesBackOnceWhenTheSessionDiesUnderLoad(t *testing.T) {
	for round := range 20 {
		f := newFake(t)
		s, l, _ := f.open(f.config())
		w := newTally()
		l.unit.Sink = w
		var wg sync.WaitGroup
		for lane := range 3 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for i := 0; ; i++ {
					c := write(i%64*512, 512)
					if i%3 == 0 {
						c = write(0, 64<<10)
					}
					if l.Submit(c, lane) {
						w.add(c, 1)
					} else if s.Err() != nil {
						return
					}
					l.Kick(0)
				}
			}()
		}
		<-time.After(time.Duration(round) * time.Millisecond)
		s.Abort(errTest)
		wg.Wait()
		<-s.Done()
		w.mu.Lock()
		for _, n := range w.out {
			if n != 0 {
				t.Fatalf("a command came back %d times", 1-n)
			}
		}
		if w.losses != 1 {
			t.Fatalf("Lost was called %d times", w.losses)
		}
		w.mu.Unlock()
	}
}

func TestAnEarlyResponseIsCompletedWhenTheSocketHasTakenThePayload(t *testing.T) {
	f := newFake(t)
	f.keys = strings.Replace(usual, "FirstBurstLength=65536", "FirstBurstLength=262144", 1)
	hold := make(chan struct{})
	f.other = func(c *fakeConn, op pdu.Opcode, header []byte) bool {
		if op == pdu.OpDataOut {
			return true // nobody wants it any more
		}
		if op != pdu.OpSCSICommand {
			return false
		}
		s := scsi.Sense{Key: scsi.KeyMedium, ASC: 0x0c}.AppendFixed([]byte{0, scsi.SenseLen})
		c.send(&pdu.SCSIResponse{ITT: pdu.ITT(header), Status: scsi.StatusCheckCondition, Window: c.window(true)}, s)
		<-hold // the socket fills up meanwhile
		return true
	}
	_, l, w := f.open(f.config())
	var cmds []*blk.Command
	for i := range 40 {
		cmds = append(cmds, write(i<<18, 256<<10))
	}
	for _, c := range cmds {
		if !l.Submit(c, 0) {
			t.Fatal("not taken")
		}
	}
	l.Kick(0)
	close(hold)
	for range cmds {
		select {
		case c := <-w.done:
			if c.Verdict.Class != blk.TargetError || c.Tx.Load() != wire.AnsweredBit && c.Tx.Load() != 0 {
				t.Fatalf("%v, %#x", c.Verdict, c.Tx.Load())
			}
		case <-w.lost:
			t.Fatal("lost")
		case <-time.After(patience):
			t.Fatal("never completed")
		}
	}
}

func TestABlackHoleLosesTheSession(t *testing.T) {
	f := newFake(t)
	f.other = func(_ *fakeConn, op pdu.Opcode, _ []byte) bool { return op != pdu.OpLoginRequest }
	cfg := f.config()
	cfg.PathTimeout = 500 * time.Millisecond
	s, l, w := f.open(cfg)
	c := read(0, 512)
	l.Submit(c, 0)
	l.Kick(0)
	lost := <-w.lost // when exactly: TestABlackHoleIsSeenWithinPathTimeoutAnd200ms
	if len(lost) != 1 || lost[0] != c || !c.Sent || !errors.Is(s.Err(), ErrPathTimeout) || !strings.Contains(s.Err().Error(), cfg.Portal) {
		t.Errorf("%d lost, %v", len(lost), s.Err())
	}
}

func TestPingsKeepASlowCommandAlive(t *testing.T) {
	f := newFake(t)
	pinged := make(chan struct{}, 16)
	f.handle = func(*fakeConn, *pdu.SCSICommand, []byte) bool { return true } // never answered
	f.other = func(_ *fakeConn, op pdu.Opcode, _ []byte) bool {
		if op == pdu.OpNOPOut {
			pinged <- struct{}{}
		}
		return false
	}
	cfg := f.config()
	cfg.PathTimeout = 4 * time.Second // an answer may take half of it
	s, l, _ := f.open(cfg)
	l.Submit(read(0, 512), 0)
	l.Kick(0)
	for range 3 {
		select {
		case <-pinged:
		case <-s.Done():
		}
	}
	if s.Err() != nil {
		t.Error(s.Err())
	}
}

func TestACommandNobodyAnswersIsAborted(t *testing.T) {
	f := newFake(t)
	f.handle = func(*fakeConn, *pdu.SCSICommand, []byte) bool { return true }
	cfg := f.config()
	cfg.CommandTimeout = 200 * time.Millisecond
	_, l, w := f.open(cfg)
	c := write(0, 4096)
	l.Submit(c, 0)
	l.Kick(0)
	select {
	case <-w.done:
	case <-w.lost:
	}
	if c.Verdict.Class != blk.Aborted {
		t.Errorf("%v", c.Verdict)
	}
}

func TestASessionTheTargetWantsToEndIsLoggedOut(t *testing.T) {
	f := newFake(t)
	f.handle = func(c *fakeConn, h *pdu.SCSICommand, _ []byte) bool {
		c.send(&pdu.Async{Event: pdu.AsyncLogout, Param3: 30, Window: c.window(true)}, nil)
		c.step(h)
		return true
	}
	s, l, w := f.open(f.config())
	c := read(0, 512)
	l.Submit(c, 0)
	l.Kick(0)
	if <-w.done; c.Verdict.Class != blk.Good {
		t.Errorf("%v", c.Verdict)
	}
	if lost := <-w.lost; len(lost) != 0 || !errors.Is(s.Err(), ErrLogoutRequested) {
		t.Errorf("%d lost, %v", len(lost), s.Err())
	}
}

func TestExecReturnsStatusSenseAndShortData(t *testing.T) {
	f := newFake(t)
	copy(f.mem, pattern(8192, 1))
	s := f.dial(f.config())
	in := make([]byte, 8192)
	r, err := s.Exec(testCtx(t), 1<<48, []byte{scsi.OpRead10, 0, 0, 0, 0, 0, 0, 0, 16, 0}, in, nil)
	if err != nil || r.N != 8192 || r.Status != 0 {
		t.Fatalf("%+v %v", r, err)
	}
	equal(t, "the data", in, pattern(8192, 1))
	out := pattern(200<<10, 3)
	r, err = s.Exec(testCtx(t), 1<<48, []byte{scsi.OpWrite10, 0, 0, 0, 0, 0, 0, 1, 144, 0}, nil, out)
	if err != nil || r.N != len(out) {
		t.Fatalf("%+v %v", r, err)
	}
	f.mu.Lock()
	equal(t, "the data written", f.mem[:len(out)], out)
	f.mu.Unlock()
	r, err = s.Exec(testCtx(t), 1<<48, []byte{0xc7, 0, 0, 0, 0, 0}, nil, nil)
	if sense, ok := scsi.ParseSense(r.Sense); err != nil || r.Status != scsi.StatusCheckCondition || !ok || sense != scsi.SenseInvalidOpcode {
		t.Fatalf("%+v %v", r, err)
	}
	f.mu.Lock()
	f.handle = func(c *fakeConn, h *pdu.SCSICommand, _ []byte) bool { c.data(h, f.mem[:100]); return true }
	f.mu.Unlock()
	if r, err = s.Exec(testCtx(t), 1<<48, []byte{scsi.OpInquiry, 0, 0, 0, 255, 0}, in[:255], nil); err != nil || r.N != 100 || r.Residual.Count != 155 {
		t.Fatalf("%+v %v", r, err)
	}
}

func TestExecGivesUpWithItsContextAndTheTagComesBack(t *testing.T) {
	f := newFake(t)
	got := make(chan func(), controlTags)
	f.handle = func(c *fakeConn, h *pdu.SCSICommand, _ []byte) bool {
		got <- func() {
			f.mu.Lock() // a ping may be answered just now
			defer f.mu.Unlock()
			c.data(h, bytes.Repeat([]byte{7}, 255))
		}
		return true
	}
	s := f.dial(f.config())
	for range 2 * controlTags {
		ctx, cancel := context.WithCancel(context.Background())
		in := make([]byte, 255)
		end := make(chan error, 1)
		go func() {
			_, err := s.Exec(ctx, 0, []byte{scsi.OpInquiry, 0, 0, 0, 255, 0}, in, nil)
			end <- err
		}()
		answer := <-got
		cancel()
		if err := <-end; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		answer()
		if in[0] != 0 {
			t.Fatal("the buffer was written after Exec returned")
		}
		s.link.Barrier(s.done)
	}
}

func TestTheEndOfASessionEndsItsCalls(t *testing.T) {
	f := newFake(t)
	f.handle = func(c *fakeConn, _ *pdu.SCSICommand, _ []byte) bool { c.ended = true; return true }
	s := f.dial(f.config())
	_, err := s.Exec(testCtx(t), 0, []byte{0, 0, 0, 0, 0, 0}, nil, nil)
	var se *SessionError
	if !errors.As(err, &se) || se.Portal != f.config().Portal {
		t.Fatal(err)
	}
	<-s.Done()
	w := newWaiter()
	if l := s.LUN(1<<48, 1, w); len(w.lost) != 1 || l.Submit(read(0, 512), 0) {
		t.Error("a unit on a dead session")
	}
	if err := s.Logout(testCtx(t)); err == nil {
		t.Error("logged out of a dead session")
	}
}
