package merge

import (
	"math/rand/v2"
	"testing"
)

// model is a target that executes one command after the other, each at a fixed
// cost plus one per byte, under sequential writers that each keep depth
// requests of 4 KiB in flight and think for a moment before the next. In
// virtual time: an event loop over requests, units and answers.
type model struct {
	plug     *Plug
	cost     int64 // ns per command
	perByte  int64 // ns per KiB
	think    int64 // ns from an answer to the next request
	deadline int64
	rng      *rand.Rand

	now    int64
	next   []uint64 // of each writer
	ready  []event  // requests to come
	queue  []*unit  // to be sent or held
	target []*unit
	freeAt int64
	token  int32
	units  map[int32]*unit

	bytes                  uint64
	commands, held, joined int
	contiguous             int
}

type event struct {
	at     int64
	writer int
}

type unit struct {
	token  int32
	strm   int8
	bytes  uint32
	owners []int
	doneAt int64
}

func newModel(writers, depth int, cost, think int64) *model {
	m := &model{plug: newPlug(256 * kib), cost: cost, perByte: 100, think: think,
		rng: rand.New(rand.NewPCG(1, uint64(cost))), next: make([]uint64, writers), units: map[int32]*unit{}}
	for w := range writers {
		m.next[w] = uint64(w) << 32
		for range depth {
			m.ready = append(m.ready, event{m.rng.Int64N(1 + think), w})
		}
	}
	return m
}

// run plays the model for d ns and returns what it moved, bytes.
func (m *model) run(d int64) uint64 {
	end, before := m.now+d, m.bytes
	for m.now < end {
		m.arrive()
		wake := m.dispatch()
		next := end
		for _, e := range m.ready {
			next = min(next, e.at)
		}
		if len(m.target) > 0 {
			next = min(next, m.target[0].doneAt)
		}
		if wake > 0 {
			next = min(next, wake)
		}
		m.now = max(next, m.now+1)
		m.answer()
	}
	return m.bytes - before
}

// arrive takes in the requests that are due.
func (m *model) arrive() {
	rest := m.ready[:0]
	for _, e := range m.ready {
		if e.at > m.now {
			rest = append(rest, e)
			continue
		}
		m.token++
		leader, strm := m.plug.Add(m.token, write, m.next[e.writer], 4*kib)
		m.next[e.writer] += 4 * kib
		if strm != None && m.plug.inflight[strm].Load() > 0 {
			m.contiguous++
		}
		if leader != None {
			u := m.units[leader]
			u.bytes += 4 * kib
			u.owners = append(u.owners, e.writer)
			m.joined++
			continue
		}
		u := &unit{token: m.token, strm: strm, bytes: 4 * kib, owners: []int{e.writer}}
		m.units[m.token] = u
		m.queue = append(m.queue, u)
	}
	m.ready = rest
}

// dispatch sends what is not held and returns when the first held one is due.
func (m *model) dispatch() (wake int64) {
	var kept []*unit
	for _, u := range m.queue {
		if until := m.plug.Hold(u.strm, u.token, m.now, m.deadline); until > 0 {
			m.held++
			kept = append(kept, u)
			if wake == 0 || until < wake {
				wake = until
			}
			continue
		}
		send(m.plug, u.strm, u.token, m.now)
		delete(m.units, u.token)
		m.commands++
		m.freeAt = max(m.freeAt, m.now) + m.cost + int64(u.bytes)/kib*m.perByte
		u.doneAt = m.freeAt
		m.target = append(m.target, u)
	}
	m.queue = kept
	return wake
}

func (m *model) answer() {
	for len(m.target) > 0 && m.target[0].doneAt <= m.now {
		u := m.target[0]
		m.target = m.target[1:]
		m.plug.Done(u.strm)
		m.bytes += uint64(u.bytes)
		for _, w := range u.owners {
			m.ready = append(m.ready, event{m.now + m.think/2 + m.rng.Int64N(1+m.think), w})
		}
	}
}

const ms = 1_000_000

func TestADeadlineMovesMoreSequentialDataThroughATargetLimitedByCommands(t *testing.T) {
	off := newModel(4, 8, 20_000, 30_000)
	on := newModel(4, 8, 20_000, 30_000)
	on.deadline = 100_000
	a, b := off.run(500*ms), on.run(500*ms)
	if float64(b) < 1.8*float64(a) {
		t.Fatalf("%d bytes without, %d with a deadline: %.2fx", a, b, float64(b)/float64(a))
	}
}

