// Command demo shows in a minute what csi-mpath is for: one volume over two
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
	"github.com/csi-mpath/csi-mpath/test/probe"
)

const (
	mib     = 1 << 20
	volume  = 1024 * mib
	fioSize = 64 * mib
	// runtime is how long the load runs; the events fit into it with room to spare.
	runtime = 26 * time.Second
	limit   = 90 * time.Second
	calm    = 2 * time.Second
	// oneWay is the latency of the paths, each direction.
	oneWay = 500 * time.Microsecond
)

func main() {
	bin := flag.String("bin", "bin/csi-mpath", "csi-mpath binary")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := run(ctx, *bin); err != nil {
		fmt.Fprintf(os.Stderr, "\ndemo FAILED: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, bin string) (err error) {
	fmt.Print(`
Two iSCSI target daemons stand for the two controllers of a storage array: they
serve one disk under one identity. csi-mpath joins both paths to one device in
user space. fio writes to it, and reads back and checks what it wrote, while
the paths are broken one after the other.

`)
	r, err := rig.Start(ctx, rig.Options{Bin: bin, Size: volume, OneWay: oneWay})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Stop()) }()
	fmt.Printf("  controller %s   portal %s\n  controller %s   portal %s\n  device         %s\n\n",
		r.Paths[0].Name, r.Paths[0].Portal(), r.Paths[1].Name, r.Paths[1].Portal(), r.Socket)
	s := &show{rig: r, begin: time.Now()}
	if err := s.load(ctx); err != nil {
		return err
	}
	if err := s.events(ctx); err != nil {
		s.fio.Kill()
		return errors.Join(err, s.probe.Err())
	}
	return s.finish()
}

// show is the running demonstration.
type show struct {
	rig   *rig.Rig
	fio   *rig.Fio
	probe *probe.Probe
	begin time.Time
}

func (s *show) load(ctx context.Context) (err error) {
	s.fio, err = rig.StartFio(rig.Load{Socket: s.rig.Socket, Dir: s.rig.Dir, Size: fioSize, Jobs: 4, Depth: 8,
		Block: "4k", Runtime: runtime})
	if err != nil {
		return err
	}
	// The probe's writes never overlap what is in doubt within the demo's time.
	s.probe, err = probe.Start(ctx, s.rig.Socket, probe.Options{Off: 512 * mib, Size: 512 * mib, Workers: 8,
		Reuse: limit})
	if err != nil {
		s.fio.Kill()
		return err
	}
	s.say("the load starts: 4 fio jobs, 4 KiB random reads and writes, crc32c on every block", "")
	return s.settle(ctx, "undisturbed")
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

func (s *show) failed(ctx context.Context) error {
	return errors.Join(ctx.Err(), s.probe.Err(), s.fio.Err())
}

func (s *show) finish() error {
	s.say("the last seconds of the load, then every block is read once more", "")
	res, err := s.fio.Wait(runtime + 20*time.Second)
	if err = errors.Join(err, s.probe.Stop()); err != nil {
		return err
	}
	fmt.Printf("\n  fio    %d reads and %d writes, every block checked (crc32c)\n  probe  %d requests, every answer checked\n",
		res.Reads, res.Writes, s.probe.Requests())
	if table, err := s.rig.Table(context.Background()); err == nil {
		fmt.Printf("\n$ csi-mpath paths\n%s\n", strings.TrimRight(table, "\n"))
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
