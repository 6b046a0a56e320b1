package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/device"
)

// generator draws a script: everything that is random about it but the order in
// which goroutines run comes from its seed.
type generator struct {
	*rand.Rand
	s     *Script
	kills int
}

// Generate makes the script of a seed.
func Generate(seed uint64) *Script {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 0x5c819)), s: &Script{Setup: defaults()}}
	g.s.Setup.Seed = seed
	g.setup()
	g.limits()
	n := 6 + g.IntN(30)
	switch g.IntN(8) {
	case 0:
		n = g.meetings()
	case 1:
		n = g.standing()
	}
	for len(g.s.Steps) < n {
		g.draw()
	}
	slices.SortStableFunc(g.s.Steps, func(a, b Step) int { return int(a.At - b.At) })
	return g.s
}

// meetings makes a script in which goroutines meet: no delays, short pauses.
func (g *generator) meetings() (steps int) {
	s := &g.s.Setup
	s.Haste, s.Yields, s.Delay, s.Jitter = true, true, 0, 0
	s.Clients, s.Flight = 2+g.IntN(3), 1+g.IntN(3)
	s.Procs = pickOf(g, 1, 4)
	if g.IntN(2) == 0 { // answers come before their payload is accounted for
		s.LargeShare, s.Large, s.MaxTransfer, s.MaxBurst, s.FirstBurst = 60, 32<<10, 64<<10, 1<<20, 64<<10
		s.InitialR2T, s.NoImmediate = false, false
	}
	return g.IntN(8)
}

// standing makes a script of senders that stand in their calls with long
// payloads, which nobody must touch before they have left.
func (g *generator) standing() (steps int) {
	s := &g.s.Setup
	for len(s.Paths) < 2 {
		s.Paths = append(s.Paths, [2]uint16{2, 1})
	}
	s.Clients, s.Flight, s.Depth, s.TargetDepth = 2+g.IntN(3), 8, 32, 128
	s.Pause = g.between(20*time.Millisecond, 40*time.Millisecond)
	s.LargeShare, s.Large, s.MaxTransfer, s.MaxBurst, s.FirstBurst = 70, 64<<10, 64<<10, 1<<20, 64<<10
	s.InitialR2T, s.NoImmediate = false, false
	s.Selector = pickOf(g, "round-robin", "io-affinity")
	s.PathTimeout = g.between(time.Second, 1500*time.Millisecond)
	for at := time.Second; at < s.Run; at += 4 * time.Second {
		g.stuck(at)
	}
	return len(g.s.Steps) + g.IntN(5)
}

func pickOf[T any](g *generator, of ...T) T { return of[g.IntN(len(of))] }

func (g *generator) between(lo, hi time.Duration) time.Duration {
	return (lo + time.Duration(g.Int64N(int64(hi-lo)+1))).Round(time.Microsecond)
}

// setup draws paths, clients and what they ask.
func (g *generator) setup() {
	s := &g.s.Setup
	s.Run = g.between(6*time.Second, 20*time.Second)
	s.Paths = nil
	sharing := g.IntN(3) == 0
	for i := range pickOf(g, 1, 2, 2, 2, 3, 3, 4) {
		p := [2]uint16{uint16(i + 1), uint16(1 + g.IntN(2))}
		if sharing {
			p[0] = uint16(1 + g.IntN(2))
		}
		s.Paths = append(s.Paths, p)
	}
	s.Clients = pickOf(g, 1, 1, 2, 3, 4)
	s.Flight = pickOf(g, 1, 2, 4, 8, 16, 24)
	requests := 200 + g.IntN(800)
	s.Pause = max(time.Duration(float64(s.Run)*float64(s.Clients)*1.6/float64(requests)).Round(time.Microsecond), time.Millisecond)
	s.Selector = pickOf(g, "round-robin", "service-time", "queue-length", "io-affinity", "historical-service-time")
	s.Merge = g.mergeDeadline()
	s.Polling = g.polling()
	s.Failback = pickOf(g, "immediate", "immediate", "manual", g.between(100*time.Millisecond, 5*time.Second).String())
	if g.IntN(3) == 0 {
		s.Streams = pickOf(g, 30, 90, 100)
	}
	s.Replays = g.IntN(5) != 0
	s.Delay = g.between(0, 3*time.Millisecond)
	s.Jitter = g.between(0, 3*time.Millisecond)
	if g.IntN(3) == 0 {
		s.Delay, s.Jitter = 0, 0 // answers come while their request is still being sent
	}
	if g.IntN(8) == 0 {
		s.Procs = 4
	}
	s.Yields = g.IntN(8) != 0
}

// mergeDeadline draws one: longer ones than links take hold requests for their
// whole time.
func (g *generator) mergeDeadline() string {
	return pickOf(g, "off", "0", "0", "auto", g.between(10*time.Microsecond, pickOf(g, time.Millisecond, 100*time.Millisecond)).String())
}

func (g *generator) polling() string { return pickOf(g, "off", "off", "adaptive", "50us") }

