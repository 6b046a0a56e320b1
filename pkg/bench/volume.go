package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/device"
	"github.com/csi-mpath/csi-mpath/pkg/nbd"
)

// VolumeOptions say what to measure on a user's own volume.
type VolumeOptions struct {
	// Config is the volume as it would be attached; its path selector, merge
	// deadline and polling do not count, they are what is tried.
	Config device.Config
	// From and To are a scratch range, bytes, that may be overwritten. To 0: only
	// reads are made, and the volume is opened read-only.
	From, To uint64
	Rounds   int           // 0 is MinRounds
	Sample   time.Duration // length of one run; 0 is VolumeSample
	// OpenTimeout bounds the wait for all paths; 0: ctx alone does.
	OpenTimeout time.Duration
	Plot        string // folder for an SVG; "" makes none
	// Progress is told of each run; nil: nobody.
	Progress func(done, total int, what string)
}

// VolumeReport is what was found.
type VolumeReport struct {
	Volume  string         `json:"volume"`
	Size    uint64         `json:"size"` // bytes
	Paths   int            `json:"paths"`
	Writes  bool           `json:"writes"`
	Rounds  int            `json:"rounds"`
	Figures []VolumeFigure `json:"figures"`
	Advice  []Advice       `json:"advice"`
}

// VolumeFigure is one workload under one value of one parameter.
type VolumeFigure struct {
	Parameter string `json:"parameter"`
	Value     string `json:"value"`
	Workload  string `json:"workload"`
	// IOPS and MBps are medians.
	IOPS float64 `json:"iops"`
	MBps float64 `json:"megabytesPerSecond"`
	// Ratio is the median of the paired ratios to the default, Lo and Hi the
	// smallest and largest; Noise is how far the default leaves itself.
	Ratio float64 `json:"ratio"`
	Lo    float64 `json:"lo"`
	Hi    float64 `json:"hi"`
	Noise float64 `json:"noise"`

	sure float64 // the ratio that all rounds but one exceed
}

// parameter is one StorageClass value that is swept, its default first.
type parameter struct {
	name   string
	tune   string // the tunable of a live device
	values []string
	judge  string // the workload it is for
}

var volumeParameters = []parameter{
	{name: "mergeDeadline", tune: device.TuneMergeDeadline, judge: sequential4k,
		values: []string{"0", "off", "10us", "50us", "200us", "1ms"}},
	{name: "polling", tune: device.TunePolling, judge: random1, values: []string{"off", "adaptive", "50us"}},
	{name: "pathSelector", tune: device.TunePathSelector, judge: random32,
		values: []string{"service-time", "round-robin", "queue-length", "historical-service-time", "io-affinity"}},
}

// The workloads.
const (
	random1      = "4k random QD1"
	random32     = "4k random QD32"
	sequential4k = "4k sequential"
	large        = "64k sequential"
)

type volumeWorkload struct {
	name           string
	size           uint32
	streams, depth int // depth of a stream
	random, write  bool
}

var volumeReads = []volumeWorkload{
	{name: random1, size: 4 << 10, streams: 1, depth: 1, random: true},
	{name: random32, size: 4 << 10, streams: 1, depth: 32, random: true},
	{name: sequential4k, size: 4 << 10, streams: 4, depth: 8},
	{name: large, size: 64 << 10, streams: 1, depth: 8},
}

// minVolumeRange is the least range that the workloads fit in, bytes.
const minVolumeRange = 4 << 20

// sweep is a run of BenchVolume.
type sweep struct {
	VolumeOptions
	dev    *device.Device
	size   uint64
	report VolumeReport
	done   int
	total  int
}

// BenchVolume measures a volume under each value of each parameter, and says
// which are better than the defaults beyond doubt.
func BenchVolume(ctx context.Context, o VolumeOptions) (*VolumeReport, error) {
	if o.Rounds == 0 {
		o.Rounds = MinRounds
	}
	if o.Sample == 0 {
		o.Sample = VolumeSample
	}
	if o.Rounds < 1 || o.Rounds > MaxRounds || o.Sample < 0 || o.Sample > maxVolumeSample {
		return nil, fmt.Errorf("%d rounds of %v: 1 to %d rounds of at most %v are possible", o.Rounds, o.Sample, MaxRounds, maxVolumeSample)
	}
	o.Config.ReadOnly = o.To == 0
	s := &sweep{VolumeOptions: o}
	err := s.run(ctx)
	if err == nil && o.Plot != "" {
		err = s.plot()
	}
	return &s.report, err
}

func (s *sweep) run(ctx context.Context) (err error) {
	if err := s.open(ctx, s.Config); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.look(); err != nil {
		return err
	}
	params := volumeParameters
	if s.report.Paths < 2 {
		params = params[:2] // nothing to select
	}
	loads := s.workloads()
	for _, p := range params {
		s.total += (len(p.values) + 1) * len(loads) * s.Rounds
	}
	for _, p := range params {
		for _, w := range loads {
			if err := s.parameter(ctx, p, w); err != nil {
				return fmt.Errorf("%s, %s: %w", p.name, w.name, err)
			}
		}
		s.report.Advice = append(s.report.Advice, advise(p, s.report.Figures, s.Rounds))
	}
	if s.report.Paths < 2 {
		s.report.Advice = append(s.report.Advice, Advice{Parameter: volumeParameters[2].name, Value: volumeParameters[2].values[0],
			Reason: "one path: there is nothing to select"})
	}
	return nil
}

