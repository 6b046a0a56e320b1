package target

import (
	"bytes"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/iscsi"
	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
	"github.com/csi-mpath/csi-mpath/pkg/target/serve"
)

// ends plays a script of commands, ends of commands and jobs, one byte each, and
// holds what the jobs do against what initiators were told: after the answer
// to an end, nothing of what it ended may reach the store (I3).
type ends struct {
	*bench
	hosts [3]*client
	wrote [3][]uint64 // blocks each host has written at, each once
	next  uint64
	over  map[uint64]byte // blocks whose commands are over, and what they held then
}

func (e *ends) step(op byte) {
	n := int(op>>4) % len(e.hosts)
	h := e.hosts[n]
	switch op & 7 {
	case 0, 1, 2:
		if e.next < 2000 && h.inner().sess != nil && len(h.inner().sess.tasks) < 60 {
			e.wrote[n] = append(e.wrote[n], e.next)
			h.writeCmd(e.next, block(byte(n+1), 1))
			e.next++
		}
	case 3, 4:
		if len(e.jobs) > 0 {
			e.work(int(op>>3) % len(e.jobs))
		}
	case 5:
		h.sendTMF(pdu.TMFAbortTaskSet, 0, 0)
		e.told(func() { e.settle(n) })
	case 6:
		h.sendTMF(pdu.TMFLUNReset, 0, 0)
		e.told(func() {
			for i := range e.hosts {
				e.settle(i)
			}
		})
	case 7:
		h.c.Gone()
		e.login(n)
		e.told(func() { e.settle(n) })
	}
}

// told runs jobs until the last request is answered, and then f.
func (e *ends) told(f func()) {
	for i := 0; !e.answered(); i++ {
		e.work(i % len(e.jobs))
	}
	f()
}

// answered drops what the hosts were told until now, and reports whether none
// waits for an end.
func (e *ends) answered() bool {
	for _, h := range e.hosts {
		h.drain()
		h.in = nil
		if h.inner().waiting || h.inner().sess != nil && h.inner().sess.waitingTMF > 0 {
			return false
		}
	}
	return true
}

func (e *ends) login(n int) {
	h := e.dial(1 + n%2)
	p := pdu.LoginRequest{Transit: true, CSG: 1, NSG: 3, ISID: [6]byte{0x80, 5: byte(n)}, CmdSN: 100}
	text := h.hello().Append(nil)
	p.DataLen = len(text)
	h.write(h.pdu(p.Put, text))
	e.hosts[n] = h
}

// settle notes what the blocks of a host's commands hold, now that all are over.
func (e *ends) settle(n int) {
	for _, lba := range e.wrote[n] {
		e.over[lba] = e.first(lba)
	}
}

func playEnds(t *testing.T, script []byte) {
	e := &ends{bench: newBench(t, nil), over: map[uint64]byte{}}
	for n := range e.hosts {
		e.login(n)
	}
	for _, op := range script {
		e.step(op)
	}
	for len(e.jobs) > 0 {
		e.work(0)
	}
	for lba, was := range e.over {
		if is := e.first(lba); is != was {
			t.Fatalf("block %d was %d when its command was over, and is %d", lba, was, is)
		}
	}
	for _, h := range e.hosts {
		h.drain()
		h.c.Gone()
	}
	if e.Buffers.Held() != 0 || e.Runs(func(*serve.Task) bool { return true }) || len(e.sessions) != 0 {
		t.Fatalf("%d bytes, %d sessions, or a job, are left", e.Buffers.Held(), len(e.sessions))
	}
}

func TestNothingOfAnEndedCommandReachesTheStore(t *testing.T) {
	for seed := range uint64(60) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		script := make([]byte, 300)
		for i := range script {
			script[i] = byte(rnd.Uint32())
		}
		playEnds(t, script)
	}
}

