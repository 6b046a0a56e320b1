package merge

import (
	"math/rand/v2"
	"testing"
)

const (
	read  = 0
	write = 1
	kib   = 1 << 10
)

func newPlug(limit uint32) *Plug {
	p := new(Plug)
	p.Init(limit)
	return p
}

// send sends a unit at once.
func send(p *Plug, strm int8, token int32, now int64) {
	p.Sent(strm, token, now)
}

func TestContiguousRequestsJoinOneUnit(t *testing.T) {
	p := newPlug(64 * kib)
	leader, strm := p.Add(1, write, 0, 4*kib)
	if leader != None || strm == None {
		t.Fatal(leader, strm)
	}
	for i := int32(2); i <= 16; i++ {
		if l, s := p.Add(i, write, uint64(i-1)*4*kib, 4*kib); l != 1 || s != strm {
			t.Fatalf("request %d went to %d, stream %d", i, l, s)
		}
	}
	if l, s := p.Add(17, write, 64*kib, 4*kib); l != None || s != strm {
		t.Fatalf("a unit grew beyond its cap: %d, %d", l, s)
	}
}

func TestAnotherOperationOrPlaceDoesNotJoin(t *testing.T) {
	p := newPlug(64 * kib)
	p.Add(1, write, 0, 4*kib)
	for i, c := range []struct {
		op  uint8
		off uint64
	}{{read, 4 * kib}, {write, 8 * kib}, {write, 0}} {
		if l, _ := p.Add(int32(i+2), c.op, c.off, 4*kib); l != None {
			t.Errorf("op %d at %d joined", c.op, c.off)
		}
	}
}

func TestAUnitThatIsSentGrowsNoMore(t *testing.T) {
	p := newPlug(64 * kib)
	_, strm := p.Add(1, write, 0, 4*kib)
	send(p, strm, 1, 5)
	if l, s := p.Add(2, write, 4*kib, 4*kib); l != None || s != strm {
		t.Fatal(l, s)
	}
}

func TestTheHeadOfAStreamIsHeldWhileItHasSomethingInFlight(t *testing.T) {
	p := newPlug(64 * kib)
	_, strm := p.Add(1, write, 0, 4*kib)
	if p.Hold(strm, 1, 100, 50) != 0 {
		t.Fatal("held with nothing in flight")
	}
	send(p, strm, 1, 100)
	p.Add(2, write, 4*kib, 4*kib)
	if got := p.Hold(strm, 2, 110, 50); got != 150 || !p.Waits() {
		t.Fatalf("held until %d", got)
	}
	if l, _ := p.Add(3, write, 8*kib, 4*kib); l != 2 {
		t.Fatal("nothing joins a held unit")
	}
	if p.Hold(strm, 2, 150, 50) != 0 || p.Waits() {
		t.Fatal("held beyond the deadline")
	}
}

func TestTheLastAnswerOfAStreamReleasesItsHead(t *testing.T) {
	p := newPlug(64 * kib)
	_, strm := p.Add(1, write, 0, 4*kib)
	send(p, strm, 1, 100)
	_, strm2 := p.Add(2, write, 4*kib, 4*kib)
	if p.Hold(strm2, 2, 101, 1000) == 0 {
		t.Fatal("not held")
	}
	if !p.Done(strm) {
		t.Fatal("the answer does not run the lane")
	}
	if p.Hold(strm2, 2, 102, 1000) != 0 {
		t.Fatal("held with nothing in flight")
	}
}

func TestAnAnswerRunsTheLaneOnlyWhenSomethingIsHeldAndNothingIsOut(t *testing.T) {
	p := newPlug(64 * kib)
	_, strm := p.Add(1, write, 0, 4*kib)
	send(p, strm, 1, 100)
	p.Add(2, write, 4*kib, 4*kib)
	send(p, strm, 2, 101)
	if p.Done(strm) {
		t.Fatal("nothing is held")
	}
	p.Add(3, write, 8*kib, 4*kib)
	p.Hold(strm, 3, 102, 1000)
	p.Add(9, write, 1<<30, 4*kib)
	if !p.Done(strm) {
		t.Fatal("the last answer does not run the lane")
	}
}

