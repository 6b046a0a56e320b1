package tunable

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/pathsel"
)

// definition is one tunable.
type definition struct {
	name     string
	standard string // what it is when nobody says
	live     bool   // see Live
	set      func(s *Settings, v string) error
	value    func(s *Settings) any
}

func (d *definition) same(a, b *Settings) bool { return reflect.DeepEqual(d.value(a), d.value(b)) }

func find(name string) *definition {
	i := slices.IndexFunc(all, func(d definition) bool { return d.name == name })
	if i < 0 {
		return nil
	}
	return &all[i]
}

// all are the tunables, in the order of DESIGN's list.
var all = []definition{
	entry("pathSelector", "service-time", true, func(s *Settings) *string { return &s.PathSelector }, selector),
	entry("mergeDeadline", "0", true, func(s *Settings) *time.Duration { return &s.MergeDeadline }, ParseMergeDeadline),
	entry("polling", "off", true, func(s *Settings) *time.Duration { return &s.Polling }, ParsePolling),
	entry("noPathTimeout", "never", true, func(s *Settings) *time.Duration { return &s.NoPathTimeout }, ParseNoPathTimeout),
	entry("pathTimeout", "5s", true, func(s *Settings) *time.Duration { return &s.PathTimeout }, within(minPathTimeout, maxPathTimeout)),
	entry("commandTimeout", "30s", true, func(s *Settings) *time.Duration { return &s.CommandTimeout }, within(minCommandTimeout, maxCommandTimeout)),
	entry("minPaths", "1", true, func(s *Settings) *int { return &s.MinPaths }, number(maxPaths)),
	entry("failback", "immediate", true, func(s *Settings) *time.Duration { return &s.Failback }, ParseFailback),
	entry("lanes", "1", false, func(s *Settings) *int { return &s.Lanes }, number(maxLanes)),
	entry("queueDepth", "128", false, func(s *Settings) *int { return &s.QueueDepth }, number(maxQueueDepth)),
	entry("sessionsPerPath", "1", false, func(s *Settings) *int { return &s.SessionsPerPath }, number(maxSessions)),
	entry("headerDigest", "none", false, func(s *Settings) *bool { return &s.HeaderDigest }, digest),
	entry("dataDigest", "none", false, func(s *Settings) *bool { return &s.DataDigest }, digest),
	entry("fenceTimeout", "15s", true, func(s *Settings) *time.Duration { return &s.FenceTimeout }, within(minFenceTimeout, maxFenceTimeout)),
	entry("keepAliveTimeout", "5s", true, func(s *Settings) *time.Duration { return &s.KeepAliveTimeout }, within(minKeepAlive, maxKeepAlive)),
	entry("sourceAddresses", "", true, func(s *Settings) *[]string { return &s.SourceAddresses }, sources),
	entry("shutdownTimeout", "30s", true, func(s *Settings) *time.Duration { return &s.ShutdownTimeout }, within(0, maxShutdown)),
}

// entry makes a definition of a field and what reads its text.
func entry[T any](name, standard string, live bool, field func(*Settings) *T, parse func(string) (T, error)) definition {
	return definition{name: name, standard: standard, live: live,
		value: func(s *Settings) any { return *field(s) },
		set: func(s *Settings, v string) error {
			x, err := parse(v)
			if err == nil {
				*field(s) = x
			}
			return err
		}}
}

func selector(v string) (string, error) {
	s, err := pathsel.ByName(v)
	if err != nil {
		return "", err
	}
	return s.Name(), nil
}

func number(most int) func(string) (int, error) {
	return func(v string) (int, error) {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 || n > most {
			return 0, fmt.Errorf("%q is no number from 1 to %d", clip(v), most)
		}
		return n, nil
	}
}

func within(least, most time.Duration) func(string) (time.Duration, error) {
	return func(v string) (time.Duration, error) {
		t, err := time.ParseDuration(v)
		if err != nil || t < least || t > most {
			return 0, fmt.Errorf("%q is no duration from %v to %v, like 15s", clip(v), least, most)
		}
		return t, nil
	}
}

func digest(v string) (bool, error) {
	switch v {
	case "none":
		return false, nil
	case "crc32c":
		return true, nil
	}
	return false, fmt.Errorf("%q is neither none nor crc32c", clip(v))
}

// sources reads a comma list of addresses or interfaces; entries may be empty.
func sources(v string) ([]string, error) {
	if v == "" {
		return nil, nil
	}
	out := strings.Split(v, ",")
	if len(out) > maxPaths {
		return nil, fmt.Errorf("%d source addresses, at most %d", len(out), maxPaths)
	}
	for i, s := range out {
		out[i] = strings.TrimSpace(s)
		if len(out[i]) > maxSource || strings.ContainsAny(out[i], "/ \t\r\n\x00") {
			return nil, fmt.Errorf("%q is neither an address nor an interface", clip(s))
		}
	}
	return out, nil
}

// ParseMergeDeadline reads off, auto, 0 or a duration of up to 100 ms.
func ParseMergeDeadline(v string) (time.Duration, error) {
	switch v {
	case "off":
		return MergeOff, nil
	case "auto":
		return MergeAuto, nil
	}
	t, err := time.ParseDuration(v)
	if err != nil || t < 0 || t > maxMergeDeadline {
		return 0, fmt.Errorf("merge deadline %q is neither 'off' nor 'auto' nor a duration of 0 to %v, like 20us", clip(v), maxMergeDeadline)
	}
	return t, nil
}

// ParseFailback reads immediate, manual or a duration of up to 24 h.
func ParseFailback(v string) (time.Duration, error) {
	switch v {
	case "immediate":
		return FailbackImmediate, nil
	case "manual":
		return FailbackManual, nil
	}
	t, err := time.ParseDuration(v)
	if err != nil || t <= 0 || t > maxFailback {
		return 0, fmt.Errorf("failback %q is neither 'immediate' nor 'manual' nor a duration up to %v, like 60s", clip(v), maxFailback)
	}
	return t, nil
}

// ParsePolling reads off, adaptive or a duration of up to 1 ms.
func ParsePolling(v string) (time.Duration, error) {
	switch v {
	case "off":
		return 0, nil
	case "adaptive":
		return PollAdaptive, nil
	}
	t, err := time.ParseDuration(v)
	if err != nil || t < 0 || t > maxPolling {
		return 0, fmt.Errorf("polling %q is neither 'off' nor 'adaptive' nor a duration up to %v, like 50us", clip(v), maxPolling)
	}
	return t, nil
}

// ParseNoPathTimeout reads never, or a duration of up to 24 h.
func ParseNoPathTimeout(v string) (time.Duration, error) {
	if v == "never" {
		return Never, nil
	}
	t, err := time.ParseDuration(v)
	if err != nil || t < 0 || t > maxNoPathTimeout {
		return 0, fmt.Errorf("%q is neither 'never' nor a duration up to %v, like 30s", clip(v), maxNoPathTimeout)
	}
	return t, nil
}
