// Command iscsiload keeps a number of reads outstanding on one iSCSI session:
// what iscsi-perf of libiscsi does, with this project's initiator. The same
// commands, the same block alignment, and one buffer for all commands: iscsi-perf
// has one too, and one MiB stays in the cache where four do not.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/pprof"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/iscsi"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
)

// job is what the command line says.
type job struct {
	portal, target string
	random, write  bool
	size           uint // bytes of one command
	depth          int
	seconds        float64
}

func main() {
	var j job
	flag.StringVar(&j.portal, "portal", "127.0.0.1:3260", "portal of the target")
	flag.StringVar(&j.target, "target", "", "iSCSI name of the target; LUN 0 is used")
	flag.BoolVar(&j.random, "random", false, "at random blocks, not one after the other")
	flag.BoolVar(&j.write, "write", false, "write, not read: destroys what is there")
	flag.UintVar(&j.size, "size", 4096, "bytes of one command")
	flag.IntVar(&j.depth, "depth", 32, "commands outstanding, 1..128")
	flag.Float64Var(&j.seconds, "seconds", 1, "how long")
	profile := flag.String("cpuprofile", "", "file for a CPU profile")
	flag.Parse()
	if *profile != "" {
		f, err := os.Create(*profile)
		if err == nil {
			err = pprof.StartCPUProfile(f)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "iscsiload:", err)
			os.Exit(1)
		}
		defer pprof.StopCPUProfile()
	}
	if err := j.run(); err != nil {
		fmt.Fprintln(os.Stderr, "iscsiload:", err)
		os.Exit(1)
	}
}

// generator is the sink of the unit: it gives each command back at once, with
// the next place to read. Everything after start belongs to the reader.
type generator struct {
	job
	lun    *iscsi.LUN
	block  uint64 // bytes
	blocks uint64
	pos    uint64 // next block
	rnd    *rand.Rand

	end      time.Time
	stopping bool
	inflight int
	done     uint64
	failed   error
	over     chan struct{}
}

func (g *generator) Complete(c *blk.Command) {
	g.inflight--
	g.done++
	switch {
	case c.Verdict.Class != blk.Good:
		g.stop(fmt.Errorf("%v of %d bytes at %d: %v", c.Op, c.Len, c.Off, c.Verdict.Class))
	case !g.stopping:
		g.submit(c)
	}
}

// submit gives c its next place.
func (g *generator) submit(c *blk.Command) {
	if g.random {
		g.pos = g.rnd.Uint64N(g.blocks)
	} else if g.pos >= g.blocks {
		g.pos = 0
	}
	n := min(uint64(g.size)/g.block, g.blocks-g.pos)
	c.Off, c.Len = g.pos*g.block, uint32(n*g.block)
	c.Buf = c.Buf[:c.Len]
	g.pos += n
	g.inflight++
	if !g.lun.Submit(c, 0) {
		g.stop(fmt.Errorf("a command was not taken, %d are outstanding", g.inflight))
	}
}

// BatchEnd reads the clock: once per batch, as iscsi-perf does per command.
func (g *generator) BatchEnd(uint64) {
	if !g.stopping && time.Now().After(g.end) {
		g.stop(nil)
	}
	if g.stopping && g.inflight == 0 {
		g.finish()
	}
}

func (g *generator) stop(err error) {
	g.stopping = true
	if g.failed == nil {
		g.failed = err
	}
}

func (g *generator) finish() {
	if g.over != nil {
		close(g.over)
		g.over = nil
	}
}

func (g *generator) Evidence(blk.Evidence) {}

func (g *generator) Lost(_ *blk.Command, cause error) {
	g.stop(cause)
	g.finish()
}

// result is printed as one line of JSON.
type result struct {
	IOs     uint64  `json:"ios"`
	Seconds float64 `json:"seconds"`
	Recvs   float64 `json:"recvs"` // system calls per I/O
	Sends   float64 `json:"sends"`
	Mallocs float64 `json:"mallocs"` // per I/O
}

func (j job) run() error {
	ctx := context.Background()
	s, err := iscsi.Dial(ctx, iscsi.Config{Portal: j.portal, TargetName: j.target,
		InitiatorName: "iqn.2026-01.io.csi-mpath:iscsiload"})
	if err != nil {
		return err
	}
	id, err := s.Identify(ctx, 0)
	if err != nil {
		return err
	}
	g := &generator{job: j, block: uint64(id.Profile.BlockSize), blocks: id.Profile.LastLBA + 1,
		rnd: rand.New(rand.NewPCG(1, uint64(time.Now().UnixNano()))), over: make(chan struct{})} //nolint:gosec // not a secret
	g.lun = s.LUN(scsi.LUN(0), j.depth, g)
	g.lun.SetProfile(&id.Profile)
	r, err := g.measure(s)
	if err != nil {
		return err
	}
	if err := s.Logout(ctx); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

// measure runs the job. The commands are made before the first is sent: after
// that the reader has them.
func (g *generator) measure(s *iscsi.Session) (result, error) {
	cmds := make([]blk.Command, g.depth)
	buf, err := unix.Mmap(-1, 0, int(g.size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return result{}, err
	}
	for i := range cmds {
		cmds[i].Op, cmds[i].Buf = blk.Read, buf
		if g.write {
			cmds[i].Op = blk.Write
		}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	recvs, sends, _ := s.Stats()
	began, over := time.Now(), g.over
	g.end = began.Add(time.Duration(g.seconds * float64(time.Second)))
	for i := range cmds {
		g.submit(&cmds[i])
	}
	g.lun.Kick(0)
	<-over
	took := time.Since(began)
	runtime.ReadMemStats(&after)
	recvs2, sends2, _ := s.Stats()
	n := float64(max(g.done, 1))
	return result{IOs: g.done, Seconds: took.Seconds(), Recvs: float64(recvs2-recvs) / n, Sends: float64(sends2-sends) / n,
		Mallocs: float64(after.Mallocs-before.Mallocs) / n}, g.failed
}
