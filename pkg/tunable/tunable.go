// Package tunable is what a volume can be tuned with: names, values, ranges and
// defaults. They come as texts, from StorageClasses, VolumeAttributesClasses,
// static volumes and command lines; this is the only place that reads them.
package tunable

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Values that are no durations.
const (
	Never             time.Duration = -1 // of NoPathTimeout: for ever
	MergeAuto         time.Duration = -1 // of MergeDeadline: find the best
	MergeOff          time.Duration = -2 // of MergeDeadline: not even what comes together
	PollAdaptive      time.Duration = -1 // of Polling: as long as it pays
	FailbackImmediate time.Duration = 0
	FailbackManual    time.Duration = -1
)

// Settings are all tunables of a volume.
type Settings struct {
	PathSelector  string
	MergeDeadline time.Duration // 0 to 100 ms, MergeAuto or MergeOff
	Polling       time.Duration // 0 to 1 ms, or PollAdaptive
	// NoPathTimeout is how long I/O is held while no path works: up to 24 h, or
	// Never (I5).
	NoPathTimeout time.Duration
	// PathTimeout drops a path that sends nothing for so long while it owes an
	// answer: 1 s to 5 min. CommandTimeout aborts a command: 1 s to 10 min.
	PathTimeout, CommandTimeout time.Duration
	MinPaths                    int           // that a volume is staged with: 1 to 32
	Failback                    time.Duration // up to 24 h, FailbackImmediate or FailbackManual
	Lanes                       int           // connections to the kernel: 1 to 16
	QueueDepth                  int           // commands in flight per path: 1 to 4096
	SessionsPerPath             int           // 1 to 8
	HeaderDigest, DataDigest    bool          // CRC32C
	// FenceTimeout is how long a lost iSCSI session's writes may live without
	// proof that they ended: 1 s to 1 h (I3).
	FenceTimeout time.Duration
	// KeepAliveTimeout is NVMe's KATO: 100 ms to 1 min.
	KeepAliveTimeout time.Duration
	// SourceAddresses bind the paths, in order of portals, to local addresses or
	// interfaces; empty entries are left to the kernel.
	SourceAddresses []string
	// ShutdownTimeout is how long I/O may last when the node shuts down: up to
	// 10 min.
	ShutdownTimeout time.Duration
}

// Parse reads tunables; those that are absent have their defaults. Errors name
// the key, its value and what it may be.
func Parse(values map[string]string) (Settings, error) {
	var s Settings
	for i := range all {
		d := &all[i]
		v, given := values[d.name]
		if !given {
			v = d.standard
		}
		if len(v) > maxValue {
			return Settings{}, fmt.Errorf("%s: a value of %d bytes, at most %d", d.name, len(v), maxValue)
		}
		if err := d.set(&s, v); err != nil {
			return Settings{}, fmt.Errorf("%s: %w", d.name, err)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if !Known(key) {
			return Settings{}, fmt.Errorf("%q is no tunable: use some of %s", clip(key), strings.Join(Names(), ", "))
		}
	}
	return s, s.check()
}

// check is what single values cannot tell.
func (s Settings) check() error {
	if s.Lanes > 1 && s.NoPathTimeout == Never {
		return fmt.Errorf("lanes: %d need a finite noPathTimeout: the kernel gives up a connection that never answers, and others of the same device with it", s.Lanes)
	}
	return nil
}

// Known reports whether there is a tunable of this name.
func Known(name string) bool { return find(name) != nil }

// Live reports whether a tunable can be changed while the volume is staged;
// others count from the next time it is.
func Live(name string) bool {
	d := find(name)
	return d != nil && d.live
}

// Names lists all tunables, sorted.
func Names() []string {
	out := make([]string, 0, len(all))
	for _, d := range all {
		out = append(out, d.name)
	}
	slices.Sort(out)
	return out
}

// Merge is old with what changes says; what it does not name keeps its value.
func Merge(old, changes map[string]string) map[string]string {
	out := make(map[string]string, len(old)+len(changes))
	maps.Copy(out, old)
	maps.Copy(out, changes)
	return out
}

// Split separates the tunables from other parameters.
func Split(params map[string]string) (tunables, others map[string]string) {
	tunables, others = map[string]string{}, map[string]string{}
	for k, v := range params {
		if Known(k) {
			tunables[k] = v
		} else {
			others[k] = v
		}
	}
	return tunables, others
}

// CheckChange refuses a change of a staged volume that cannot be made live.
func CheckChange(old, changes map[string]string) error {
	before, err := Parse(old)
	if err != nil {
		return fmt.Errorf("the tunables so far: %w", err)
	}
	after, err := Parse(Merge(old, changes))
	if err != nil {
		return err
	}
	for i := range all {
		d := &all[i]
		if !d.live && !d.same(&before, &after) {
			return fmt.Errorf("%s cannot be changed once the volume exists: it counts when a volume is created", d.name)
		}
	}
	return nil
}

// clip keeps what somebody else wrote short in messages.
func clip(s string) string {
	const most = 64
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}
