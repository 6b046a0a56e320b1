package nbd_test

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
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
	if err := <-l.ended; err != nil {
		t.Fatalf("connection ended with: %v", err)
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
		l := serve(t, newRAM(t), nbd.Config{})
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

func TestAnswersComeInAnyOrderExactlyOnce(t *testing.T) {
	h := nbdtest.NewHeld(newRAM(t))
	l := serve(t, h, nbd.Config{Depth: 32})
	var workers sync.WaitGroup
	for w := range 4 {
		workers.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(w)))
			var kept []*blk.Request
			for r := range h.Got {
				kept = append(kept, r)
				for len(kept) > 0 && (len(h.Got) == 0 || rng.IntN(2) == 0) {
					k := rng.IntN(len(kept))
					h.Finish(kept[k])
					kept = append(kept[:k], kept[k+1:]...)
				}
			}
		})
	}
	const total = 5000
	go func() {
		for i := range uint64(total) {
			b := nbdtest.Request(nil, proto.CmdRead, 0, i, i*512, 512, nil)
			if i%3 == 0 {
				b = nbdtest.Request(nil, proto.CmdWrite, 0, i, i*512, 512, pattern(512, byte(i)))
			}
			_, _ = l.Write(b)
		}
	}()
	seen := make([]bool, total)
	for range total {
		a, err := l.ReadAnswer(func(c uint64) int {
			if c%3 == 0 {
				return 0
			}
			return 512
		})
		if err != nil || a.Errno != 0 || seen[a.Cookie] {
			t.Fatalf("answer to %d: errno %d, twice %v, error %v", a.Cookie, a.Errno, seen[a.Cookie], err)
		}
		seen[a.Cookie] = true
	}
	l.end(t)
	close(h.Got)
	workers.Wait()
}

func TestACompletionBeyondTheFirstIsCaught(t *testing.T) {
	h := nbdtest.NewHeld(newRAM(t))
	l := serve(t, h, nbd.Config{})
	l.send(t, nbdtest.Request(nil, proto.CmdRead, 0, 1, 0, 512, nil))
	r := <-h.Got
	r.Owner.Complete(r)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the second Complete was taken")
			}
		}()
		r.Owner.Complete(r)
	}()
	r.Owner.Flush()
	l.end(t)
}

func TestRequestsOnAWireOutliveTheirConnection(t *testing.T) {
	h := nbdtest.NewHeld(newRAM(t))
	l := serve(t, h, nbd.Config{})
	l.send(t, nbdtest.Request(nil, proto.CmdRead, 0, 1, 0, 4096, nil))
	r := <-h.Got
	_ = l.Close()
	<-h.Closed
	select {
	case <-l.ended:
		t.Fatal("ended with a request outstanding")
	default:
	}
	h.Finish(r) // writes into the buffer: it must still be there
	l.end(t)
}

func TestHangUpIsSeenByAReaderThatWaitsForSlots(t *testing.T) {
	h := nbdtest.NewHeld(newRAM(t))
	l := serve(t, h, nbd.Config{Depth: 2})
	for i := range uint64(4) {
		l.send(t, nbdtest.Request(nil, proto.CmdRead, 0, i, 0, 512, nil))
	}
	a, b := <-h.Got, <-h.Got
	_ = l.Close()
	<-h.Closed
	h.Finish(a)
	h.Finish(b)
	l.end(t)
	if len(h.Got) != 0 {
		t.Fatal("a request was submitted after the connection was gone")
	}
}

func TestReadingStopsWithoutRoomAndGoesOnWithIt(t *testing.T) {
	h := nbdtest.NewHeld(newRAM(t))
	l := serve(t, h, nbd.Config{Arena: nbd.MinArena})
	const n = 20 << 20 // two do not fit
	for i := range uint64(3) {
		l.send(t, nbdtest.Request(nil, proto.CmdRead, 0, i, 0, n, nil))
	}
	for i := range uint64(3) {
		r := <-h.Got
		if r.Cookie != i || len(h.Got) != 0 {
			t.Fatalf("got request %d with %d behind it", r.Cookie, len(h.Got))
		}
		go h.Finish(r)
		if a, err := l.ReadAnswer(func(uint64) int { return n }); err != nil || a.Cookie != i {
			t.Fatalf("answer %d: %v", a.Cookie, err)
		}
	}
	l.end(t)
}