func TestAFullUnitIsNotHeld(t *testing.T) {
	p := newPlug(8 * kib)
	_, strm := p.Add(1, write, 0, 4*kib)
	send(p, strm, 1, 100)
	p.Add(2, write, 4*kib, 4*kib)
	p.Add(3, write, 8*kib, 4*kib)
	if p.Hold(strm, 2, 101, 1000) != 0 {
		t.Fatal("held although it is full")
	}
}

func TestManyStreamsAreFollowedAtOnce(t *testing.T) {
	p := newPlug(1 << 20)
	for round := range uint64(8) {
		for k := range uint64(Streams) {
			l, s := p.Add(int32(round*Streams+k), write, k<<30+round*4*kib, 4*kib)
			if want := int32(k); round > 0 && l != want || s == None {
				t.Fatalf("round %d stream %d: leader %d, stream %d", round, k, l, s)
			}
		}
	}
}

func TestWithAllStreamsBusyARequestGoesUnfollowed(t *testing.T) {
	p := newPlug(1 << 20)
	for k := range int32(Streams) {
		p.Add(k, write, uint64(k)<<30, 4*kib)
	}
	if l, s := p.Add(99, write, 99<<30, 4*kib); l != None || s != None {
		t.Fatal(l, s)
	}
	if p.Hold(None, 99, 1, 1000) != 0 || p.Done(None) {
		t.Fatal("an unfollowed request is held")
	}
}

// twin is the obvious plug: a list of open units. It takes what the plug
// decided, and says whether that was allowed and whether it could have joined.
type twin struct {
	units map[int32]*twinUnit
	limit uint32
}

type twinUnit struct {
	op     uint8
	end    uint64
	bytes  uint32
	joined int
}

func (w *twin) fits(u *twinUnit, op uint8, off uint64, n uint32) bool {
	return u != nil && u.op == op && u.end == off && u.bytes+n <= w.limit && u.joined < MaxJoined
}

func (w *twin) add(token, leader int32, op uint8, off uint64, n uint32) (allowed, possible bool) {
	for _, u := range w.units {
		possible = possible || w.fits(u, op, off, n)
	}
	if leader == None {
		w.units[token] = &twinUnit{op, off + uint64(n), n, 1}
		return true, possible
	}
	u := w.units[leader]
	if !w.fits(u, op, off, n) {
		return false, possible
	}
	u.bytes, u.end = u.bytes+n, off+uint64(n)
	u.joined++
	return true, possible
}

func TestOnlyWhatContinuesAnOpenUnitJoinsAndMostOfItDoes(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 9))
	joins, possibles := 0, 0
	for range 300 {
		p, w := newPlug(32*kib), &twin{units: map[int32]*twinUnit{}, limit: 32 * kib}
		open := map[int32]int8{}
		next := [6]uint64{}
		for token := range int32(400) {
			k := rng.IntN(6)
			off := uint64(k)<<30 + next[k]
			if rng.IntN(20) == 0 {
				off = rng.Uint64N(64) * 4 * kib // anywhere, also over others
			} else {
				next[k] += 4 * kib
			}
			op := uint8(rng.IntN(8) / 7)
			leader, strm := p.Add(token, op, off, 4*kib)
			allowed, possible := w.add(token, leader, op, off, 4*kib)
			if !allowed {
				t.Fatalf("request %d joined %d, which it does not continue", token, leader)
			}
			if possible {
				possibles++
			}
			if leader != None {
				joins++
			} else {
				open[token] = strm
			}
			for o, s := range open {
				if rng.IntN(4) != 0 {
					continue
				}
				send(p, s, o, int64(token))
				delete(open, o)
				delete(w.units, o)
				p.Done(s)
			}
		}
	}
	if joins < possibles*8/10 {
		t.Fatalf("%d of %d possible joins", joins, possibles)
	}
}