// limits draws sizes and timeouts.
func (g *generator) limits() {
	s := &g.s.Setup
	if g.IntN(8) == 0 {
		s.BlockSize = 4096
	}
	s.Blocks = pickOf(g, 256, 512, 1024)
	s.Depth = pickOf(g, 2, 3, 8, 16, 32)
	s.TargetDepth = pickOf(g, 2, 4, 8, 128, 128)
	s.Fence = g.between(3*time.Second, 8*time.Second)
	s.PathTimeout = g.between(time.Second, 3*time.Second)
	s.CmdTimeout = g.between(3*time.Second, 6*time.Second)
	if g.IntN(6) == 0 {
		s.NoPath = g.between(time.Second, 6*time.Second)
	}
	s.MaxBurst = pickOf[uint](g, 4<<10, 16<<10, 64<<10, 1<<20)
	s.FirstBurst = min(pickOf[uint](g, 512, 4<<10, 64<<10), s.MaxBurst)
	s.MaxTransfer = pickOf[uint](g, 4<<10, 8<<10, 16<<10, 64<<10)
	s.Large = pickOf(g, 32<<10, 64<<10, 128<<10)
	if s.MaxTransfer == 4<<10 && s.Blocks*s.BlockSize >= 512<<10 && g.IntN(3) == 0 {
		s.Large = 400 << 10 // more parts than one wave has
	}
	s.Large = min(s.Large, s.Blocks*s.BlockSize)
	if g.IntN(2) == 0 { // payloads too long to be copied beside their headers
		s.LargeShare, s.Large, s.MaxTransfer, s.MaxBurst = 50, 64<<10, 64<<10, 1<<20
		s.FirstBurst = pickOf[uint](g, 512, 64<<10)
	}
	s.InitialR2T = g.IntN(3) == 0
	s.NoImmediate = g.IntN(3) == 0
	s.WriteThrough = g.IntN(8) == 0
	s.PowerOn = g.IntN(3) == 0
}

func (g *generator) path() string {
	return strconv.Itoa(1 + g.IntN(len(g.s.Setup.Paths)))
}

// add appends a step.
func (g *generator) add(at, lasts time.Duration, words ...string) {
	g.s.Steps = append(g.s.Steps, Step{At: at, Verb: words[0], Args: words[1:], For: lasts})
}

// short is the length of a fault: most are short, some outlast every timeout.
func (g *generator) short() time.Duration {
	return g.between(time.Millisecond, pickOf(g, 50*time.Millisecond, time.Second, 3*time.Second, 7*time.Second))
}

// kept is how long a target may keep a command back.
func (g *generator) kept() time.Duration {
	return g.between(10*time.Millisecond, g.s.Setup.Fence-2*wireMax)
}

func (g *generator) kind() string {
	return pickOf(g, "any", "reads", "writes", "writes", "writes", "flushes", "trims", "zeroes")
}

func (g *generator) count(n int) string { return strconv.Itoa(1 + g.IntN(n)) }

// drawn are the faults there are, with how often they come.
var drawn = []struct {
	weight int
	draw   func(g *generator, at time.Duration)
}{
	{14, func(g *generator, at time.Duration) { g.add(at, 0, "cut", g.path()) }},
	{10, func(g *generator, at time.Duration) {
		g.add(at, g.short(), "hole", g.path(), pickOf(g, "tx", "rx", "both"))
	}},
	{5, func(g *generator, at time.Duration) {
		g.add(at, g.short(), "delay", g.path(), g.between(0, wireMax).String())
	}},
	{4, func(g *generator, at time.Duration) {
		g.add(at, g.short(), "rate", g.path(), strconv.Itoa(20_000+g.IntN(2_000_000)))
	}},
	{4, func(g *generator, at time.Duration) {
		g.add(at, g.short(), "freeze", g.path(), g.between(0, 4*time.Second).String())
	}},
	{6, func(g *generator, at time.Duration) { g.add(at, g.short(), "down", g.path()) }},
	{6, func(g *generator, at time.Duration) { g.add(at, g.kept(), "hold", g.kind(), g.count(8)) }},
	{6, func(g *generator, at time.Duration) { g.add(at, g.kept(), "hold", g.kind(), g.count(8), "late") }},
	{4, func(g *generator, at time.Duration) {
		g.add(at, 0, "slow", g.kind(), g.count(12), g.kept().String())
	}},
	{4, func(g *generator, at time.Duration) { g.add(at, 0, "mute", g.kind(), g.count(3)) }},
	{3, func(g *generator, at time.Duration) { g.add(at, 0, "busy", g.count(6)) }},
	{3, func(g *generator, at time.Duration) { g.add(at, 0, "busy", g.count(6), "full") }},
	{5, (*generator).sense},
	{1, func(g *generator, at time.Duration) {
		g.add(at, 0, "status", pickOf(g, "40", "30", "77"), g.count(3))
	}},
	{6, func(g *generator, at time.Duration) {
		g.add(at, g.short(), "alua", g.count(2), pickOf(g, "non-optimized", "standby", "unavailable", "offline", "transitioning"))
	}},
	{3, func(g *generator, at time.Duration) { g.add(at, g.short(), "redirect", g.path(), g.path()) }},
	{3, func(g *generator, at time.Duration) {
		g.add(at, g.short(), "refuse", g.path(), pickOf(g, "2", "3"), g.count(2))
	}},
	{3, func(g *generator, at time.Duration) { g.add(at, 0, "logout", g.path()) }},
	{2, func(g *generator, at time.Duration) { g.add(at, 0, "ping", g.path()) }},
	{3, func(g *generator, at time.Duration) { g.add(at, 0, "grow", strconv.Itoa(8*(1+g.IntN(8)))) }},
	{5, func(g *generator, at time.Duration) { g.add(at, g.short(), "swap", g.path()) }},
	{6, (*generator).die},
	{6, (*generator).kill},
	{4, func(g *generator, at time.Duration) {
		g.add(at, 0, "reconnect", strconv.Itoa(g.IntN(g.s.Setup.Clients)))
	}},
	{5, (*generator).order},
	{3, (*generator).tune},
	{4, (*generator).lame},
	{10, (*generator).orphan},
	{10, (*generator).stuck},
}

