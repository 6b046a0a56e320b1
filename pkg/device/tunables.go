package device

import (
	"fmt"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/datapath"
	"github.com/csi-mpath/csi-mpath/pkg/pathsel"
	"github.com/csi-mpath/csi-mpath/pkg/poll"
	"github.com/csi-mpath/csi-mpath/pkg/tunable"
)

// Use takes over those of a volume's tunables that are the same over every
// protocol.
func (c *Config) Use(s tunable.Settings) {
	c.PathSelector, c.MinPaths, c.QueueDepth = s.PathSelector, s.MinPaths, s.QueueDepth
	c.PathTimeout, c.CommandTimeout, c.NoPathTimeout = s.PathTimeout, s.CommandTimeout, noPathTimeout(s.NoPathTimeout)
	c.MergeDeadline, c.Polling, c.Failback = mergeDeadline(s.MergeDeadline), polling(s.Polling), failback(s.Failback)
	c.Sources = s.SourceAddresses
}

// Apply changes those tunables that count for a volume at work. At once: the path
// selector, merge deadline, polling, noPathTimeout and failback. With each path's
// next login: pathTimeout, commandTimeout, keepAliveTimeout and sourceAddresses; no
// path that works is taken down for them. The others count when the volume is opened
// next.
func (d *Device) Apply(s tunable.Settings) error {
	sel, err := pathsel.ByName(s.PathSelector)
	if err != nil {
		return err
	}
	if len(s.SourceAddresses) > len(d.paths) {
		return fmt.Errorf("volume %s: sourceAddresses: %d for %d portals", d.cfg.Name, len(s.SourceAddresses), len(d.paths))
	}
	d.dp.SetSelector(sel)
	for i, path := range d.paths {
		path.setPolling(polling(s.Polling))
		l := login{pathTimeout: s.PathTimeout, commandTimeout: s.CommandTimeout, keepAlive: s.KeepAliveTimeout}
		if i < len(s.SourceAddresses) {
			l.source = s.SourceAddresses[i]
		}
		path.relogin(l)
	}
	d.dp.SetFailback(failback(s.Failback))
	d.dp.SetNoPathTimeout(noPathTimeout(s.NoPathTimeout))
	return d.dp.SetMergeDeadline(mergeDeadline(s.MergeDeadline))
}

func noPathTimeout(t time.Duration) time.Duration {
	if t == tunable.Never {
		return datapath.Never
	}
	return t
}

func mergeDeadline(t time.Duration) time.Duration {
	switch t {
	case tunable.MergeAuto:
		return datapath.MergeAuto
	case tunable.MergeOff:
		return datapath.MergeOff
	}
	return t
}

func failback(t time.Duration) time.Duration {
	switch t {
	case tunable.FailbackImmediate:
		return datapath.FailbackImmediate
	case tunable.FailbackManual:
		return datapath.FailbackManual
	}
	return t
}

func polling(t time.Duration) poll.Polling {
	if t == tunable.PollAdaptive {
		return poll.PollAdaptive
	}
	return poll.Polling(t)
}
