package sim

import (
	"fmt"
	"slices"
	"time"
)

// shrinker looks for a smaller script that still fails: it drops steps, halves
// before single ones, then clients and time. Each candidate is run several
// times, for a failure that needs a certain order of goroutines shows only
// sometimes.
type shrinker struct {
	workers int
	runs    int
	say     func(format string, args ...any)
}

// fails runs a script up to n times, and returns what went wrong first.
func (k *shrinker) fails(s *Script, n int) (broken []string, times int) {
	left := n
	err := pool(min(n, k.workers), func() *Script {
		if left == 0 {
			return nil
		}
		left--
		return s
	}, func(_ *Script, rep Report) bool {
		k.runs++
		if len(rep.Broken) > 0 {
			broken = rep.Broken
			times++
		}
		return n > tries || times == 0 // one is enough, unless they are counted
	})
	if err != nil {
		return []string{err.Error()}, 1
	}
	return broken, times
}

// shrink returns the smallest script found, and what it does wrong.
func (k *shrinker) shrink(s *Script, broken []string) (*Script, []string) {
	best := s
	try := func(c *Script) bool {
		if k.runs >= shrinkRuns || c.check() != nil {
			return false
		}
		b, _ := k.fails(c, tries)
		if len(b) == 0 {
			return false
		}
		best, broken = c, b
		k.say("shrunk to %d steps, %d clients and %v", len(c.Steps), c.Setup.Clients, c.Setup.Run)
		return true
	}
	for size := (len(best.Steps) + 1) / 2; size >= 1; {
		if !dropSteps(&best, size, try) || size > len(best.Steps) {
			size /= 2
		}
	}
	for best.Setup.Clients > 1 && try(with(best, func(u *Setup) { u.Clients-- })) {
	}
	for best.Setup.Run > time.Second && try(with(best, func(u *Setup) { u.Run = (u.Run / 2).Round(time.Millisecond) })) {
	}
	return best, broken
}

// dropSteps tries the script without each run of size steps; true when one went.
func dropSteps(best **Script, size int, try func(*Script) bool) (dropped bool) {
	for at := 0; at < len((*best).Steps); {
		c := &Script{Setup: (*best).Setup}
		c.Steps = slices.Concat((*best).Steps[:at], (*best).Steps[min(at+size, len((*best).Steps)):])
		if try(c) {
			dropped = true
			continue
		}
		at += size
	}
	return dropped
}

func with(s *Script, change func(u *Setup)) *Script {
	c := &Script{Setup: s.Setup, Steps: s.Steps}
	change(&c.Setup)
	return c
}

// explain prints a failure: what, how often it repeats, and the script.
func explain(s *Script, broken []string, repeats string) string {
	out := ""
	for _, b := range broken {
		out += "  " + b + "\n"
	}
	return fmt.Sprintf("%s%s\n----- script, for pkg/sim/testdata/cases or make sim SCRIPT=file\n%s-----\n", out, repeats, s)
}
