package datapath

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
)

// history is the oracle: per block, which writes may still be its content.
//
// A write is dead once another was submitted after it had been answered and
// was itself answered.
type history struct {
	clock  int
	writes [][]*rec // per block
}

type rec struct {
	v          uint64
	start, end int // end 0: not answered
	failed     bool
}

func (h *history) begin(block int, v uint64) *rec {
	h.clock++
	w := &rec{v: v, start: h.clock}
	h.writes[block] = append(h.writes[block], w)
	return w
}

func (h *history) finish(w *rec, ok bool) {
	h.clock++
	w.end, w.failed = h.clock, !ok
}

// allowed reports whether a read that began at time start may return v.
func (h *history) allowed(block int, v uint64, start int) bool {
	var cand *rec
	for _, w := range h.writes[block] {
		if w.v == v {
			cand = w
		}
	}
	if cand == nil {
		return v == 0 && !h.overwritten(block, 0, start)
	}
	return cand.end == 0 || !h.overwritten(block, cand.end, start)
}

func (h *history) overwritten(block, end, start int) bool {
	for _, o := range h.writes[block] {
		if o.start > end && o.end != 0 && o.end < start && !o.failed {
			return true
		}
	}
	return false
}

const testBlocks = 4

// world says what may happen, and which guard is missing.
type world struct{ restarts, noGuard, noLedger, reconnects, merges bool }

type fuzzer struct {
	r       *rig
	rng     *rand.Rand
	c       []*client
	h       history
	pending map[*blk.Request]func()
	next    uint64
	world   world
	broken  []string
	count   uint64
}

func (f *fuzzer) violate(format string, args ...any) {
	f.broken = append(f.broken, fmt.Sprintf(format, args...))
}

func (f *fuzzer) track(c *client, r *blk.Request, done func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.got[r] > 0 {
		done()
		return
	}
	f.count++
	r.Cookie = f.count
	f.pending[r] = done
}

// submit sends a random request; its answer is booked by the client's hook.
func (f *fuzzer) submit() {
	c := f.c[f.rng.IntN(len(f.c))]
	if len(c.free) < 2 {
		return
	}
	block := f.rng.IntN(testBlocks)
	n := 1 + f.rng.IntN(min(3, testBlocks-block))
	if f.world.merges && f.rng.IntN(2) == 0 {
		f.submitBatch(c)
		return
	}
	f.one(c, f.rng.IntN(8), block, n, c.batch)
}

// submitBatch sends several requests together, most of them a contiguous run.
func (f *fuzzer) submitBatch(c *client) {
	var chain []*blk.Request
	collect := func(all ...*blk.Request) { chain = append(chain, all...) }
	kind := []int{0, 7, 7}[f.rng.IntN(3)]
	for block := f.rng.IntN(testBlocks); block < testBlocks && len(c.free) > 2; block++ {
		f.one(c, kind, block, 1, collect)
		if f.rng.IntN(8) == 0 {
			f.one(c, f.rng.IntN(8), f.rng.IntN(testBlocks), 1, collect)
		}
	}
	if len(chain) > 0 {
		c.batch(chain...)
	}
}

// one prepares a request of a kind, books it, and hands it to send.
func (f *fuzzer) one(c *client, kind, block, n int, send func(...*blk.Request)) {
	switch kind {
	case 0, 1:
		start := f.h.clock
		r := c.prepare(blk.Read, block, n, 0, 0)
		f.track(c, r, func() { f.checkRead(r, block, n, start) })
		send(r)
	case 2:
		r := c.prepare(blk.Flush, 0, 0, 0, 0)
		f.track(c, r, func() {})
		send(r)
	default:
		f.next++
		v := f.next
		recs := make([]*rec, n)
		for i := range recs {
			recs[i] = f.h.begin(block+i, v)
		}
		r := c.prepare(blk.Write, block, n, v, 0)
		f.track(c, r, func() {
			for _, w := range recs {
				f.h.finish(w, r.Status == blk.OK)
			}
		})
		send(r)
	}
}

