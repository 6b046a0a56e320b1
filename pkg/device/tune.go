package device

import (
	"fmt"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/pathsel"
	"github.com/csi-mpath/csi-mpath/pkg/poll"
	"github.com/csi-mpath/csi-mpath/pkg/tunable"
)

// The tunables that can be changed while the volume works.
const (
	TuneMergeDeadline = "merge-deadline"
	TunePolling       = "polling"
	TunePathSelector  = "path-selector"
)

// Tune changes a tunable at once; value is as the flag of that name takes it.
func (d *Device) Tune(key, value string) error {
	switch key {
	case TuneMergeDeadline:
		t, err := ParseMergeDeadline(value)
		if err != nil {
			return err
		}
		return d.dp.SetMergeDeadline(t)
	case TunePolling:
		p, err := ParsePolling(value)
		if err != nil {
			return err
		}
		for _, path := range d.paths {
			path.setPolling(p)
		}
		return nil
	case TunePathSelector:
		s, err := pathsel.ByName(value)
		if err != nil {
			return err
		}
		d.dp.SetSelector(s)
		return nil
	}
	return fmt.Errorf("volume %s: %q is no tunable of the process that serves it: it may be older than this program", d.cfg.Name, key)
}

// CheckTunable reports what is wrong with a tunable, before anybody is asked.
func CheckTunable(key, value string) (err error) {
	switch key {
	case TuneMergeDeadline:
		_, err = ParseMergeDeadline(value)
	case TunePolling:
		_, err = ParsePolling(value)
	case TunePathSelector:
		_, err = pathsel.ByName(value)
	default:
		err = fmt.Errorf("%q is no tunable: use %s, %s or %s", key, TuneMergeDeadline, TunePolling, TunePathSelector)
	}
	return err
}

// ParseMergeDeadline reads a merge deadline: off, auto, 0 or a duration.
func ParseMergeDeadline(s string) (time.Duration, error) {
	t, err := tunable.ParseMergeDeadline(s)
	return mergeDeadline(t), err
}

// ParseFailback reads when I/O returns to a better group of paths: immediate,
// manual or a duration.
func ParseFailback(s string) (time.Duration, error) {
	t, err := tunable.ParseFailback(s)
	return failback(t), err
}

// ParsePolling reads how readers wait: off, adaptive or a duration.
func ParsePolling(s string) (poll.Polling, error) {
	t, err := tunable.ParsePolling(s)
	return polling(t), err
}