func TestAClientThatNeverReadsBlocksNeitherItsCompletersNorOthers(t *testing.T) {
	h := nbdtest.NewHeld(newRAM(t))
	slow := serve(t, h, nbd.Config{})
	const n = 1 << 20
	for i := range uint64(60) {
		slow.send(t, nbdtest.Request(nil, proto.CmdRead, 0, i, 0, n, nil))
	}
	var held []*blk.Request
	for range 60 {
		held = append(held, <-h.Got)
	}
	for _, r := range held {
		h.Finish(r) // on this goroutine: it must come back though nobody reads
	}
	other := serve(t, h.RAM, nbd.Config{})
	if a := other.do(t, proto.CmdRead, 0, 0, 4096, nil); a.Errno != 0 {
		t.Fatalf("errno %d", a.Errno)
	}
	other.end(t)
	seen := map[uint64]bool{}
	for range held {
		a, err := slow.ReadAnswer(func(uint64) int { return n })
		if err != nil || seen[a.Cookie] {
			t.Fatalf("answer %d: %v", a.Cookie, err)
		}
		seen[a.Cookie] = true
	}
	slow.end(t)
}

func TestAClientThatLeavesWithAnswersUnreadIsClean(t *testing.T) {
	l := serve(t, newRAM(t), nbd.Config{})
	for i := range uint64(60) {
		l.send(t, nbdtest.Request(nil, proto.CmdRead, 0, i, 0, 1<<20, nil))
	}
	l.end(t)
}

func TestDisconnectIsClosedOnlyAfterTheAnswers(t *testing.T) {
	h := nbdtest.NewHeld(newRAM(t))
	l := serve(t, h, nbd.Config{})
	b := nbdtest.Request(nil, proto.CmdWrite, 0, 1, 0, 512, pattern(512, 9))
	l.send(t, nbdtest.Request(b, proto.CmdDisc, 0, 2, 0, 0, nil))
	r := <-h.Got
	go h.Finish(r)
	if a, err := l.ReadAnswer(nil); err != nil || a.Cookie != 1 || a.Errno != 0 {
		t.Fatalf("answer %d: errno %d, %v", a.Cookie, a.Errno, err)
	}
	if _, err := l.Read(make([]byte, 1)); err != io.EOF {
		t.Fatalf("after the answer: %v", err)
	}
	l.end(t)
}

func TestAWriteBeforeDisconnectIsCarriedOutThoughTheClientIsGone(t *testing.T) {
	h := nbdtest.NewHeld(newRAM(t))
	l := serve(t, h, nbd.Config{})
	b := nbdtest.Request(nil, proto.CmdWrite, 0, 1, 0, 512, pattern(512, 9))
	l.send(t, nbdtest.Request(b, proto.CmdDisc, 0, 2, 0, 0, nil))
	r := <-h.Got
	_ = l.Close()
	select {
	case <-h.Closed:
		t.Fatal("the lane was told to cancel")
	default:
	}
	h.Finish(r)
	l.end(t)
	if !bytes.Equal(h.Bytes()[:512], pattern(512, 9)) {
		t.Fatal("not written")
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

// FuzzTransmission feeds bytes in two pieces and compares with a slow reading
// of the same bytes, one request after the other.
func FuzzTransmission(f *testing.F) {
	stream, _, _ := mixed()
	f.Add(stream, uint16(30))
	f.Add(append(nbdtest.Request(nil, proto.CmdTrim, 1, 1, 0, 0xffffffff, nil), stream...), uint16(1))
	f.Add(nbdtest.Request(stream, proto.CmdDisc, 0, 0, 0, 0, stream), uint16(700))
	m, err := nbdtest.NewRAM(1<<20, 512)
	if err != nil {
		f.Fatal(err)
	}
	twin, err := nbdtest.NewRAM(1<<20, 512)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, in []byte, cut uint16) {
		clear(m.Bytes())
		clear(twin.Bytes())
		want := expected(twin, in)
		l := serve(t, m, nbd.Config{})
		go func() {
			k := min(int(cut), len(in))
			_, _ = l.Write(in[:k])
			_, _ = l.Write(in[k:])
			_ = l.Conn.(*net.UnixConn).CloseWrite()
		}()
		got, err := io.ReadAll(io.LimitReader(l, 64<<20))
		<-l.ended
		total := 0
		for _, w := range want {
			total += len(w)
		}
		// What fits the socket was sent before the end of the stream was seen;
		// a reset, where bytes were left unread, may overtake it.
		if err == nil && total < 64<<10 && len(got) != total {
			t.Fatalf("%d bytes of answers, want %d", len(got), total)
		}
		checkAnswers(t, got, want)
	})
}