func (f *fuzzer) checkRead(r *blk.Request, block, n, start int) {
	if r.Status != blk.OK {
		return
	}
	for i := range n {
		v := value(&blk.Request{Buf: r.Buf[i*testBlock:]})
		if !f.h.allowed(block+i, v, start) {
			f.violate("block %d read as write %d, which was overwritten before the read began", block+i, v)
		}
	}
}

// step does one random thing to the world.
func (f *fuzzer) step() {
	p := f.r.paths[f.rng.IntN(len(f.r.paths))]
	if f.world.merges && f.rng.IntN(30) == 0 {
		d := []time.Duration{MergeOff, 0, time.Millisecond, 50 * time.Millisecond, MergeAuto}[f.rng.IntN(5)]
		if err := f.r.dev.SetMergeDeadline(d); err != nil {
			f.violate("%v", err)
		}
	}
	switch k := f.rng.IntN(100); {
	case k < 40:
		f.submit()
	case k < 80:
		v := good
		if f.rng.IntN(12) == 0 {
			v = []blk.Verdict{{Class: blk.Busy}, {Class: blk.Retry}, {Class: blk.Aborted},
				{Class: blk.TargetError, Status: blk.IOError}, {Class: blk.RetryLater}}[f.rng.IntN(5)]
		}
		p.answer(f.rng.IntN(3), v)
	case k < 84:
		p.lose(errCut, true)
	case k < 94:
		p.late(f.rng.IntN(3))
	case k < 97:
		up := f.rng.IntN(2) == 0
		p.set(func() {
			p.refuse = nil
			if !up {
				p.refuse = errCut
			}
		})
	case k < 99 && f.world.reconnects:
		f.reconnect(f.rng.IntN(len(f.c)))
	case k < 99 && f.world.restarts:
		f.kill()
	case k < 98:
		p.set(func() { p.room = 1 + f.rng.IntN(6) })
	default:
		time.Sleep(time.Duration(f.rng.IntN(4000)) * time.Millisecond)
	}
	synctest.Wait()
}

// kill restarts the process. The client is like the kernel: it sends what was
// not answered again, with the same content.
func (f *fuzzer) kill() {
	if f.world.noLedger {
		clear(f.r.ledger)
	}
	f.r.restart()
	lost := f.pending
	f.pending = map[*blk.Request]func(){}
	f.open()
	f.replay(lost)
}

// reconnect ends one connection; its client comes back on a new one and sends
// what was not answered again.
func (f *fuzzer) reconnect(i int) {
	old := f.c[i]
	lost := map[*blk.Request]func(){}
	for q, done := range f.pending {
		if q.Owner == old {
			lost[q] = done
			delete(f.pending, q)
		}
	}
	old.lane.Close()
	f.c[i] = f.connect()
	f.replay(lost)
}

func (f *fuzzer) replay(lost map[*blk.Request]func()) {
	// In order of submission: a seed must mean one story.
	for _, old := range slices.SortedFunc(maps.Keys(lost), func(a, b *blk.Request) int { return cmp.Compare(a.Cookie, b.Cookie) }) {
		done := lost[old]
		c := f.c[0]
		if len(f.c[1].free) > len(c.free) {
			c = f.c[1]
		}
		again := c.make(old.Op, old.Off, old.Len, old.Flags)
		f.count++
		again.Cookie = f.count
		copy(again.Buf, old.Buf)
		c.lane.Submit(again)
		f.track(c, again, func() { old.Status = again.Status; copy(old.Buf, again.Buf); done() })
	}
}

// open connects the clients.
func (f *fuzzer) open() {
	f.c = nil
	for range 2 {
		f.c = append(f.c, f.connect())
	}
}

func (f *fuzzer) connect() *client {
	c := newClient(f.r.T, f.r.dev)
	c.done = func(q *blk.Request) {
		if done := f.pending[q]; done != nil {
			delete(f.pending, q)
			done()
		}
	}
	return c
}

