// Command demo shows in half a minute what csi-mpath is for: a volume over two
// iSCSI paths and one over two NVMe/TCP paths, a verifying load on both, and the
// loss of each path in turn. It exits with 1 if an I/O fails or a byte differs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/csi-mpath/csi-mpath/test/interop/rig"
)

const (
	mib = 1 << 20
	// A volume: a file system or fio in the first part, the probe in the second.
	volume    = 640 * mib
	firstPart = 128 * mib
	limit     = 5 * time.Minute // for a machine short of CPU
	calm      = 2 * time.Second
	// oneWay is the latency of the paths, each direction.
	oneWay = 500 * time.Microsecond
)

func main() {
	bin := flag.String("bin", "bin/csi-mpath", "csi-mpath binary")
	target := flag.String("target", "own", "own: csi-mpath's embedded target; tgt: Debian's tgt, iSCSI only, with fio as a second load")
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
%s processes stand for the controllers, A and B, of
%s. csi-mpath joins both
paths of a volume to one device in user space. A load writes to it, and reads back
and checks what it wrote, while the paths are broken one after the other.

`

// show is the running demonstration.
type show struct {
	volumes []*shown
	begin   time.Time
}

func run(ctx context.Context, bin string, own bool) (err error) {
	s := &show{}
	who, what := "Two tgt", "a storage array over iSCSI"
	s.volumes = []*shown{{name: "iSCSI", own: own}}
	if own {
		who, what = "Four csi-mpath target", "two storage arrays, one iSCSI and one NVMe/TCP"
		s.volumes = append(s.volumes, &shown{name: "NVMe/TCP", own: true, nvme: true})
	}
	fmt.Printf(intro, who, what)
	defer func() { err = errors.Join(err, s.stop()) }()
	s.begin = time.Now()
	if err := s.each(func(v *shown) error { return v.start(ctx, bin) }); err != nil {
		return err
	}
	for _, v := range s.volumes {
		fmt.Print(v.where())
	}
	fmt.Println()
	s.begin = time.Now()
	s.say("the load starts: "+s.volumes[0].loads(), "")
	if err := errors.Join(s.settle(ctx, "undisturbed"), s.events(ctx)); err != nil {
		return err
	}
	return s.finish(ctx)
}

// each does the same to every volume, at the same time.
func (s *show) each(f func(v *shown) error) error {
	errs := make([]error, len(s.volumes))
	var wg sync.WaitGroup
	for i, v := range s.volumes {
		wg.Go(func() {
			if err := f(v); err != nil {
				errs[i] = fmt.Errorf("%s: %w", v.name, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (s *show) stop() error { return s.each((*shown).stop) }

// failed is what went wrong so far.
func (s *show) failed(ctx context.Context) error {
	return errors.Join(ctx.Err(), s.each((*shown).failed))
}

// settle watches quiet time and prints the longest answer in it.
func (s *show) settle(ctx context.Context, what string) error {
	s.mark()
	rig.Pause(ctx, calm)
	s.say(what, "longest answer "+s.worst())
	return s.failed(ctx)
}

func (s *show) mark() {
	for _, v := range s.volumes {
		v.from = v.probe.Now()
	}
}

// worst is the longest answer of each volume since mark.
func (s *show) worst() string {
	var out []string
	for _, v := range s.volumes {
		d, _ := v.probe.Worst(v.from, v.probe.Now())
		out = append(out, fmt.Sprintf("%s %s", v.name, show1(d)))
	}
	return strings.Join(out, ", ")
}

func (s *show) events(ctx context.Context) error {
	for _, e := range []struct {
		what string
		do   func(a, b *rig.Path) error
		wait func(r *rig.Rig) error
		then string
	}{
		{"kill -9 of controller A", func(a, _ *rig.Path) error { a.Kill(); return nil },
			func(r *rig.Rig) error { return r.WaitDown(ctx, r.Paths[0]) }, "I/O goes on over path B"},
		{"controller A is started again", func(a, _ *rig.Path) error { return a.Revive(ctx) },
			func(r *rig.Rig) error { return r.WaitUp(ctx, 2) }, "path A joined again"},
		{"path B swallows everything (black hole)", func(_, b *rig.Path) error { b.BlackHole(); return nil },
			func(r *rig.Rig) error { return r.WaitDown(ctx, r.Paths[1]) }, "noticed (pathTimeout is 5 s), I/O goes on over path A"},
		{"path B is whole again", func(_, b *rig.Path) error { b.Restore(); return nil },
			func(r *rig.Rig) error { return r.WaitUp(ctx, 2) }, "path B joined again"},
	} {
		s.say(e.what, "")
		s.mark()
		at := time.Now()
		if err := s.each(func(v *shown) error {
			return errors.Join(e.do(v.rig.Paths[0], v.rig.Paths[1]), e.wait(v.rig))
		}); err != nil {
			return errors.Join(fmt.Errorf("%s: %w", e.what, err), s.failed(ctx))
		}
		took := time.Since(at)
		rig.Pause(ctx, calm)
		s.say(fmt.Sprintf("  %s after %s", e.then, show1(took)), "longest stall "+s.worst())
		if err := s.failed(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *show) finish(ctx context.Context) error {
	s.say("the load ends, and every block that was written is read once more", "")
	if err := s.each(func(v *shown) error { return v.end(ctx) }); err != nil {
		return err
	}
	for _, v := range s.volumes {
		fmt.Printf("\n%s\n%s", v.name, strings.Join(v.sums, ""))
		if table, err := v.rig.Table(context.Background()); err == nil {
			fmt.Printf("\n$ csi-mpath paths\n%s\n", strings.TrimRight(table, "\n"))
		}
	}
	if why := s.volumes[0].why; why != "" {
		fmt.Printf("\nNo mounted file system took part: %s.\n", why)
	}
	fmt.Printf("\nOK: both paths were lost in turn; no I/O failed, no byte differs. %s\n", show1(time.Since(s.begin)))
	return nil
}

// say prints one line of the story.
func (s *show) say(what, figure string) {
	line := fmt.Sprintf("%5.1fs  %-60s", time.Since(s.begin).Seconds(), what)
	fmt.Println(strings.TrimRight(line+"  "+figure, " "))
}

func show1(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
	}
	return fmt.Sprintf("%.2f s", d.Seconds())
}
