package sim

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"time"
)

// generator draws a script: everything that is random about it but the order in
// which goroutines run comes from its seed.
type generator struct {
	*rand.Rand
	s     *Script
	kills int
}

// Generate makes the script of a seed; transport is one of Transports, or empty
// for one or the other.
func Generate(seed uint64, transport string) *Script {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 0x5c819)), s: &Script{Setup: defaults()}}
	g.s.Setup.Seed = seed
	g.s.Setup.Transport = pickOf(g, Transports()...)
	if transport != "" {
		g.s.Setup.Transport = transport
	}
	g.setup()
	g.limits()
	if g.s.Setup.Transport == overNVMe {
		g.queues()
	}
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
	s.Selector = g.selector()
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

func (g *generator) selector() string {
	return pickOf(g, "round-robin", "service-time", "queue-length", "io-affinity", "historical-service-time")
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

// queues draws what is NVMe's alone.
func (g *generator) queues() {
	s := &g.s.Setup
	s.Queues, s.HostQueues = pickOf(g, 1, 2, 8, 8), pickOf(g, 0, 1, 2, 4)
	s.TargetDepth++ // entries: one of them stays empty
	s.Align = pickOf(g, 0, 0, 1, 31)
	s.Digests, s.NoSuccess, s.NoTBKAS = g.IntN(2) == 0, g.IntN(3) == 0, g.IntN(3) == 0
	if g.IntN(3) == 0 {
		s.Quiesce = g.between(0, time.Second).Truncate(time.Millisecond)
	}
}

func (g *generator) nvme() bool { return g.s.Setup.Transport == overNVMe }

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
	{14, func(g *generator, at time.Duration) {
		words := []string{"cut", g.path()}
		if g.nvme() && g.IntN(2) == 0 {
			words = append(words, "one") // of several connections
		}
		g.add(at, 0, words...)
	}},
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
	{3, (*generator).refuse},
	{8, (*generator).spoken},
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
	{2, (*generator).flips},
	{5, func(g *generator, at time.Duration) {
		if g.s.Setup.Digests {
			g.add(at, 0, "spoil", g.path(), g.count(20))
		}
	}},
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
