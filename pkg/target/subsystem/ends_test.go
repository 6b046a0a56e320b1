package subsystem

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	"github.com/csi-mpath/csi-mpath/pkg/nvmetcp/auth"
	"github.com/csi-mpath/csi-mpath/pkg/target/serve"
)

// ends plays hosts that write, each block once, while their controllers end in
// every way there is, and watches the blocks of those that were told so (I3).
type ends struct {
	*bench
	rng   *rand.Rand
	hosts [3]*host
	made  byte
	wrote [3][]int // blocks of the controller
	next  int
	held  *serve.Held
	over  map[int]byte // blocks whose controller is over, and what they held then
}

func (e *ends) fresh(i int) {
	e.made++
	e.hosts[i] = e.host(1+i%2, byte(i+1))
	e.wrote[i] = nil
}

// sealed: nothing of host i's controller may happen from now on.
func (e *ends) sealed(i int) {
	for _, lba := range e.wrote[i] {
		e.over[lba] = e.first(lba)
	}
}

func (e *ends) step() {
	i := e.rng.IntN(len(e.hosts))
	h := e.hosts[i]
	switch e.rng.IntN(12) {
	case 0, 1, 2, 3:
		if e.next < 2000 && !h.io.c.Closing() {
			e.wrote[i] = append(e.wrote[i], e.next)
			h.io.write1(uint64(e.next), pattern(byte(i+1), 512))
			e.next++
		}
	case 4, 5, 6:
		if len(e.jobs) > 0 {
			e.work(e.rng.IntN(len(e.jobs)))
		}
	case 7:
		if e.held == nil {
			e.held, _ = e.Hold(serve.Match{Kind: serve.Writes, Count: 3}, true, nil)
			break
		}
		e.held.Release()
		e.held = nil
	case 8:
		e.shutDown(i)
	case 9: // the connections break; late writes may still come
		h.gone()
		e.fresh(i)
	case 10:
		e.preempt(i)
	default:
		e.putOut(i)
	}
}

func (e *ends) shutDown(i int) {
	h := e.hosts[i]
	h.set(nvme.ControllerConfig{Enable: true, PageShift: 12, SQShift: 6, CQShift: 4, Shutdown: nvme.ShutdownNormal})
	for h.state().Shutdown != nvme.ShutdownComplete {
		e.work(e.rng.IntN(len(e.jobs)))
	}
	e.sealed(i)
	h.gone()
	e.fresh(i)
}

// preempt has a fourth host preempt and abort host i.
func (e *ends) preempt(i int) {
	h, by := e.hosts[i], e.host(2, 9)
	h.io.start(nvme.ReserveCommand{Op: nvme.OpReserveRegister, Action: nvme.ActionReplace, Ignore: true}.Command(1),
		nvme.ReserveCommand{Op: nvme.OpReserveRegister}.AppendKeys(nil, 0, uint64(i+1)))
	by.io.start(nvme.ReserveCommand{Op: nvme.OpReserveRegister, Action: nvme.ActionReplace, Ignore: true}.Command(1),
		nvme.ReserveCommand{Op: nvme.OpReserveRegister}.AppendKeys(nil, 0, 9))
	cid := by.acquire(nvme.ActionPreemptAbort, nvme.WriteExclusiveRegistrantsOnly, 9, uint64(i+1))
	for {
		by.io.read()
		if v, ok := by.io.done[cid]; ok {
			if v.Status.OK() {
				e.sealed(i)
			}
			break
		}
		e.work(e.rng.IntN(len(e.jobs)))
	}
	by.io.start(nvme.ReserveCommand{Op: nvme.OpReserveRelease, Action: nvme.ActionClear}.Command(1),
		nvme.ReserveCommand{Op: nvme.OpReserveRelease}.AppendKeys(nil, 9, 0))
	by.gone()
}

// putOut takes the host's access away, and gives it back to a new controller.
func (e *ends) putOut(i int) {
	x := e.controllers[e.hosts[i].id]
	_ = e.SetAccess([]string{"nqn.2025-01.io.test:nobody"}, auth.Credentials{}, nil)
	over := false
	e.WhenOver(tasks(func(t *task) bool { return t.q.ctrl == x || !e.admits(t.q.ctrl.host) }), func() { over = true })
	for !over {
		e.work(e.rng.IntN(len(e.jobs)))
	}
	_ = e.SetAccess(nil, auth.Credentials{}, nil)
	for n, h := range e.hosts {
		e.sealed(n)
		h.gone()
		e.fresh(n)
	}
}

func TestWhatHasEndedHasNoEffectAfterwards(t *testing.T) {
	for seed := range uint64(25) {
		e := &ends{bench: newBench(t, nil), rng: rand.New(rand.NewPCG(seed, 1)), over: map[int]byte{}}
		for i := range e.hosts {
			e.fresh(i)
		}
		for range 300 {
			e.step()
		}
		e.ClearFaults()
		for len(e.jobs) > 0 {
			e.work(0)
		}
		for lba, was := range e.over {
			if is := e.first(lba); is != was {
				t.Fatalf("seed %d: block %d was %d when its controller was over, and is %d", seed, lba, was, is)
			}
		}
		for _, h := range e.hosts {
			h.gone()
		}
		if e.Buffers.Held() != 0 || e.Jobs() != 0 || e.Late() != 0 || len(e.controllers) != 0 {
			t.Fatalf("seed %d: %d bytes, %d jobs, %d late tasks, %d controllers are left", seed, e.Buffers.Held(), e.Jobs(), e.Late(), len(e.controllers))
		}
	}
}

// I3: the late writes of several queues end with their controller.
func TestKeepAliveEndsTheLateWritesOfAllQueues(t *testing.T) {
	r := newRig(t, nil)
	h := r.adminOnly(1, 1, nvme.ConnectCommand{KeepAlive: 5000}, connectData(1))
	all := []*client{h.queue(1, 1, plain, 0), h.queue(1, 2, plain, 0), h.queue(1, 3, plain, 0)}
	held, _ := r.Hold(serve.Match{Kind: serve.Writes}, true, nil)
	for i, c := range all {
		c.write1(uint64(i), pattern(1, 512))
	}
	h.admin.c.Gone()
	for _, c := range all {
		c.c.Gone()
	}
	if r.Late() != len(all) {
		t.Fatalf("%d late", r.Late())
	}
	r.pass(6 * time.Second)
	held.Release()
	if r.first(0) != 0 || r.Late() != 0 || len(r.controllers) != 0 || r.Buffers.Held() != 0 {
		t.Errorf("block begins with %d; %d late, %d controllers, %d bytes", r.first(0), r.Late(), len(r.controllers), r.Buffers.Held())
	}
}
