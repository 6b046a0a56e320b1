package nbd_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/nbd"
	"github.com/csi-mpath/csi-mpath/pkg/nbd/nbdtest"
	"github.com/csi-mpath/csi-mpath/pkg/nbd/proto"
)

const ramSize = 80 << 20

func newRAM(t testing.TB) *nbdtest.RAM {
	t.Helper()
	m, err := nbdtest.NewRAM(ramSize, 512)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return m
}

// link is a client in the transmission phase of a server's connection.
type link struct {
	*nbdtest.Client
	server *nbd.Server
	ended  chan error // what ServeConn returned
}

func serve(t testing.TB, e nbd.Export, cfg nbd.Config) *link {
	t.Helper()
	near, far, err := nbdtest.Pair()
	if err != nil {
		t.Fatal(err)
	}
	l := &link{Client: &nbdtest.Client{Conn: near}, server: nbd.NewServer(nil, cfg, nil), ended: make(chan error, 1)}
	go func() { l.ended <- l.server.ServeConn(context.Background(), far, e) }()
	t.Cleanup(func() { _ = near.Close() })
	return l
}

// end closes the client and expects a clean end, with memory given back.
func (l *link) end(t testing.TB) {
	t.Helper()
	_ = l.Close()
	if err := <-l.ended; err != nil && !errors.Is(err, nbd.ErrHungUp) {
		t.Fatalf("connection ended with: %v", err)
	}
}

func TestAGoodbyeAndAHangUpAreToldApart(t *testing.T) {
	for _, goodbye := range []bool{true, false} {
		m := newRAM(t)
		l := serve(t, m, nbd.Config{})
		l.do(t, proto.CmdFlush, 0, 0, 0, nil)
		if goodbye {
			_, err := l.Write(nbdtest.Request(nil, proto.CmdDisc, 0, 0, 0, 0, nil))
			if err != nil {
				t.Fatal(err)
			}
		} else {
			_ = l.Close()
		}
		if err := <-l.ended; errors.Is(err, nbd.ErrHungUp) == goodbye {
			t.Errorf("goodbye %v: ended with %v", goodbye, err)
		}
	}
}

func (l *link) do(t testing.TB, cmd proto.Command, flags uint16, off uint64, n uint32, payload []byte) nbdtest.Answer {
	t.Helper()
	a, err := l.Do(cmd, flags, off, n, payload)
	if err != nil {
		t.Fatal(err)
	}
	if a.Cookie != off {
		t.Fatalf("answer to %d, want %d", a.Cookie, off)
	}
	return a
}

func (l *link) send(t testing.TB, b []byte) {
	t.Helper()
	if _, err := l.Write(b); err != nil {
		t.Fatal(err)
	}
}

func pattern(n int, seed byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i) ^ byte(i>>8) ^ byte(i>>16) ^ seed
	}
	return b
}

func TestWhatIsWrittenIsReadBackInEverySize(t *testing.T) {
	l := serve(t, newRAM(t), nbd.Config{})
	for i, n := range []int{512, 4096, 16 << 10, 64<<10 + 512, 1 << 20, proto.MaxPayload} {
		data, off := pattern(n, byte(i)), uint64(i*512)
		if a := l.do(t, proto.CmdWrite, 0, off, uint32(n), data); a.Errno != 0 {
			t.Fatalf("write of %d: errno %d", n, a.Errno)
		}
		if a := l.do(t, proto.CmdRead, 0, off, uint32(n), nil); a.Errno != 0 || !bytes.Equal(a.Data, data) {
			t.Fatalf("read of %d: errno %d, or other data", n, a.Errno)
		}
	}
	l.end(t)
}

func TestEveryCommandOfTheLaneIsServed(t *testing.T) {
	m := newRAM(t)
	l := serve(t, m, nbd.Config{})
	l.do(t, proto.CmdWrite, proto.CmdFlagFUA, 0, 4096, pattern(4096, 1))
	for _, cmd := range []proto.Command{proto.CmdFlush, proto.CmdCache, proto.CmdTrim, proto.CmdWriteZeroes} {
		n := uint32(512)
		if cmd == proto.CmdFlush {
			n = 0
		}
		if a := l.do(t, cmd, 0, 0, n, nil); a.Errno != 0 {
			t.Errorf("command %d: errno %d", cmd, a.Errno)
		}
	}
	if m.Flushes.Load() != 1 {
		t.Errorf("%d flushes reached the device", m.Flushes.Load())
	}
	l.end(t)
}

func TestPayloadOfARefusedWriteIsSkipped(t *testing.T) {
	l := serve(t, newRAM(t), nbd.Config{})
	for _, c := range []struct {
		flags uint16
		off   uint64
		n     int
		want  proto.Errno
	}{
		{1 << 7, 0, 4096, proto.EINVAL},
		{0, 100, 4096, proto.EINVAL},
		{0, ramSize, 300 << 10, proto.ENOSPC},
		{0, 0, 33 << 20, proto.EINVAL},
	} {
		// The payload looks like requests: read as such it would do harm.
		harm := nbdtest.Request(nil, proto.CmdDisc, 0, 0, 0, 0, nil)
		payload := bytes.Repeat(harm, c.n/len(harm)+1)[:c.n]
		if a := l.do(t, proto.CmdWrite, c.flags, c.off, uint32(c.n), payload); a.Errno != c.want {
			t.Errorf("write of %d at %d: errno %d, want %d", c.n, c.off, a.Errno, c.want)
		}
		if a := l.do(t, proto.CmdRead, 0, 0, 512, nil); a.Errno != 0 {
			t.Errorf("read after it: errno %d", a.Errno)
		}
	}
	l.end(t)
}

