package sim

import (
	"fmt"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/device"
	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
	"github.com/csi-mpath/csi-mpath/pkg/target"
)

// verb is a kind of step.
type verb struct {
	usage string
	// make reads the arguments and returns what to do. Its result is called with
	// world.mu held, and so is what that returns, after the step's time.
	make func(a *args) func(r *run) (end func())
	// lasts: the step needs a time.
	lasts bool
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

var kinds = map[string]target.Kind{"any": target.Any, "reads": target.Reads, "writes": target.Writes,
	"flushes": target.Flushes, "trims": target.Trims, "zeroes": target.Zeroes}

var states = map[string]scsi.AccessState{"optimized": scsi.Optimized, "non-optimized": scsi.NonOptimized,
	"standby": scsi.Standby, "unavailable": scsi.Unavailable, "offline": scsi.Offline, "transitioning": scsi.Transitioning}

var holes = map[string][2]bool{"tx": {true, false}, "rx": {false, true}, "both": {true, true}}

var verbs = map[string]*verb{
	// The network.
	"cut":    {"PATH", makeCut, false},
	"hole":   {"PATH tx|rx|both", makeHole, true},
	"delay":  {"PATH TIME", makeDelay, true},
	"rate":   {"PATH BYTES-PER-SECOND", makeRate, true},
	"freeze": {"PATH TIME", makeFreeze, true},
	"down":   {"PATH", makeDown, true},
	// The target's commands.
	"hold":   {"KIND COUNT [late]", makeHold, true},
	"slow":   {"KIND COUNT TIME", makeSlow, false},
	"mute":   {"KIND COUNT", makeMute, false},
	"busy":   {"COUNT [full]", makeBusy, false},
	"sense":  {"KEY ASC ASCQ COUNT (hexadecimal)", makeSense, false},
	"status": {"STATUS COUNT (hexadecimal)", makeStatus, false},
	// The target.
	"alua":      {"GROUP STATE", makeALUA, true},
	"attention": {"PATH ASC ASCQ (hexadecimal)", makeAttention, false},
	"redirect":  {"PATH PATH", makeRedirect, true},
	"refuse":    {"PATH CLASS DETAIL", makeRefuse, true},
	"logout":    {"PATH", makeLogout, false},
	"ping":      {"PATH", makePing, false},
	"grow":      {"BLOCKS", makeGrow, false},
	"swap":      {"PATH", makeSwap, true},
	"die":       {"[lose] [silent]", makeDie, true},
	// The operator.
	"drain":    {"PATH", makeOrder(device.OrderDrain), false},
	"enable":   {"PATH", makeOrder(device.OrderEnable), false},
	"prefer":   {"PATH", makeOrder(device.OrderPrefer), false},
	"failback": {"", makeOrder(device.OrderFailback), false},
	"tune":     {"merge-deadline|polling VALUE", makeTune, false},
	// This host.
	"kill":      {"", makeKill, true},
	"reconnect": {"CLIENT", makeReconnect, false},
}

func makeCut(a *args) func(r *run) func() {
	p := a.path()
	return func(r *run) func() {
		for _, l := range slices.Clone(r.path(p).links) {
			if !l.closed && !l.killed {
				l.reset()
			}
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

func makeHold(a *args) func(r *run) func() {
	m := target.Match{Kind: choice(a, kinds), Count: a.num(10, 1, 1000)}
	late := a.option("late")
	a.late(a.step.For)
	return func(r *run) func() {
		var h *target.Held
		on := r.array.m
		r.array.do(func(m2 *target.Machine) { h, _ = m2.Hold(m, late, nil) })
		return func() {
			if r.array.m == on {
				r.array.do(func(*target.Machine) { h.Release() })
			}
		}
	}
}

func makeSlow(a *args) func(r *run) func() {
	m := target.Match{Kind: choice(a, kinds), Count: a.num(10, 1, 1000)}
	d := a.span(maxTime)
	a.late(d)
	return rule(func(x *target.Machine) error { return x.Delay(m, d) })
}

func rule(f func(m *target.Machine) error) func(r *run) func() {
	return func(r *run) func() {
		r.array.do(func(m *target.Machine) { _ = f(m) })
		return nil
	}
}

func makeMute(a *args) func(r *run) func() {
	m := target.Match{Kind: choice(a, kinds), Count: a.num(10, 1, 1000)}
	return rule(func(x *target.Machine) error { return x.DropAnswer(m) })
}

func makeBusy(a *args) func(r *run) func() {
	m, st := target.Match{Count: a.num(10, 1, 1000)}, byte(scsi.StatusBusy)
	if a.option("full") {
		st = scsi.StatusTaskSetFull
	}
	return func(r *run) func() {
		r.oracle.refuses(a.setup.CmdTimeout)
		r.array.do(func(x *target.Machine) { _ = x.Answer(m, st, scsi.Sense{}) })
		return nil
	}
}

func makeSense(a *args) func(r *run) func() {
	s := scsi.Sense{Key: byte(a.num(16, 0, 15)), ASC: byte(a.num(16, 0, 255)), ASCQ: byte(a.num(16, 0, 255))}
	n := a.num(16, 1, 1000)
	return answers(n, scsi.StatusCheckCondition, s)
}

func makeStatus(a *args) func(r *run) func() {
	return answers2(byte(a.num(16, 1, 255)), a)
}

func answers2(st byte, a *args) func(r *run) func() {
	return answers(a.num(16, 1, 1000), st, scsi.Sense{})
}

// answers makes the target refuse n commands; that may be what a client is told.
func answers(n int, st byte, s scsi.Sense) func(r *run) func() {
	return func(r *run) func() {
		r.oracle.mayFail(errorTime)
		r.array.do(func(m *target.Machine) { _ = m.Answer(target.Match{Kind: target.Any, Count: n}, st, s) })
		m := r.array.m
		r.w.after(errorTime, func() {
			if m != nil && m == r.array.m {
				r.array.do((*target.Machine).ClearFaults)
			}
		})
		return nil
	}
}

// errorTime is how long a target goes on answering with an error of the script's.
const errorTime = 2 * time.Second

func makeALUA(a *args) func(r *run) func() {
	g, st := uint16(a.num(10, 1, 255)), choice(a, states)
	return func(r *run) func() {
		r.array.do(func(m *target.Machine) { m.SetALUA(g, st) })
		return func() { r.array.do(func(m *target.Machine) { m.SetALUA(g, scsi.Optimized) }) }
	}
}

func makeAttention(a *args) func(r *run) func() {
	p := a.path()
	s := scsi.Sense{Key: scsi.KeyUnitAttention, ASC: byte(a.num(16, 0, 255)), ASCQ: byte(a.num(16, 0, 255))}
	if s.ASC == 0x29 && s.ASCQ == 0x01 {
		a.fail(fmt.Errorf("29 01 says that power was lost: die lose"))
	}
	return rule(func(m *target.Machine) error { m.Attention(p, lunNumber, s); return nil })
}

func makeRedirect(a *args) func(r *run) func() {
	p, to := a.path(), a.path()
	return func(r *run) func() {
		r.array.do(func(m *target.Machine) { _ = m.Redirect(p, r.path(to).address, false) })
		return func() { r.array.do(func(m *target.Machine) { _ = m.Redirect(p, "", false) }) }
	}
}

func makeRefuse(a *args) func(r *run) func() {
	p, class, detail := a.path(), byte(a.num(10, 2, 3)), byte(a.num(10, 0, 12))
	return func(r *run) func() {
		r.array.do(func(m *target.Machine) { _ = m.RefuseLogins(p, class, detail) })
		return func() { r.array.do(func(m *target.Machine) { _ = m.RefuseLogins(p, 0, 0) }) }
	}
}

func makeLogout(a *args) func(r *run) func() {
	p := a.path()
	return rule(func(m *target.Machine) error { m.Async(p, pdu.AsyncLogout, 1); return nil })
}

func makePing(a *args) func(r *run) func() {
	p := a.path()
	return rule(func(m *target.Machine) error { m.Ping(p); return nil })
}