// checkAnswers expects each answer of got to be one of want, each used once.
func checkAnswers(t *testing.T, got []byte, want [][]byte) {
	t.Helper()
	for len(got) > 0 {
		found := -1
		for i, w := range want {
			if bytes.HasPrefix(got, w) && (found < 0 || len(w) > len(want[found])) {
				found = i
			}
		}
		if found < 0 {
			for _, w := range want {
				if bytes.HasPrefix(w, got) {
					return // cut off by the end
				}
			}
			t.Fatalf("unexpected answer %x...", got[:min(len(got), 32)])
		}
		got = got[len(want[found]):]
		want = append(want[:found:found], want[found+1:]...)
	}
}

// expected is the slow twin: it reads in as a list of requests, carries each
// out at once, and returns the simple replies with their data.
func expected(m *nbdtest.RAM, in []byte) (want [][]byte) {
	for len(in) >= proto.RequestLen {
		var q proto.Request
		if !q.Parse(in) || q.Cmd == proto.CmdDisc {
			return want
		}
		in = in[proto.RequestLen:]
		r := &blk.Request{Off: q.Off, Len: q.Len}
		if q.Cmd == proto.CmdWrite {
			if uint64(q.Len) > uint64(len(in)) {
				return want
			}
			r.Buf, in = in[:q.Len], in[q.Len:]
		}
		errno := slowErrno(&q)
		if errno == 0 && q.Len > 0 {
			r.Op = map[proto.Command]blk.Op{proto.CmdRead: blk.Read, proto.CmdWrite: blk.Write,
				proto.CmdTrim: blk.Trim, proto.CmdWriteZeroes: blk.WriteZeroes}[q.Cmd]
			if q.Cmd == proto.CmdRead {
				r.Buf = make([]byte, q.Len)
			}
			if q.Cmd == proto.CmdTrim {
				end := r.End() &^ 511
				r.Off = (r.Off + 511) &^ 511
				r.Len = uint32(max(end, r.Off) - r.Off)
			}
			m.Do(r)
		}
		h := make([]byte, proto.SimpleLen)
		proto.PutSimple(h, q.Cookie, errno)
		if q.Cmd == proto.CmdRead && errno == 0 {
			h = append(h, r.Buf...)
		}
		want = append(want, h)
	}
	return want
}

// slowErrno says how a device of 1 MiB in blocks of 512 answers q.
func slowErrno(q *proto.Request) proto.Errno {
	flags := map[proto.Command]uint16{proto.CmdWriteZeroes: proto.CmdFlagNoHole}[q.Cmd] | proto.CmdFlagFUA
	past := map[proto.Command]proto.Errno{proto.CmdRead: proto.EINVAL, proto.CmdCache: proto.EINVAL,
		proto.CmdTrim: proto.EINVAL, proto.CmdWrite: proto.ENOSPC, proto.CmdWriteZeroes: proto.ENOSPC}
	unaligned := q.Off%512 != 0 || q.Len%512 != 0
	errno, ranged := past[q.Cmd]
	switch {
	case q.Flags&^flags != 0:
		return proto.EINVAL
	case q.Cmd == proto.CmdFlush && q.Off == 0 && q.Len == 0:
		return 0
	case !ranged:
		return proto.EINVAL
	case q.Len > proto.MaxPayload && (q.Cmd == proto.CmdRead || q.Cmd == proto.CmdWrite):
		return proto.EINVAL
	case q.Off > 1<<20 || uint64(q.Len) > 1<<20-q.Off:
		return errno
	case unaligned && q.Cmd != proto.CmdTrim && q.Cmd != proto.CmdCache:
		return proto.EINVAL
	}
	return 0
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