func TestAWriteOfAbsurdLengthEndsTheConnection(t *testing.T) {
	l := serve(t, newRAM(t), nbd.Config{})
	l.send(t, nbdtest.Request(nil, proto.CmdWrite, 0, 1, 0, 0xffffffff, nil))
	if err := <-l.ended; err == nil {
		t.Fatal("ended without an error")
	}
}

func TestAWrongMagicNumberEndsTheConnection(t *testing.T) {
	l := serve(t, newRAM(t), nbd.Config{})
	l.send(t, make([]byte, proto.RequestLen))
	if err := <-l.ended; err == nil {
		t.Fatal("ended without an error")
	}
}

func TestASizeThatGrewIsServedAtOnce(t *testing.T) {
	m := newRAM(t)
	i := m.Info()
	i.Size = 1 << 20
	m.Set(i)
	l := serve(t, m, nbd.Config{})
	if a := l.do(t, proto.CmdRead, 0, 1<<20, 512, nil); a.Errno != proto.EINVAL {
		t.Fatalf("beyond the end: errno %d", a.Errno)
	}
	i.Size = 2 << 20
	m.Set(i)
	if a := l.do(t, proto.CmdRead, 0, 1<<20, 512, nil); a.Errno != 0 {
		t.Fatalf("after growth: errno %d", a.Errno)
	}
	l.end(t)
}

// mixed is a stream of all kinds of requests, and the answers' errnos and
// lengths by cookie.
func mixed() (stream []byte, errnos map[uint64]proto.Errno, lens map[uint64]int) {
	errnos, lens = map[uint64]proto.Errno{}, map[uint64]int{}
	add := func(cmd proto.Command, off uint64, n uint32, payload []byte, want proto.Errno) {
		cookie := uint64(len(errnos) + 1)
		stream = nbdtest.Request(stream, cmd, 0, cookie, off, n, payload)
		errnos[cookie] = want
		if cmd == proto.CmdRead && want == 0 {
			lens[cookie] = int(n)
		}
	}
	add(proto.CmdWrite, 0, 512, pattern(512, 3), 0)
	add(proto.CmdRead, 0, 512, nil, 0)
	add(proto.CmdWrite, ramSize, 512, pattern(512, 4), proto.ENOSPC)
	add(proto.CmdWrite, 512, 1024, pattern(1024, 5), 0)
	add(99, 0, 0, nil, proto.EINVAL)
	add(proto.CmdRead, 512, 1024, nil, 0)
	add(proto.CmdFlush, 0, 0, nil, 0)
	return stream, errnos, lens
}

func TestAStreamCutAtAnyByteIsAnsweredTheSame(t *testing.T) {
	stream, errnos, lens := mixed()
	for cut := 0; cut <= len(stream); cut++ {
		m, err := nbdtest.NewRAM(ramSize, 512) // not until the end: there are thousands
		if err != nil {
			t.Fatal(err)
		}
		l := serve(t, m, nbd.Config{})
		go func() {
			_, _ = l.Write(stream[:cut])
			_, _ = l.Write(stream[cut:])
		}()
		for range errnos {
			a, err := l.ReadAnswer(func(c uint64) int { return lens[c] })
			if err != nil || a.Errno != errnos[a.Cookie] {
				t.Fatalf("cut at %d: request %d: errno %d, error %v", cut, a.Cookie, a.Errno, err)
			}
			if a.Cookie == 2 && !bytes.Equal(a.Data, pattern(512, 3)) || a.Cookie == 6 && !bytes.Equal(a.Data, pattern(1024, 5)) {
				t.Fatalf("cut at %d: request %d reads other data", cut, a.Cookie)
			}
		}
		l.end(t)
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAHangUpAtAnyByteIsClean(t *testing.T) {
	stream, _, _ := mixed()
	m := newRAM(t)
	for cut := 0; cut <= len(stream); cut++ {
		l := serve(t, m, nbd.Config{})
		l.send(t, stream[:cut])
		l.end(t)
	}
	if n := m.Lanes.Load(); n != 0 {
		t.Fatalf("%d lanes left open", n)
	}
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	m := newRAM(t)
	l := serve(t, m, nbd.Config{})
	var in []byte
	for i := range uint64(32) {
		in = nbdtest.Request(in, proto.CmdRead, 0, i, i*4096, 4096, nil)
		in = nbdtest.Request(in, proto.CmdWrite, 0, i, i*4096, 4096, pattern(4096, 1))
	}
	in = nbdtest.Request(in, proto.CmdWrite, 0, 9, 0, 256<<10, make([]byte, 256<<10))
	in = nbdtest.Request(in, proto.CmdRead, 0, 9, 0, 1<<20, nil)
	out := make([]byte, 66*proto.SimpleLen+32*4096+1<<20)
	round := func() {
		if _, err := l.Write(in); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(l, out); err != nil {
			t.Fatal(err)
		}
	}
	round()
	if n := testing.AllocsPerRun(100, round); n >= 1 {
		t.Fatalf("%v allocations per 66 requests", n)
	}
	l.end(t)
}

func BenchmarkReads4k(b *testing.B) {
	l := serve(b, newRAM(b), nbd.Config{})
	var in []byte
	for i := range uint64(32) {
		in = nbdtest.Request(in, proto.CmdRead, 0, i, i*4096, 4096, nil)
	}
	out := make([]byte, 32*(proto.SimpleLen+4096))
	b.ReportAllocs()
	for b.Loop() {
		_, err := l.Write(in)
		if _, rerr := io.ReadFull(l, out); err != nil || rerr != nil {
			b.Fatal(err, rerr)
		}
	}
	b.ReportMetric(float64(32*b.N)/b.Elapsed().Seconds(), "requests/s")
}
