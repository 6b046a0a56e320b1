package nbd_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/nbd"
	"github.com/csi-mpath/csi-mpath/pkg/nbd/nbdtest"
	"github.com/csi-mpath/csi-mpath/pkg/nbd/proto"
)

// listen starts a server on a unix socket; served delivers what Serve returns.
func listen(t testing.TB, ctx context.Context, exports map[string]nbd.Export) (s *nbd.Server, socket string, served chan error) {
	t.Helper()
	dir, err := os.MkdirTemp("", "x") // short: socket paths have 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket = filepath.Join(dir, "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s, served = nbd.NewServer(exports, nbd.Config{}, nil), make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()
	return s, socket, served
}

func dial(t testing.TB, socket string, structured bool) *nbdtest.Client {
	t.Helper()
	c, err := nbdtest.Dial(socket, "ram", structured)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func bounded(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func drain(t testing.TB, s *nbd.Server, served chan error) {
	t.Helper()
	if err := s.Drain(bounded(t)); err != nil {
		t.Fatal(err)
	}
	if err := <-served; !errors.Is(err, nbd.ErrDraining) {
		t.Fatalf("Serve returned %v", err)
	}
}

func TestStructuredRepliesAreUsedForReadsWhenAgreed(t *testing.T) {
	m := newRAM(t)
	copy(m.Bytes(), pattern(4096, 1))
	s, socket, served := listen(t, bounded(t), map[string]nbd.Export{"ram": m})
	c := dial(t, socket, true)
	if c.Size != ramSize || c.Flags&proto.SendDF == 0 || c.Flags&proto.CanMultiConn == 0 {
		t.Errorf("size %d flags %#x", c.Size, c.Flags)
	}
	a, err := c.Do(proto.CmdRead, proto.CmdFlagDF, 0, 4096, nil)
	if err != nil || !a.Struct || a.Kind != proto.ReplyOffsetData || !bytes.Equal(a.Data, pattern(4096, 1)) {
		t.Errorf("read: chunk %#x, error %v", a.Kind, err)
	}
	a, err = c.Do(proto.CmdRead, 0, 1, 4096, nil)
	if err != nil || a.Kind != proto.ReplyError || a.Errno != proto.EINVAL {
		t.Errorf("unaligned read: chunk %#x errno %d, error %v", a.Kind, a.Errno, err)
	}
	a, err = c.Do(proto.CmdRead, 0, 0, 0, nil)
	if err != nil || !a.Struct || a.Kind != proto.ReplyNone {
		t.Errorf("empty read: chunk %#x, error %v", a.Kind, err)
	}
	a, err = c.Do(proto.CmdFlush, 0, 0, 0, nil)
	if err != nil || a.Errno != 0 {
		t.Errorf("flush: errno %d, error %v", a.Errno, err)
	}
	drain(t, s, served)
}

func TestRequestsRightBehindTheHandshakeAreServed(t *testing.T) {
	s, socket, served := listen(t, bounded(t), map[string]nbd.Export{"ram": newRAM(t)})
	nc, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = nc.Close() }()
	out := []byte{0, 0, 0, 3}
	out = append(proto.AppendOption(out, proto.OptExportName, 3), "ram"...)
	out = nbdtest.Request(out, proto.CmdWrite, 0, 5, 0, 512, make([]byte, 512))
	if _, err := nc.Write(out); err != nil {
		t.Fatal(err)
	}
	in := make([]byte, proto.GreetingLen+10+proto.SimpleLen)
	if _, err := io.ReadFull(nc, in); err != nil || in[len(in)-1] != 5 {
		t.Fatalf("%x, %v", in, err)
	}
	drain(t, s, served)
}

func TestDrainAnswersWhatIsInFlightAndCloses(t *testing.T) {
	h := nbdtest.NewHeld(newRAM(t))
	s, socket, served := listen(t, bounded(t), map[string]nbd.Export{"ram": h})
	c := dial(t, socket, false)
	if _, err := c.Write(nbdtest.Request(nil, proto.CmdRead, 0, 1, 0, 512, nil)); err != nil {
		t.Fatal(err)
	}
	r := <-h.Got
	done := make(chan struct{})
	go func() {
		defer close(done)
		drain(t, s, served)
	}()
	awaitRefusal(socket)
	h.Finish(r)
	if a, err := c.ReadAnswer(func(uint64) int { return 512 }); err != nil || a.Cookie != 1 || a.Errno != 0 {
		t.Fatalf("answer %d errno %d: %v", a.Cookie, a.Errno, err)
	}
	if _, err := c.Read(make([]byte, 1)); err != io.EOF {
		t.Fatalf("after the answer: %v", err)
	}
	<-done
}

// connect waits for room in the listener's queue where that is short.
func connect(socket string) (nc net.Conn, err error) {
	for nc, err = net.Dial("unix", socket); errors.Is(err, syscall.EAGAIN); nc, err = net.Dial("unix", socket) {
		runtime.Gosched()
	}
	return nc, err
}

// awaitRefusal returns when new clients are refused: the drain has begun.
func awaitRefusal(socket string) {
	for {
		nc, err := connect(socket)
		if err != nil {
			return
		}
		_ = nc.Close()
	}
}

func TestDrainCompletesARequestHalfReceived(t *testing.T) {
	m := newRAM(t)
	s, socket, served := listen(t, bounded(t), map[string]nbd.Export{"ram": m})
	c := dial(t, socket, false)
	b := nbdtest.Request(nil, proto.CmdWrite, 0, 1, 0, 64<<10, pattern(64<<10, 2))
	if _, err := c.Write(b[:1000]); err != nil {
		t.Fatal(err)
	}
	for s.Stats().Requests == 0 { // until the server is in the middle of it
		runtime.Gosched()
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		drain(t, s, served)
	}()
	awaitRefusal(socket)
	if _, err := c.Write(b[1000:]); err != nil {
		t.Fatal(err)
	}
	if a, err := c.ReadAnswer(nil); err != nil || a.Cookie != 1 || a.Errno != 0 {
		t.Fatalf("answer %d errno %d: %v", a.Cookie, a.Errno, err)
	}
	<-done
	if !bytes.Equal(m.Bytes()[:64<<10], pattern(64<<10, 2)) {
		t.Fatal("not written")
	}
}

func TestDrainIsNotHeldUpByClientsThatSayNothing(t *testing.T) {
	s, socket, served := listen(t, bounded(t), map[string]nbd.Export{"ram": newRAM(t)})
	for i := range 200 {
		nc, err := connect(socket)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = nc.Close() }()
		if i%2 == 0 {
			_, _ = nc.Write(append([]byte{0, 0, 0, 3}, "IHAVE"...))
		}
	}
	idle := dial(t, socket, false)
	drain(t, s, served)
	if _, err := idle.Read(make([]byte, 1)); err != io.EOF {
		t.Fatalf("an idle connection saw %v", err)
	}
}