// draw adds one fault, or one story of several.
func (g *generator) draw() {
	total := 0
	for _, d := range drawn {
		total += d.weight
	}
	n := g.IntN(total)
	for _, d := range drawn {
		if n -= d.weight; n < 0 {
			d.draw(g, g.between(100*time.Millisecond, g.s.Setup.Run))
			return
		}
	}
}

func (g *generator) sense(at time.Duration) {
	s := pickOf(g, "b 0 0", "b 47 1", "6 2a 1", "6 29 0", "6 29 7", "6 28 0", "6 3f 3", "6 3f e", "6 2a 9", "2 4 1", "2 4 a", "2 4 b", "4 44 0", "5 25 0")
	var k, a, q string
	_, _ = fmt.Sscan(s, &k, &a, &q)
	g.add(at, 0, "sense", k, a, q, g.count(3))
}

func (g *generator) die(at time.Duration) {
	words := []string{"die"}
	if g.IntN(2) == 0 {
		words = append(words, "lose")
	}
	if g.IntN(2) == 0 {
		words = append(words, "silent")
	}
	g.add(at, g.short(), words...)
}

func (g *generator) kill(at time.Duration) {
	if g.kills++; g.kills > 3 {
		return
	}
	g.add(at, g.between(time.Millisecond, 2*time.Second), "kill")
}

// orphan is the story of I3: commands held by a target whose connection is gone
// and does not come back before they are executed.
func (g *generator) orphan(at time.Duration) {
	kept := g.kept()
	p := g.path()
	g.add(at, kept, "hold", pickOf(g, "writes", "writes", "any", "zeroes"), g.count(6), "late")
	gap := g.between(0, kept/2)
	switch g.IntN(4) {
	case 0:
		g.add(at+gap, g.between(kept, kept+2*time.Second), "hole", p, pickOf(g, "rx", "both"))
	case 1:
		g.add(at+gap, g.between(time.Millisecond, time.Second), "kill")
		g.add(at+gap, g.between(kept/2, kept+time.Second), "down", p)
	default:
		g.add(at+gap, g.between(kept/2, kept+2*time.Second), "down", p)
	}
}

// stuck is a sender that stands in its call, with what others queued meanwhile,
// while its path is given up.
func (g *generator) stuck(at time.Duration) {
	p, limit := g.path(), g.s.Setup.PathTimeout
	long := g.between(2*limit, 3*limit)
	g.add(at, long, "freeze", p, g.between(limit/2, limit).String())
	g.add(at, long, "hole", p, "rx")
}

// order is what an operator asks of a path, and takes back now and then.
func (g *generator) order(at time.Duration) {
	p := g.path()
	switch g.IntN(5) {
	case 0, 1:
		g.add(at, 0, "drain", p)
	case 2, 3:
		g.add(at, 0, "prefer", p)
	default:
		g.add(at, 0, "failback")
		return
	}
	if g.IntN(2) == 0 {
		g.add(at+g.short(), 0, "enable", p)
	}
}

func (g *generator) tune(at time.Duration) {
	if g.IntN(4) == 0 {
		g.add(at, 0, "tune", device.TunePolling, g.polling())
		return
	}
	g.add(at, 0, "tune", device.TuneMergeDeadline, g.mergeDeadline())
}

// lame is a path that works, and is much slower than the others.
func (g *generator) lame(at time.Duration) {
	lasts := g.between(2*time.Second, 8*time.Second)
	if g.IntN(3) == 0 {
		g.add(at, lasts, "rate", g.path(), strconv.Itoa(20_000+g.IntN(50_000)))
		return
	}
	g.add(at, lasts, "delay", g.path(), g.between(wireMax/4, wireMax).String())
}