func TestADeadlineHoldsNothingOfASingleRequestStream(t *testing.T) {
	m := newModel(1, 1, 20_000, 5_000)
	m.deadline = 100_000
	if m.run(200 * ms); m.held != 0 || m.joined != 0 {
		t.Fatalf("%d held, %d joined", m.held, m.joined)
	}
}

// bestFixed finds the best deadline of the ladder for a model.
func bestFixed(build func() *model, window int64) (best uint64, at int64) {
	for _, d := range ladder {
		m := build()
		m.deadline = d
		m.run(4 * window)
		if n := m.run(20 * window); n > best {
			best, at = n, d
		}
	}
	return best, at
}

// 200 windows are ten seconds at 50 ms each; they are shorter here for the quick
// targets, to save time: what counts is the number of commands in one.
func TestAutoIsAsGoodAsTheBestFixedDeadlineWithinTenSeconds(t *testing.T) {
	for _, cost := range []int64{2_000, 20_000, 100_000} {
		build := func() *model { return newModel(4, 8, cost, 30_000) }
		window := max(5*ms, 500*cost)
		best, at := bestFixed(build, window)
		m, tuner := build(), &Tuner{}
		for range 200 {
			n := m.run(window)
			m.deadline = tuner.Window(n, window, m.contiguous)
			m.contiguous = 0
		}
		got := m.run(20 * window)
		t.Logf("cost %d ns: best fixed %d bytes/s at %d ns; auto %d at %d", cost, best, at, got, tuner.Deadline())
		if float64(got) < 0.95*float64(best) {
			t.Errorf("cost %d ns: auto moved %.2f of the best fixed deadline (%d ns); it chose %d ns", cost, float64(got)/float64(best), at, tuner.Deadline())
		}
	}
}

func TestAutoStaysAtZeroWithoutContiguousRequests(t *testing.T) {
	var tuner Tuner
	for range 500 {
		if d := tuner.Window(1<<20, 50*ms, 0); d != 0 {
			t.Fatalf("asked for %d ns", d)
		}
	}
}

func TestAutoBacksOffWhenADeadlineDoesNotHelp(t *testing.T) {
	var tuner Tuner
	held := 0
	for i := range 4000 {
		if tuner.Window(1<<20, 50*ms, 5) != 0 && i > 2000 {
			held++
		}
	}
	if tuner.Chosen() != 0 || held > 100 {
		t.Fatalf("chose %d ns; a deadline was in force in %d of the last 2000 windows", tuner.Chosen(), held)
	}
}

func TestAutoSaysWhetherItIsTrying(t *testing.T) {
	var tuner Tuner
	if !tuner.Settled() {
		t.Fatal("trying before anything happened")
	}
	tuner.Window(1<<20, 50*ms, 5)
	if tuner.Settled() {
		t.Fatal("the sweep is not over")
	}
	for n := 1; !tuner.Settled(); n++ {
		if tuner.Window(1<<20, 50*ms, 5); n > 200 {
			t.Fatal("it never ends")
		}
	}
}

func TestAutoLooksAgainAtThoseNearTheBest(t *testing.T) {
	var tuner Tuner
	moved := func(windows int) uint64 { // the best, but for a bad moment at the beginning
		switch {
		case tuner.Deadline() == 1_000_000 && windows < 60:
			return 95
		case tuner.Deadline() == 1_000_000:
			return 100
		case tuner.Deadline() >= 500_000:
			return 94
		}
		return 80
	}
	tuner.Window(80, 1, 5)
	for n := 1; !tuner.Settled(); n++ {
		tuner.Window(moved(n), 1, 5)
	}
	if tuner.Chosen() != 1_000_000 {
		t.Fatalf("chose %d ns", tuner.Chosen())
	}
}

func TestAutoStartsWhereItWasLeft(t *testing.T) {
	var tuner Tuner
	tuner.Start(50_000)
	if d := tuner.Window(1<<20, 50*ms, 5); d != 50_000 {
		t.Fatalf("began at %d ns", d)
	}
}

func TestAutoSweepsAgainWhenTheLoadChanges(t *testing.T) {
	var tuner Tuner
	tuner.Start(50_000)
	for range 50 {
		tuner.Window(1<<20, 50*ms, 5)
	}
	for range 10 {
		if tuner.Window(4<<20, 50*ms, 5) == 0 {
			return // a sweep begins at 0
		}
	}
	t.Fatal("nothing was tried under the new load")
}
