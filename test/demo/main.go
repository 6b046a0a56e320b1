// Command demo shows in half a minute what csi-mpath is for: one volume over two
// paths, a verifying load, and the loss of each path in turn. It exits with 1 if
// an I/O fails or a byte differs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/csi-mpath/csi-mpath/test/interop/rig"
)

const (
	mib = 1 << 20
	// The volume: a file system or fio in the first part, the probe in the second.
	volume    = 640 * mib
	firstPart = 128 * mib
	limit     = 5 * time.Minute // for a machine short of CPU
	calm      = 2 * time.Second
	// oneWay is the latency of the paths, each direction.
	oneWay = 500 * time.Microsecond
)

func main() {
	bin := flag.String("bin", "bin/csi-mpath", "csi-mpath binary")
	target := flag.String("target", "own", "own: csi-mpath's embedded target; tgt: Debian's tgt, with fio as a second load")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := fmt.Errorf("--target %q: want own or tgt", *target)
	if *target == "own" || *target == "tgt" {
		err = run(ctx, *bin, *target == "own")
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "\ndemo FAILED: %v\n", err)
		os.Exit(1)
	}
}

const intro = `
Two %s processes stand for the two controllers of a storage array:
they serve one disk under one identity. csi-mpath joins both paths to one device
in user space. A load writes to it, and reads back and checks what it wrote,
while the paths are broken one after the other.

`

func run(ctx context.Context, bin string, own bool) (err error) {
	s := &show{own: own}
	opt := rig.Options{Bin: bin, Size: volume, OneWay: oneWay, Own: own}
	name := "tgt"
	if own {
		name = "csi-mpath target"
		if s.mount, s.why = canMount(); s.mount {
			opt.Args = []string{"--device", "auto"}
		}
	}
	fmt.Printf(intro, name)
	if s.rig, err = rig.Start(ctx, opt); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.rig.Stop()) }()
	fmt.Printf("  controller %s   portal %s\n  controller %s   portal %s\n  device         %s\n",
		s.rig.Paths[0].Name, s.rig.Paths[0].Portal(), s.rig.Paths[1].Name, s.rig.Paths[1].Portal(), s.rig.Socket)
	s.begin = time.Now()
	if err := s.load(ctx); err != nil {
		return errors.Join(err, s.giveUp())
	}
	if err := errors.Join(s.settle(ctx, "undisturbed"), s.events(ctx)); err != nil {
		return errors.Join(err, s.giveUp())
	}
	return s.finish(ctx)
}

// settle watches quiet time and prints the longest answer in it.
func (s *show) settle(ctx context.Context, what string) error {
	from := s.probe.Now()
	rig.Pause(ctx, calm)
	worst, _ := s.probe.Worst(from, s.probe.Now())
	s.say(what, "longest answer "+show1(worst))
	return s.failed(ctx)
}

func (s *show) events(ctx context.Context) error {
	a, b := s.rig.Paths[0], s.rig.Paths[1]
	for _, e := range []struct {
		what string
		do   func() error
		wait func() error
		then string
	}{
		{"kill -9 of controller A", func() error { a.Kill(); return nil },
			func() error { return s.rig.WaitDown(ctx, a) }, "I/O goes on over path B"},
		{"controller A is started again", func() error { return a.Revive(ctx) },
			func() error { return s.rig.WaitUp(ctx, 2) }, "path A joined again"},
		{"path B swallows everything (black hole)", func() error { b.BlackHole(); return nil },
			func() error { return s.rig.WaitDown(ctx, b) }, "noticed (pathTimeout is 5 s), I/O goes on over path A"},
		{"path B is whole again", func() error { b.Restore(); return nil },
			func() error { return s.rig.WaitUp(ctx, 2) }, "path B joined again"},
	} {
		s.say(e.what, "")
		at, from := time.Now(), s.probe.Now()
		if err := e.do(); err != nil {
			return err
		}
		if err := e.wait(); err != nil {
			return errors.Join(fmt.Errorf("%s: %w", e.what, err), s.failed(ctx))
		}
		took := time.Since(at)
		rig.Pause(ctx, calm)
		worst, _ := s.probe.Worst(from, s.probe.Now())
		s.say(fmt.Sprintf("  %s after %s", e.then, show1(took)), "longest stall "+show1(worst))
		if err := s.failed(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *show) finish(ctx context.Context) error {
	s.say("the load ends, and every block that was written is read once more", "")
	sums, err := s.end(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("\n%s", strings.Join(sums, ""))
	if table, err := s.rig.Table(context.Background()); err == nil {
		fmt.Printf("\n$ csi-mpath paths\n%s\n", strings.TrimRight(table, "\n"))
	}
	if s.why != "" {
		fmt.Printf("\nNo mounted file system took part: %s.\n", s.why)
	}
	fmt.Printf("\nOK: both paths were lost in turn; no I/O failed, no byte differs. %s\n", show1(time.Since(s.begin)))
	return nil
}

// say prints one line of the story.
func (s *show) say(what, figure string) {
	line := fmt.Sprintf("%5.1fs  %-72s", time.Since(s.begin).Seconds(), what)
	fmt.Println(strings.TrimRight(line+"  "+figure, " "))
}

func show1(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
	}
	return fmt.Sprintf("%.2f s", d.Seconds())
}