func FuzzEnds(f *testing.F) {
	f.Add([]byte{0, 0x10, 5, 3, 0, 0x17, 6, 0x21, 7})
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) < 1000 {
			playEnds(t, script)
		}
	})
}

// stuck is a store whose writes wait for the test.
type stuck struct {
	plain
	in, out chan struct{}
}

func (s *stuck) WriteAt(b []byte, off uint64) error {
	s.in <- struct{}{}
	<-s.out
	return s.plain.WriteAt(b, off)
}

func newStuck() *stuck {
	return &stuck{plain{NewRAM(1 << 20)}, make(chan struct{}), make(chan struct{})}
}

func TestAStuckStoreStopsNoOtherConnectionAndNoOtherUnit(t *testing.T) {
	st := newStuck()
	s, p := startServer(t, Config{LUNs: []LUN{{Store: st}, {Number: 1, Store: plain{NewRAM(1 << 20)}}}})
	a, b := dial(t, config(s, p[0], 1)), dial(t, config(s, p[1], 2))
	var wg sync.WaitGroup
	wg.Go(func() { do(t, a, func(c []byte) int { return scsi.PutWrite16(c, 0, 1, 0) }, nil, block(3, 1)) })
	<-st.in
	got := make([]byte, 512)
	do(t, b, func(c []byte) int { return scsi.PutRead16(c, 0, 1, 0) }, got, nil) // the same unit
	do(t, a, func(c []byte) int { return scsi.PutRead16(c, 0, 1, 0) }, got, nil) // the same connection
	ctx := t.Context()
	var cdb [scsi.CDBLen]byte
	scsi.PutWrite16(cdb[:], 0, 1, 0)
	if r, err := b.Exec(ctx, 1<<48, cdb[:], nil, block(5, 1)); err != nil || r.Status != scsi.StatusGood {
		t.Errorf("another unit: %+v %v", r, err)
	}
	close(st.out)
	wg.Wait()
}

func TestAReinstatingLoginWaitsForAStuckWrite(t *testing.T) {
	st := newStuck()
	s, p := startServer(t, Config{LUNs: []LUN{{Store: st}}})
	a := dial(t, config(s, p[0], 1))
	go func() {
		var cdb [scsi.CDBLen]byte
		scsi.PutWrite16(cdb[:], 0, 1, 0)
		_, _ = a.Exec(t.Context(), 0, cdb[:], nil, block(3, 1)) // its connection is lost
	}()
	<-st.in
	p[0].Drop()
	back := make(chan *iscsi.Session)
	go func() { back <- dial(t, config(s, p[0], 1)) }()
	for waits := false; !waits; runtime.Gosched() {
		select {
		case <-back:
			t.Fatal("logged in while the old write runs")
		default:
		}
		s.Do(func(m *Machine) {
			for c := range m.portals[0].conns {
				waits = waits || c.waiting
			}
		})
	}
	close(st.out)
	b := <-back
	got := make([]byte, 512)
	do(t, b, func(c []byte) int { return scsi.PutRead16(c, 0, 1, 0) }, got, nil)
	if !bytes.Equal(got, block(3, 1)) {
		t.Error("the old write was not over")
	}
}

func TestALoginThatWaitsTooLongIsEnded(t *testing.T) {
	b := newBench(t, nil)
	b.session(1, 1).writeCmd(0, block(7, 1))
	c := b.dial(1)
	c.isid = 1
	p := pdu.LoginRequest{Transit: true, CSG: 1, NSG: 3, ISID: [6]byte{0x80, 5: 1}, CmdSN: 100}
	text := c.hello().Append(nil)
	p.DataLen = len(text)
	c.write(c.pdu(p.Put, text))
	b.Tick(epoch.Add(serve.LoginTimeout + time.Second))
	if !c.c.Closing() {
		t.Error("it waits on")
	}
	b.work(0)
	if c.quiet(); b.Sessions(0) != 0 {
		t.Error("a session for a connection that was closed")
	}
}
