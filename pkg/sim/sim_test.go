package sim

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

var (
	asWorker  = flag.Bool("sim.worker", false, "play scripts for another process")
	fromSeed  = flag.Uint64("sim.seed", 1, "first seed of -sim.count")
	seeds     = flag.Int("sim.count", 0, "play so many seeds in processes of their own")
	over      = flag.String("sim.transport", "", "of all seeds; empty draws it")
	oneFile   = flag.String("sim.script", "", "play the script in this file")
	times     = flag.Int("sim.times", 1, "how often to play the script")
	workers   = flag.Int("sim.workers", runtime.NumCPU(), "processes")
	minimal   = flag.Bool("sim.shrink", true, "look for the smallest script that fails")
	readAlong = flag.Bool("sim.trace", false, "print what happens in -sim.script, played once")
	printout  = flag.Bool("sim.print", false, "print the scripts of the seeds, play nothing")
)

func TestARunWithoutFaultsIsQuiet(t *testing.T) {
	s, err := Parse(strings.NewReader("set seed 1\n"))
	if err != nil {
		t.Fatal(err)
	}
	rep := playOne(t, s, nil)
	for _, b := range rep.Broken {
		t.Error(b)
	}
	if rep.Stats.Requests < 500 || rep.Stats.Losses+rep.Stats.Errors+rep.Stats.Replays > 0 {
		t.Errorf("%+v", rep.Stats)
	}
}

func TestFixedSeedsBreakNoRule(t *testing.T) {
	const first, count = 1000, 16
	var sum Stats
	for seed := uint64(first); seed < first+count; seed++ {
		rep := playOne(t, Generate(seed, ""), nil)
		sum.add(rep.Stats)
		for _, b := range rep.Broken {
			t.Errorf("seed %d: %s", seed, b)
		}
	}
	t.Log(sum.line())
	if sum.Kills == 0 || sum.Fences == 0 || sum.PowerLosses == 0 || sum.Late == 0 || sum.Mismatches == 0 ||
		sum.Marginal == 0 || sum.Orders == 0 || sum.Merged == 0 {
		t.Errorf("too little happened: %s", sum.line())
	}
}

// TestWorker is what the processes of TestSeeds run.
func TestWorker(t *testing.T) {
	if *asWorker {
		work(t, os.Stdin, os.NewFile(3, "results"))
	}
}

// TestSeeds is make sim.
func TestSeeds(t *testing.T) {
	switch {
	case *printout:
		for i := range *seeds {
			fmt.Println(Generate(*fromSeed+uint64(i), *over))
		}
	case *oneFile != "":
		playFile(t)
	case *seeds > 0:
		playSeeds(t)
	}
}

func playFile(t *testing.T) {
	f, err := os.Open(*oneFile)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s, err := Parse(f)
	if err != nil {
		t.Fatal(err)
	}
	if *readAlong {
		playOne(t, s, func(line string) { fmt.Println(line) })
		return
	}
	k := &shrinker{workers: *workers}
	broken, n := k.fails(s, max(*times, tries+1))
	fmt.Printf("%d of %d runs failed\n", n, k.runs)
	if n > 0 {
		t.Fatalf("\n%s", strings.Join(broken, "\n"))
	}
}

func playSeeds(t *testing.T) {
	next, done, begin, last := 0, 0, time.Now(), time.Now()
	var sum Stats
	var bad *Script
	var broken []string
	progress := func() {
		d := time.Since(begin)
		fmt.Printf("%d of %d seeds, %.1f per second; %s\n", done, *seeds, float64(done)/d.Seconds(), sum.line())
	}
	err := pool(*workers, func() *Script {
		if next == *seeds {
			return nil
		}
		next++
		return Generate(*fromSeed+uint64(next-1), *over)
	}, func(s *Script, rep Report) bool {
		done++
		sum.add(rep.Stats)
		if len(rep.Broken) > 0 && bad == nil {
			bad, broken = s, rep.Broken
			return false
		}
		if time.Since(last) > progressEvery {
			last = time.Now()
			progress()
		}
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	progress()
	if bad != nil {
		fail(t, bad, broken)
	}
}

// fail shrinks and prints a script that failed.
func fail(t *testing.T, s *Script, broken []string) {
	fmt.Printf("seed %d after %d steps failed:\n  %s\n", s.Setup.Seed, len(s.Steps), strings.Join(broken, "\n  "))
	if !*minimal {
		t.Fatal("see above")
	}
	k := &shrinker{workers: *workers, say: func(f string, a ...any) { fmt.Printf(f+"\n", a...) }}
	small, why := k.shrink(s, broken)
	const counted = 10
	_, n := k.fails(small, counted)
	text := explain(small, why, fmt.Sprintf("  it fails in %d of %d runs", n, counted))
	fmt.Print(text)
	t.Fatal("see above")
}

func TestCases(t *testing.T) {
	files, err := filepath.Glob("testdata/cases/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".txt"), func(t *testing.T) {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			s, err := Parse(strings.NewReader(string(b)))
			if err != nil {
				t.Fatal(err)
			}
			for _, b := range playOne(t, s, nil).Broken {
				t.Error(b)
			}
		})
	}
}
