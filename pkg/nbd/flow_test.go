package nbd_test

import (
	"bytes"
	"io"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/nbd"
	"github.com/csi-mpath/csi-mpath/pkg/nbd/nbdtest"
	"github.com/csi-mpath/csi-mpath/pkg/nbd/proto"
)

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
