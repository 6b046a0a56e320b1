package sim

import (
	"fmt"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/device"
	"github.com/csi-mpath/csi-mpath/pkg/target/serve"
)

// verb is a kind of step.
type verb struct {
	usage string
	// make reads the arguments and returns what to do. Its result is called with
	// world.mu held, and so is what that returns, after the step's time.
	make func(a *args) func(r *run) (end func())
	// lasts: the step needs a time.
	lasts bool
	// only is the transport that has the like; empty: each.
	only string
}

// args are a step's words on their way to values; err is the first that is bad.
type args struct {
	setup *Setup
	step  *Step
	rest  []string
	err   error
}

func (v *verb) fits(setup *Setup, st *Step) error {
	_, err := v.action(setup, st)
	return err
}

func (v *verb) action(setup *Setup, st *Step) (func(r *run) func(), error) {
	a := &args{setup: setup, step: st, rest: st.Args}
	do := v.make(a)
	switch {
	case v.only != "" && v.only != setup.Transport:
		return nil, fmt.Errorf("%s is a step of transport %s", st.Verb, v.only)
	case a.err != nil:
		return nil, fmt.Errorf("want %s %s: %w", st.Verb, v.usage, a.err)
	case len(a.rest) > 0:
		return nil, fmt.Errorf("want %s %s", st.Verb, v.usage)
	case v.lasts != (st.For > 0):
		return nil, fmt.Errorf("want %s %s: a time is missing, or too much", st.Verb, v.usage)
	}
	return do, nil
}

func (a *args) word() string {
	if len(a.rest) == 0 {
		a.fail(fmt.Errorf("a word is missing"))
		return ""
	}
	w := a.rest[0]
	a.rest = a.rest[1:]
	return w
}

func (a *args) fail(err error) {
	if a.err == nil {
		a.err = err
	}
}

func (a *args) num(base, lo, hi int) int {
	w := a.word()
	n, err := strconv.ParseInt(w, base, 64)
	if err != nil || int(n) < lo || int(n) > hi {
		a.fail(fmt.Errorf("%q is not in %d..%d", w, lo, hi))
		return lo
	}
	return int(n)
}

func (a *args) span(hi time.Duration) time.Duration {
	d, err := span(a.word())
	if err == nil && d > hi {
		err = fmt.Errorf("%v is more than %v", d, hi)
	}
	a.fail2(err)
	return d
}

func (a *args) fail2(err error) {
	if err != nil {
		a.fail(err)
	}
}

func choice[T any](a *args, of map[string]T) T {
	w := a.word()
	v, ok := of[w]
	if !ok {
		a.fail(fmt.Errorf("%q is none of the words there are", w))
	}
	return v
}

// option takes a word if it is there.
func (a *args) option(w string) bool {
	if i := slices.Index(a.rest, w); i >= 0 {
		a.rest = slices.Delete(slices.Clone(a.rest), i, i+1)
		return true
	}
	return false
}

func (a *args) path() int { return a.num(10, 1, len(a.setup.Paths)) }

// late bounds what a target keeps back: it must be over before a fence by time,
// which promises nothing about targets slower than that.
func (a *args) late(d time.Duration) {
	if d > a.setup.Fence-2*wireMax {
		a.fail(fmt.Errorf("a command kept for %v outlives the fence", d))
	}
}

var kinds = map[string]serve.Kind{"any": serve.Any, "reads": serve.Reads, "writes": serve.Writes,
	"flushes": serve.Flushes, "trims": serve.Trims, "zeroes": serve.Zeroes, "admin": serve.Admin}

var holes = map[string][2]bool{"tx": {true, false}, "rx": {false, true}, "both": {true, true}}

var verbs = map[string]*verb{
	// The network.
	"cut":    {"PATH [one]", makeCut, false, ""},
	"hole":   {"PATH tx|rx|both", makeHole, true, ""},
	"delay":  {"PATH TIME", makeDelay, true, ""},
	"rate":   {"PATH BYTES-PER-SECOND", makeRate, true, ""},
	"freeze": {"PATH TIME", makeFreeze, true, ""},
	"down":   {"PATH", makeDown, true, ""},
	"spoil":  {"PATH COUNT (with digests)", makeSpoil, false, overNVMe},
	// The target's commands.
	"hold":   {"KIND COUNT [late]", makeHold, true, ""},
	"slow":   {"KIND COUNT TIME", makeSlow, false, ""},
	"mute":   {"KIND COUNT", makeMute, false, ""},
	"busy":   {"COUNT [full]", makeBusy, false, ""},
	"sense":  {"KEY ASC ASCQ COUNT (hexadecimal)", makeSense, false, overISCSI},
	"status": {"STATUS COUNT (hexadecimal)", makeStatus, false, ""},
	// The target.
	"alua":      {"GROUP STATE", makeAccess, true, ""},
	"attention": {"PATH ASC ASCQ (hexadecimal)", makeAttention, false, overISCSI},
	"notice":    {"PATH", makeNotice, false, overNVMe},
	"redirect":  {"PATH PATH", makeRedirect, true, overISCSI},
	"refuse":    {"PATH CLASS DETAIL, or over NVMe PATH STATUS (hexadecimal)", makeRefuse, true, ""},
	"logout":    {"PATH", makeLogout, false, overISCSI},
	"reset":     {"PATH", makeReset, false, overNVMe},
	"ping":      {"PATH", makePing, false, overISCSI},
	"grow":      {"BLOCKS", makeGrow, false, ""},
	"swap":      {"PATH", makeSwap, true, ""},
	"die":       {"[lose] [silent]", makeDie, true, ""},
	// The operator.
	"drain":    {"PATH", makeOrder(device.OrderDrain), false, ""},
	"enable":   {"PATH", makeOrder(device.OrderEnable), false, ""},
	"prefer":   {"PATH", makeOrder(device.OrderPrefer), false, ""},
	"failback": {"", makeOrder(device.OrderFailback), false, ""},
	"tune":     {"merge-deadline|polling|path-selector VALUE", makeTune, false, ""},
	// This host.
	"kill":      {"", makeKill, true, ""},
	"reconnect": {"CLIENT", makeReconnect, false, ""},
}