// finishAll heals the world and waits until all is answered.
func (f *fuzzer) finishAll() {
	for i := 0; i < 4000 && len(f.pending) > 0; i++ {
		for _, p := range f.r.paths {
			p.set(func() { p.refuse, p.room = nil, 64 })
			for p.answer(0, good) {
			}
		}
		time.Sleep(50 * time.Millisecond)
		synctest.Wait()
	}
	if len(f.pending) > 0 {
		f.r.Fatalf("%d requests were never answered: %+v", len(f.pending), f.r.dev.Status())
	}
}

// stable checks that nothing changes once all is answered, whatever dead
// connections still execute.
func (f *fuzzer) stable() {
	time.Sleep(20 * time.Second)
	synctest.Wait()
	for b := range testBlocks {
		if v := f.r.disk.blocks[b]; !f.h.allowed(b, v, f.h.clock+1) {
			f.violate("block %d ends as write %d, which was overwritten", b, v)
		}
	}
	if n := f.r.dev.doubt.active.Load(); n != 0 {
		f.violate("%d ranges still in doubt", n)
	}
}

// runSeed plays one seed and returns what went wrong.
func runSeed(t *testing.T, seed uint64, w world) (broken []string) {
	const steps = 400
	withDevice(t, 3, withLedger, func(r *rig) {
		r.dev.guardOff = w.noGuard
		f := &fuzzer{r: r, rng: rand.New(rand.NewPCG(seed, 7)), pending: map[*blk.Request]func(){}, world: w}
		f.h.writes = make([][]*rec, testBlocks)
		f.open()
		for range steps {
			f.step()
		}
		f.finishAll()
		f.stable()
		broken = f.broken
	})
	return broken
}

func TestRandomFaultsNeverLoseOrReviveAWrite(t *testing.T) {
	for seed := range uint64(150) {
		if broken := runSeed(t, seed, world{}); len(broken) > 0 {
			t.Fatalf("seed %d: %v", seed, broken)
		}
	}
}

func TestRandomFaultsAndKillsNeverLoseOrReviveAWrite(t *testing.T) {
	for seed := range uint64(100) {
		if broken := runSeed(t, seed+1000, world{restarts: true}); len(broken) > 0 {
			t.Fatalf("seed %d: %v", seed+1000, broken)
		}
	}
}

func TestRandomFaultsAndNewConnectionsNeverLoseOrReviveAWrite(t *testing.T) {
	for seed := range uint64(100) {
		if broken := runSeed(t, seed+2000, world{reconnects: true}); len(broken) > 0 {
			t.Fatalf("seed %d: %v", seed+2000, broken)
		}
	}
}

func TestMergedRequestsSurviveRandomFaultsAndKills(t *testing.T) {
	for seed := range uint64(160) { // without the doubts of members 3131 shows it
		if broken := runSeed(t, seed+3000, world{merges: true, restarts: seed%2 == 0, reconnects: seed%4 == 1}); len(broken) > 0 {
			t.Fatalf("seed %d: %v", seed+3000, broken)
		}
	}
}

// The oracle itself: with the guard off it must see stale writes.
func TestTheOracleSeesStaleWritesWithoutTheGuard(t *testing.T) {
	for seed := range uint64(1000) {
		if len(runSeed(t, seed, world{noGuard: true})) > 0 {
			return
		}
	}
	t.Fatal("1000 seeds without the guard and nothing went wrong: the test tests nothing")
}

func TestTheOracleSeesStaleWritesWithoutTheLedger(t *testing.T) {
	// A few seeds in a hundred show it.
	for seed := range uint64(1000) {
		if len(runSeed(t, seed, world{restarts: true, noLedger: true})) > 0 {
			return
		}
	}
	t.Fatal("1000 seeds with kills and no ledger, and nothing went wrong: the test tests nothing")
}
