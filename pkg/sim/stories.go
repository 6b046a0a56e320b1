package sim

import (
	"fmt"
	"strconv"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/device"
)

// The faults that generated scripts draw and that take more than a line, and
// those that are stories of several.

// sense is an error of the target's.
func (g *generator) sense(at time.Duration) {
	if g.nvme() {
		g.add(at, 0, "status", pickOf(g, "2", "4", "6", "7", "b", "21", "80", "82", "280", "281", "301", "302", "303", "360",
			"370", "371", "4006", "4281", "4302"), g.count(3))
		return
	}
	s := pickOf(g, "b 0 0", "b 47 1", "6 2a 1", "6 29 0", "6 29 7", "6 28 0", "6 3f 3", "6 3f e", "6 2a 9", "2 4 1", "2 4 a", "2 4 b", "4 44 0", "5 25 0")
	var k, a, q string
	_, _ = fmt.Sscan(s, &k, &a, &q)
	g.add(at, 0, "sense", k, a, q, g.count(3))
}

// refuse is a target that lets nobody in.
func (g *generator) refuse(at time.Duration) {
	if g.nvme() {
		g.add(at, g.short(), "refuse", g.path(), pickOf(g, "181", "4182", "4184", "6"))
		return
	}
	g.add(at, g.short(), "refuse", g.path(), pickOf(g, "2", "3"), g.count(2))
}

// spoken are the faults that only one protocol has words for.
func (g *generator) spoken(at time.Duration) {
	if g.nvme() {
		switch g.IntN(4) {
		case 0:
			g.add(at, 0, "reset", g.path())
		case 1:
			g.add(at, 0, "notice", g.path())
		case 2:
			g.add(at, g.kept(), "hold", "admin", g.count(4))
		default:
			g.add(at, 0, "slow", "admin", g.count(8), g.kept().String())
		}
		return
	}
	switch g.IntN(8) {
	case 0, 1, 2:
		g.add(at, g.short(), "redirect", g.path(), g.path())
	case 3, 4, 5:
		g.add(at, 0, "logout", g.path())
	default:
		g.add(at, 0, "ping", g.path())
	}
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
	switch g.IntN(4) {
	case 0:
		g.add(at, 0, "tune", device.TunePolling, g.polling())
		return
	case 1:
		g.add(at, 0, "tune", device.TunePathSelector, g.selector())
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

// flips are two groups of paths that take turns, each state for less than a second.
func (g *generator) flips(at time.Duration) {
	turn := g.between(50*time.Millisecond, time.Second)
	bad := pickOf(g, "non-optimized", "standby", "transitioning")
	for i := range 2 + g.IntN(6) {
		g.add(at+time.Duration(i)*turn, turn, "alua", strconv.Itoa(1+i%2), bad)
	}
}