func TestDrainThatCannotEndCutsOffAtItsDeadline(t *testing.T) {
	h := nbdtest.NewHeld(newRAM(t))
	s, socket, served := listen(t, bounded(t), map[string]nbd.Export{"ram": h})
	c := dial(t, socket, false)
	if _, err := c.Write(nbdtest.Request(nil, proto.CmdRead, 0, 1, 0, 512, nil)); err != nil {
		t.Fatal(err)
	}
	r := <-h.Got
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Drain(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("drain returned %v", err)
	}
	<-h.Closed // told to cancel
	h.Finish(r)
	<-served
	if _, err := c.Read(make([]byte, 1)); err != io.EOF {
		t.Fatalf("the client saw %v", err)
	}
}

func TestEndOfContextCutsConnections(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	_, socket, served := listen(t, ctx, map[string]nbd.Export{"ram": newRAM(t)})
	c := dial(t, socket, false)
	cancel()
	if err := <-served; !errors.Is(err, context.Canceled) {
		t.Fatalf("Serve returned %v", err)
	}
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Fatal("the connection is still there")
	}
}

func TestClientsSeeTheExportsOfTheMomentTheyCome(t *testing.T) {
	s, socket, served := listen(t, bounded(t), nil)
	if _, err := nbdtest.Dial(socket, "ram", false); err == nil {
		t.Fatal("an export that is not there was granted")
	}
	s.SetExports(map[string]nbd.Export{"ram": newRAM(t)})
	dial(t, socket, false)
	drain(t, s, served)
}

func TestSystemCallsPerRequestStayFew(t *testing.T) {
	s, socket, served := listen(t, bounded(t), map[string]nbd.Export{"ram": newRAM(t)})
	c := dial(t, socket, false)
	var in []byte
	for i := range uint64(32) {
		in = nbdtest.Request(in, proto.CmdRead, 0, i, i*4096, 4096, nil)
	}
	out := make([]byte, 32*(proto.SimpleLen+4096))
	for range 200 {
		if _, err := c.Write(in); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, out); err != nil {
			t.Fatal(err)
		}
	}
	st := s.Stats()
	if per := float64(st.Recvs+st.Sends) / float64(st.Requests); st.Requests != 6400 || per > 0.6 {
		t.Fatalf("%d requests, %.2f system calls for each", st.Requests, per)
	}
	drain(t, s, served)
}
