package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/csi-mpath/csi-mpath/pkg/bench"
)

type volumeFlags struct {
	attachFlags
	o              bench.VolumeOptions
	write          string
	asJSON, silent bool
}

func benchVolumeCommand() *cobra.Command {
	f := &volumeFlags{attachFlags: attachFlags{noPath: "never", failback: "immediate", merge: "0", polling: "off"}}
	c := &cobra.Command{
		Use: `volume --iscsi PORTAL[,PORTAL…] --target IQN --lun N [--write START-END]
  csi-mpath bench volume --nvme-tcp PORTAL[,PORTAL…] --subsystem NQN --nsid N [--write START-END]`,
		Short: "Find the StorageClass values for a volume of your own",
		Long: `volume measures one volume under each value of mergeDeadline, polling and
pathSelector in turn, interleaved with the default, and says which to change. It
only reads, unless --write names a scratch range in bytes: THAT RANGE IS
OVERWRITTEN. The volume must not be attached with the same --state-dir.

TO DEFAULT is the median of the paired ratios, NOISE how far the default leaves
itself. A change is recommended only if it is beyond the noise in all rounds but
one and harms no other workload. A volume that was never written may answer reads
without looking at its disks: measure one with data on it.`,
		Example: `  csi-mpath bench volume --iscsi 192.0.2.10,192.0.2.11 --target iqn.2026-01.com.example:vol1 --lun 1
  csi-mpath bench volume … --write 1Gi-3Gi --plot plots`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.ready(); err != nil {
				return usage(err)
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			return f.measure(ctx, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f.registerVolume(c)
	fl := c.Flags()
	fl.StringVar(&f.write, "write", "", "scratch range START-END in bytes (Ki, Mi, Gi, Ti), OVERWRITTEN by the measurement (default: reads only)")
	fl.IntVar(&f.o.Rounds, "rounds", bench.MinRounds, "rounds of each measurement")
	fl.DurationVar(&f.o.Sample, "sample", bench.VolumeSample, "length of one run")
	fl.StringVar(&f.o.Plot, "plot", "", "folder for an SVG")
	fl.BoolVar(&f.asJSON, "json", false, "one JSON object instead of the table")
	fl.BoolVarP(&f.silent, "silent", "q", false, "no progress on stderr")
	return c
}

func (f *volumeFlags) ready() (err error) {
	if err := f.finish(); err != nil {
		return err
	}
	f.o.Config = f.cfg
	if f.write != "" {
		f.o.From, f.o.To, err = parseRange(f.write)
	}
	return err
}

func (f *volumeFlags) measure(ctx context.Context, out, progress io.Writer) error {
	if f.o.To != 0 {
		fmt.Fprintf(progress, "warning: bytes %d to %d of %s are being overwritten\n", f.o.From, f.o.To, f.cfg.Volume())
	}
	bar := &progressBar{out: progress}
	if !f.silent {
		f.o.Progress = bar.show
	}
	f.o.OpenTimeout = f.openTimeout
	report, err := bench.BenchVolume(ctx, f.o)
	bar.end()
	if err != nil {
		return &exitError{exitFailure, fmt.Errorf("bench volume: %w", err)}
	}
	if f.asJSON {
		return json.NewEncoder(out).Encode(report)
	}
	return bench.WriteVolumeTable(out, report)
}

// progressBar shows a bar on a terminal, otherwise a line per tenth.
type progressBar struct {
	out   io.Writer
	tenth int
	drawn bool
}

const barWidth = 30

func (b *progressBar) show(done, total int, what string) {
	if terminal(b.out) {
		n := done * barWidth / max(total, 1)
		fmt.Fprintf(b.out, "\r\x1b[K[%s%s] %3d%% %s", strings.Repeat("#", n), strings.Repeat(".", barWidth-n), done*100/max(total, 1), what)
		b.drawn = true
		return
	}
	if t := done * 10 / max(total, 1); t > b.tenth || done == 0 {
		b.tenth = t
		fmt.Fprintf(b.out, "%3d%% %s\n", t*10, what)
	}
}

func (b *progressBar) end() {
	if b.drawn {
		fmt.Fprint(b.out, "\r\x1b[K")
	}
}

func terminal(out io.Writer) bool {
	f, ok := out.(*os.File)
	if !ok {
		return false
	}
	st, err := f.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0
}

// parseRange reads START-END, bytes or with a unit.
func parseRange(s string) (from, to uint64, err error) {
	a, b, ok := strings.Cut(s, "-")
	if ok {
		if from, err = parseBytes(a); err == nil {
			to, err = parseBytes(b)
		}
	}
	if !ok || err != nil || to <= from {
		return 0, 0, fmt.Errorf("--write %q is no range START-END in bytes, like 1Gi-3Gi", s)
	}
	return from, to, nil
}

var byteUnits = map[string]uint{"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40}

func parseBytes(s string) (uint64, error) {
	shift := uint(0)
	if n := len(s); n > 2 && byteUnits[s[n-2:]] != 0 {
		s, shift = s[:n-2], byteUnits[s[n-2:]]
	}
	v, err := strconv.ParseUint(s, 10, 64)
	if err != nil || v > math.MaxInt64>>shift {
		return 0, fmt.Errorf("%q is no number of bytes", s)
	}
	return v << shift, nil
}
