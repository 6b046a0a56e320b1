package sim

import (
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/device"
	"github.com/csi-mpath/csi-mpath/pkg/pathsel"
)

// Setup is everything of a run that is not a step. Each field is a line "set name
// value" of a script.
type Setup struct {
	Seed                           uint64
	Transport                      string        // iscsi or nvme-tcp
	Run                            time.Duration // how long the clients ask
	Paths                          pathList
	Clients, Flight                int // clients, and the requests of each in flight
	Pause                          time.Duration
	Blocks, BlockSize, Large       int // Large is the longest request, bytes
	LargeShare                     int // of a hundred requests
	Depth, TargetDepth             int // commands of a path, and of a session at the target
	Fence, PathTimeout, CmdTimeout time.Duration
	NoPath                         time.Duration // negative for never
	MaxBurst, FirstBurst           uint
	MaxTransfer                    uint          // bytes of one command
	InitialR2T, NoImmediate        bool          // NVMe: no data in capsules
	Queues, HostQueues             int           // NVMe: granted by the target, and asked for; 0 leaves it to the host
	Align                          int           // NVMe: CPDA
	Digests, NoSuccess, NoTBKAS    bool          // NVMe
	Quiesce                        time.Duration // NVMe: CQT
	WriteThrough, PowerOn, Replays bool
	Selector                       string
	Streams                        int    // of a hundred requests, those that continue the client's one before
	Merge, Polling, Failback       string // as the flags of attach take them
	Delay, Jitter                  time.Duration
	Procs                          int // GOMAXPROCS
	Yields                         bool
	Haste                          bool // more of what makes goroutines meet
}

// pathList is the portals: "1/1 1/2 2/2" are portal group and ALUA group of each.
type pathList [][2]uint16

// String implements flag.Value.
func (l *pathList) String() string {
	var out []string
	for _, p := range *l {
		out = append(out, fmt.Sprintf("%d/%d", p[0], p[1]))
	}
	return strings.Join(out, ",")
}

// Set implements flag.Value.
func (l *pathList) Set(s string) error {
	*l = nil
	for f := range strings.SplitSeq(s, ",") {
		a, b, ok := strings.Cut(f, "/")
		x, errX := strconv.ParseUint(a, 10, 8)
		y, errY := strconv.ParseUint(b, 10, 8)
		if !ok || errX != nil || errY != nil || x == 0 || y == 0 {
			return fmt.Errorf("%q is not portal group/ALUA group", f)
		}
		*l = append(*l, [2]uint16{uint16(x), uint16(y)})
	}
	return nil
}

// defaults are what a script need not say.
func defaults() Setup {
	return Setup{Seed: 1, Transport: overISCSI, Queues: 8, Run: 10 * time.Second, Paths: pathList{{1, 1}, {2, 1}}, Clients: 2, Flight: 8,
		Pause: 20 * time.Millisecond, Blocks: 1024, BlockSize: 512, Large: 64 << 10, LargeShare: 10, Depth: 16, TargetDepth: 128, Fence: 5 * time.Second,
		PathTimeout: 2 * time.Second, CmdTimeout: 5 * time.Second, NoPath: -1, MaxBurst: 16 << 10, FirstBurst: 4 << 10,
		MaxTransfer: 16 << 10, Replays: true, Selector: "round-robin", Merge: "0", Polling: "off", Failback: "immediate", Delay: time.Millisecond, Jitter: time.Millisecond,
		Procs: 1, Yields: true}
}

