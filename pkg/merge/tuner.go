package merge

import "slices"

// ladder are the deadlines Tuner chooses from, ns.
var ladder = [...]int64{0, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000, 2_000_000, 5_000_000}

// Tuner finds the merge deadline of a volume (mergeDeadline: auto). It is told
// window by window what was moved under the deadline it asked for, and asks
// for the next. Pure: the caller has the clock.
//
// It sweeps the ladder up and down, so that a drift of the load counts on both
// sides alike, then those that came near the best once more and for longer, and
// takes the smallest deadline that is as good as the best: what does not move
// more data only costs time. Then it keeps still, looks
// again after longer and longer pauses, and sweeps at once when what is moved
// changes by itself. Without contiguous requests the deadline is 0.
type Tuner struct {
	at     int // index of the deadline in force
	chosen int
	state  tunerState

	order []int // of the sweep, by index
	again bool  // the second look, at those near the best
	step  int
	skip  int // windows still to be ignored after a change
	left  int // windows still to be measured in this step
	moved [len(ladder)]float64
	count [len(ladder)]int

	pause, rest int     // windows between sweeps, and left of the pause now
	level       float64 // bytes per ns since the choice, moving average
	odd         int     // windows in a row far off the level
	barren      int     // windows in a row without contiguous requests
}

type tunerState uint8

const (
	tunerIdle tunerState = iota
	tunerSweep
	tunerKeep
)

// The tuner's measures, in windows and shares.
const (
	settleWindows = 1     // ignored after a change of the deadline
	stepWindows   = 2     // measured per step of a sweep
	minPause      = 200   // windows between two sweeps, doubled up to maxPause
	maxPause      = 3000  //
	barrenWindows = 5     // without contiguous requests: idle
	againWindows  = 3     // measured per step of the second look
	near          = 0.90  // of the best: looked at again
	nearMost      = 3     // so many at most, besides the smallest of them
	asGood        = 0.985 // of the best is as good as the best
	hopeless      = 0.70  // of the best: longer deadlines are not tried
	oddWindows    = 5     // so many in a row, off by more than oddShare: sweep again
	oddShare      = 0.35
)

// Start makes the tuner begin with a deadline remembered from before, ns.
func (t *Tuner) Start(deadline int64) {
	for i, d := range ladder {
		if d <= deadline {
			t.at, t.chosen = i, i
		}
	}
	if t.at > 0 {
		t.keep(minPause)
	}
}

// Deadline is the one in force, ns.
func (t *Tuner) Deadline() int64 { return ladder[t.at] }

// Chosen is the one the last sweep found, ns: what to remember.
func (t *Tuner) Chosen() int64 { return ladder[t.chosen] }

// Settled reports that it is not trying deadlines: it found one, or sees nothing
// to merge.
func (t *Tuner) Settled() bool { return t.state != tunerSweep }

// Window takes in that bytes were moved in took ns, and that so many requests
// continued a stream that had something in flight. It returns the deadline for
// the next window, ns.
func (t *Tuner) Window(bytes uint64, took int64, contiguous int) int64 {
	if took <= 0 {
		return t.Deadline()
	}
	rate := float64(bytes) / float64(took)
	if t.barren++; contiguous > 0 {
		t.barren = 0
	}
	switch {
	case t.barren >= barrenWindows:
		t.state, t.at = tunerIdle, 0
	case t.state == tunerIdle && contiguous > 0:
		t.pause = 0
		t.sweep()
	case t.state == tunerSweep:
		t.measure(rate)
	case t.state == tunerKeep:
		t.watch(rate)
	}
	return t.Deadline()
}

// sweep begins at 0 and goes up, then down again.
func (t *Tuner) sweep() {
	t.state, t.step, t.again = tunerSweep, 0, false
	t.order = t.order[:0]
	for i := range ladder {
		t.order = append(t.order, i)
	}
	for i := len(ladder) - 1; i >= 0; i-- {
		t.order = append(t.order, i)
	}
	t.moved, t.count = [len(ladder)]float64{}, [len(ladder)]int{}
	t.enter()
}

// enter puts the deadline of the present step in force.
func (t *Tuner) enter() {
	t.at, t.skip, t.left = t.order[t.step], settleWindows, stepWindows
	if t.again {
		t.left = againWindows
	}
}

func (t *Tuner) measure(rate float64) {
	if t.skip > 0 {
		t.skip--
		return
	}
	t.moved[t.at] += rate
	t.count[t.at]++
	if t.left--; t.left > 0 {
		return
	}
	if !t.again && t.step < len(ladder) && t.mean(t.at) < hopeless*t.best() {
		// Up no further: down from here.
		t.order = t.order[:t.step+1]
		for i := t.at; i >= 0; i-- {
			t.order = append(t.order, i)
		}
	}
	if t.step++; t.step < len(t.order) {
		t.enter()
		return
	}
	if !t.again && t.closeCall() {
		t.again, t.step = true, 0
		t.enter()
		return
	}
	t.choose()
}

// closeCall makes those near the best the next order, up and down; false if
// the best stands alone.
func (t *Tuner) closeCall() bool {
	best := t.best()
	var few []int
	for i := range ladder {
		if t.mean(i) >= near*best {
			few = append(few, i)
		}
	}
	for len(few) > nearMost+1 {
		worst := 1 // never the smallest: it wins if all are equal
		for k := 2; k < len(few); k++ {
			if t.mean(few[k]) < t.mean(few[worst]) {
				worst = k
			}
		}
		few = slices.Delete(few, worst, worst+1)
	}
	if len(few) < 2 {
		return false
	}
	t.order = append(t.order[:0], few...)
	slices.Reverse(few)
	t.order = append(t.order, few...)
	return true
}

func (t *Tuner) mean(i int) float64 {
	if t.count[i] == 0 {
		return 0
	}
	return t.moved[i] / float64(t.count[i])
}

func (t *Tuner) best() (b float64) {
	for i := range ladder {
		b = max(b, t.mean(i))
	}
	return b
}

func (t *Tuner) choose() {
	before, best := t.chosen, t.best()
	for i := range ladder {
		if t.mean(i) >= asGood*best {
			t.at, t.chosen = i, i
			break
		}
	}
	pause := minPause
	if t.chosen == before {
		pause = min(max(2*t.pause, minPause), maxPause)
	}
	t.keep(pause)
}

func (t *Tuner) keep(pause int) {
	t.state, t.pause, t.rest = tunerKeep, pause, pause
	t.level, t.odd, t.skip = 0, 0, settleWindows
}

// watch keeps still until the pause is over, or the load is another one.
func (t *Tuner) watch(rate float64) {
	if t.skip > 0 {
		t.skip--
		return
	}
	if t.level == 0 {
		t.level = rate
	}
	if t.odd++; rate > (1-oddShare)*t.level && rate < (1+oddShare)*t.level {
		t.odd = 0
		t.level += (rate - t.level) / 16
	}
	if t.rest--; t.rest <= 0 || t.odd >= oddWindows {
		if t.odd >= oddWindows {
			t.pause = 0
		}
		t.sweep()
	}
}