func makeCut(a *args) func(r *run) func() {
	p, one := a.path(), a.option("one")
	return func(r *run) func() {
		live := slices.DeleteFunc(slices.Clone(r.path(p).links), func(l *link) bool { return l.closed || l.killed })
		if one && len(live) > 1 {
			live = live[r.w.dice.IntN(len(live)):][:1]
		}
		for _, l := range live {
			l.reset()
		}
		return nil
	}
}

func makeHole(a *args) func(r *run) func() {
	p, which := a.path(), choice(a, holes)
	return func(r *run) func() {
		p := r.path(p)
		p.hole = which
		for _, l := range p.links {
			if which[toTarget] && (l.closed || l.killed) {
				l.tx.segs = nil // nobody sends it again
			}
		}
		return func() { r.array.mend(p) }
	}
}

func makeDelay(a *args) func(r *run) func() {
	p, d := a.path(), a.span(wireMax)
	return func(r *run) func() {
		p := r.path(p)
		p.delay = d
		return func() { p.delay = r.Setup.Delay }
	}
}

func makeRate(a *args) func(r *run) func() {
	p, n := a.path(), a.num(10, 1000, 1<<30)
	return func(r *run) func() {
		p := r.path(p)
		p.rate = n
		return func() { p.rate = 0 }
	}
}

func makeFreeze(a *args) func(r *run) func() {
	p, d := a.path(), a.span(time.Minute)
	return func(r *run) func() {
		p := r.path(p)
		p.stands = d
		return func() { p.stands = 0 }
	}
}

func makeDown(a *args) func(r *run) func() {
	p := a.path()
	return func(r *run) func() {
		p := r.path(p)
		p.down = true
		for _, l := range slices.Clone(p.links) {
			if l.conn != nil {
				l.pend = nil
				l.gone()
				l.finish(syscall.ECONNRESET)
			}
		}
		return func() { p.down = false }
	}
}

// makeSpoil changes a byte of each of the next pieces of data on a path, whichever
// way they go. Only digests can tell.
func makeSpoil(a *args) func(r *run) func() {
	p, n := a.path(), a.num(10, 1, 1000)
	if !a.setup.Digests {
		a.fail(fmt.Errorf("without digests nobody would know"))
	}
	return func(r *run) func() {
		r.path(p).spoil = n
		return nil
	}
}

func makeHold(a *args) func(r *run) func() {
	m := a.match()
	late := a.option("late")
	if late && m.Kind == serve.Admin {
		a.fail(fmt.Errorf("no admin command is executed late"))
	}
	a.late(a.step.For)
	return func(r *run) func() {
		var h *serve.Held
		on := r.array.m
		r.array.do(func(f front) { h, _ = f.Hold(m, late, nil) })
		return func() {
			if r.array.m == on {
				r.array.do(func(front) { h.Release() })
			}
		}
	}
}

func makeSlow(a *args) func(r *run) func() {
	m := a.match()
	d := a.span(maxTime)
	a.late(d)
	return rule(func(f front) { _ = f.Delay(m, d) })
}

// match reads which commands a fault meets.
func (a *args) match() serve.Match {
	m := serve.Match{Kind: choice(a, kinds), Count: a.num(10, 1, 1000)}
	if m.Kind == serve.Admin && a.setup.Transport != overNVMe {
		a.fail(fmt.Errorf("transport %s has no admin commands", a.setup.Transport))
	}
	return m
}

func rule(f func(m front)) func(r *run) func() {
	return func(r *run) func() {
		r.array.do(f)
		return nil
	}
}

func makeMute(a *args) func(r *run) func() {
	m := a.match()
	if m.Kind == serve.Admin {
		a.fail(fmt.Errorf("an event that nobody is told is none: admin commands are answered"))
	}
	return rule(func(f front) { _ = f.DropAnswer(m) })
}