// lines are the names and the values of a setup, in the order of their names.
func (s *Setup) lines() *flag.FlagSet {
	f := flag.NewFlagSet("set", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.Uint64Var(&s.Seed, "seed", s.Seed, "")
	f.StringVar(&s.Transport, "transport", s.Transport, "")
	f.IntVar(&s.Queues, "queues", s.Queues, "")
	f.IntVar(&s.HostQueues, "host-queues", s.HostQueues, "")
	f.IntVar(&s.Align, "align", s.Align, "")
	f.BoolVar(&s.Digests, "digests", s.Digests, "")
	f.BoolVar(&s.NoSuccess, "no-success", s.NoSuccess, "")
	f.BoolVar(&s.NoTBKAS, "no-tbkas", s.NoTBKAS, "")
	f.DurationVar(&s.Quiesce, "quiesce", s.Quiesce, "")
	f.DurationVar(&s.Run, "run", s.Run, "")
	f.Var(&s.Paths, "paths", "")
	f.IntVar(&s.Clients, "clients", s.Clients, "")
	f.IntVar(&s.Flight, "flight", s.Flight, "")
	f.DurationVar(&s.Pause, "pause", s.Pause, "")
	f.IntVar(&s.Blocks, "blocks", s.Blocks, "")
	f.IntVar(&s.BlockSize, "block-size", s.BlockSize, "")
	f.IntVar(&s.Large, "large", s.Large, "")
	f.IntVar(&s.LargeShare, "large-share", s.LargeShare, "")
	f.IntVar(&s.Depth, "depth", s.Depth, "")
	f.IntVar(&s.TargetDepth, "target-depth", s.TargetDepth, "")
	f.DurationVar(&s.Fence, "fence-timeout", s.Fence, "")
	f.DurationVar(&s.PathTimeout, "path-timeout", s.PathTimeout, "")
	f.DurationVar(&s.CmdTimeout, "command-timeout", s.CmdTimeout, "")
	f.DurationVar(&s.NoPath, "no-path-timeout", s.NoPath, "")
	f.UintVar(&s.MaxBurst, "max-burst", s.MaxBurst, "")
	f.UintVar(&s.FirstBurst, "first-burst", s.FirstBurst, "")
	f.UintVar(&s.MaxTransfer, "max-transfer", s.MaxTransfer, "")
	f.BoolVar(&s.InitialR2T, "initial-r2t", s.InitialR2T, "")
	f.BoolVar(&s.NoImmediate, "no-immediate", s.NoImmediate, "")
	f.BoolVar(&s.WriteThrough, "write-through", s.WriteThrough, "")
	f.BoolVar(&s.PowerOn, "power-on", s.PowerOn, "")
	f.BoolVar(&s.Replays, "replays", s.Replays, "")
	f.StringVar(&s.Selector, "selector", s.Selector, "")
	f.IntVar(&s.Streams, "streams", s.Streams, "")
	f.StringVar(&s.Merge, "merge-deadline", s.Merge, "")
	f.StringVar(&s.Polling, "polling", s.Polling, "")
	f.StringVar(&s.Failback, "failback", s.Failback, "")
	f.DurationVar(&s.Delay, "delay", s.Delay, "")
	f.DurationVar(&s.Jitter, "jitter", s.Jitter, "")
	f.IntVar(&s.Procs, "procs", s.Procs, "")
	f.BoolVar(&s.Yields, "yields", s.Yields, "")
	f.BoolVar(&s.Haste, "haste", s.Haste, "")
	return f
}

// check refuses what cannot be played.
func (s *Setup) check() error {
	switch {
	case len(s.Paths) == 0 || len(s.Paths) > 8:
		return fmt.Errorf("%d paths, 1 to 8 are possible", len(s.Paths))
	case s.Clients < 1 || s.Clients > 16 || s.Flight < 1 || s.Flight > slots:
		return fmt.Errorf("%d clients with %d requests, 1 to 16 with 1 to %d are possible", s.Clients, s.Flight, slots)
	case s.BlockSize != 512 && s.BlockSize != 4096 || s.Blocks < hotBlocks || s.Blocks > 1<<20:
		return fmt.Errorf("%d blocks of %d bytes are not possible", s.Blocks, s.BlockSize)
	case s.LargeShare < 0 || s.LargeShare > 100 || s.Large < s.BlockSize || s.Large > s.Blocks*s.BlockSize || s.Large > 4<<20:
		return fmt.Errorf("requests of %d bytes are not possible", s.Large)
	case s.Run <= 0 || s.Run > maxTime || s.Fence <= 2*wireMax || s.PathTimeout <= 0 || s.CmdTimeout <= 0:
		return fmt.Errorf("run, or a timeout, is out of range")
	case s.Delay < 0 || s.Jitter < 0 || s.Delay+s.Jitter > wireMax || s.Pause <= 0:
		return fmt.Errorf("delay and jitter together are at most %v", wireMax)
	case s.Depth < 1 || s.Depth > 128 || s.TargetDepth < 1 || s.TargetDepth > 4096:
		return fmt.Errorf("depths of %d and %d are not possible", s.Depth, s.TargetDepth)
	case s.Procs < 1 || s.Procs > 8:
		return fmt.Errorf("procs %d is not in 1..8", s.Procs)
	case transports[s.Transport] == nil:
		return fmt.Errorf("transport %q is none of %q", s.Transport, Transports())
	case s.Queues < 1 || s.Queues > 64 || s.HostQueues < 0 || s.HostQueues > 64 || s.Align < 0 || s.Align > 31 || s.Quiesce < 0 || s.Quiesce > s.Fence:
		return fmt.Errorf("queues, alignment or quiesce time are out of range")
	case s.Transport == overNVMe && (s.keepAlive() < minKeepAlive || s.TargetDepth < 3):
		return fmt.Errorf("a fence of %v or a depth of %d is too little for NVMe", s.Fence, s.TargetDepth)
	case s.Streams < 0 || s.Streams > 100:
		return fmt.Errorf("streams %d is not in 0..100", s.Streams)
	}
	var c device.Config
	return s.tunables(&c)
}

// tunables puts those that are words into a device's configuration.
func (s *Setup) tunables(c *device.Config) (err error) {
	if _, err = pathsel.ByName(s.Selector); err != nil {
		return err
	}
	if c.MergeDeadline, err = device.ParseMergeDeadline(s.Merge); err != nil {
		return err
	}
	if c.Polling, err = device.ParsePolling(s.Polling); err != nil {
		return err
	}
	c.Failback, err = device.ParseFailback(s.Failback)
	return err
}