// look says what was opened, and checks that the workloads fit.
func (s *sweep) look() error {
	st := s.dev.Status()
	s.size = s.dev.Info().Size
	s.report = VolumeReport{Volume: s.dev.Name(), Size: s.size, Paths: len(st.Paths), Writes: s.To != 0, Rounds: s.Rounds}
	switch {
	case s.size < minVolumeRange:
		return fmt.Errorf("volume %s has %d bytes: at least %d are needed", s.report.Volume, s.size, minVolumeRange)
	case s.To == 0:
	case s.To > s.size || s.From >= s.To || s.To-s.From < minVolumeRange || s.From%large64k != 0:
		return fmt.Errorf("volume %s: bytes %d to %d are no scratch range of at least %d bytes that begins at a multiple of %d and ends within the volume's %d",
			s.report.Volume, s.From, s.To, minVolumeRange, large64k, s.size)
	}
	return nil
}

const large64k = 64 << 10

func (s *sweep) workloads() []volumeWorkload {
	out := append([]volumeWorkload(nil), volumeReads...)
	if s.To == 0 {
		return out
	}
	for _, w := range volumeReads {
		w.name, w.write = w.name+" write", true
		out = append(out, w)
	}
	return out
}

// parameter measures all values of a parameter with one workload.
func (s *sweep) parameter(ctx context.Context, p parameter, w volumeWorkload) error {
	e := experiment{name: p.name, length: s.Sample}
	for _, v := range p.values {
		e.sides = append(e.sides, side{name: v, run: func(ctx context.Context, d time.Duration) (sample, error) {
			return s.measure(ctx, d, p, v, w)
		}})
	}
	r := &runner{Options: Options{Rounds: s.Rounds}, onRun: func(v string) {
		if s.Progress != nil {
			s.Progress(s.done, s.total, fmt.Sprintf("%s %s, %s", p.name, v, w.name))
		}
		s.done++
	}}
	samples, err := r.rounds(ctx, e)
	if err != nil {
		return err
	}
	s.report.Figures = append(s.report.Figures, figures(p, w, samples)...)
	return s.dev.Tune(p.tune, p.values[0]) // as it was
}

func (s *sweep) measure(ctx context.Context, d time.Duration, p parameter, value string, w volumeWorkload) (sample, error) {
	if err := s.dev.Tune(p.tune, value); err != nil {
		return nil, err
	}
	return s.drive(ctx, d, w)
}

// open brings the volume up, with all its paths.
func (s *sweep) open(ctx context.Context, cfg device.Config) (err error) {
	cfg.MinPaths, cfg.NoControl = len(cfg.Portals), true
	if s.OpenTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.OpenTimeout)
		defer cancel()
	}
	s.dev, err = device.Open(ctx, cfg)
	return err
}

func (s *sweep) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), settleTime)
	defer cancel()
	return s.dev.Close(ctx)
}

func (s *sweep) drive(ctx context.Context, d time.Duration, w volumeWorkload) (sample, error) {
	from, to := uint64(0), s.size
	if w.write {
		from, to = s.From, s.To
	}
	lane, err := s.dev.OpenLane(w.streams * w.depth)
	if err != nil {
		return nil, err
	}
	defer lane.Close()
	return w.run(ctx, d, lane, from, to)
}

// run drives one client within the range; a tenth of the time is not counted.
func (w volumeWorkload) run(ctx context.Context, d time.Duration, lane nbd.Lane, from, to uint64) (sample, error) {
	c := newClient(0, w.streams*w.depth, false, nil)
	each := (to - from) / uint64(w.streams) / uint64(w.size) // requests of a stream
	next := make([]uint64, w.streams)
	rng := rand.New(rand.NewPCG(6, 0))
	for i := range c.reqs {
		c.reqs[i].Op, c.reqs[i].Len, c.reqs[i].Buf = blk.Read, w.size, make([]byte, w.size)
		if w.write {
			c.reqs[i].Op = blk.Write
		}
	}
	c.prepare = func(r *blk.Request) {
		stream := uint64(r.Slot) / uint64(w.depth)
		at := next[stream]
		if next[stream]++; next[stream] == each {
			next[stream] = 0
		}
		if w.random {
			at = rng.Uint64N(each)
		}
		r.Off = from + (stream*each+at)*uint64(w.size)
		r.Cookie = ^r.Off
	}
	if _, _, err := drive(ctx, d/10, []worker{c.loop(lane)}); err != nil {
		return nil, err
	}
	_, s, err := drive(ctx, d, []worker{c.loop(lane)})
	return s, errors.Join(err, c.verify())
}
