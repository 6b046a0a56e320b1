package datapath

import (
	"errors"
	"fmt"
	"time"
)

// Failback of Config: when I/O returns to a better group of paths that came
// back. Zero is at once; any other positive value is how long the group must
// have been there.
const (
	FailbackImmediate time.Duration = 0
	// FailbackManual waits for Device.Failback.
	FailbackManual time.Duration = -1
)

// settleGroupLocked decides which group of a new table is used. A worse one is
// left at once for a better one only if Failback says so; it is left anyhow
// when it is empty.
func (d *Device) settleGroupLocked(t *table, now bool) {
	best := tierNone
	if len(t.tiers) > 0 {
		best = t.tiers[0]
	}
	if best < d.tier && d.cfg.Failback != FailbackImmediate && !now && t.use(d.tier) {
		if d.failback == nil && d.cfg.Failback > 0 {
			d.failback = time.AfterFunc(d.cfg.Failback, d.failbackDue)
		}
		return
	}
	if d.failback != nil {
		d.failback.Stop()
		d.failback = nil
	}
	d.tier = best
}

func (d *Device) failbackDue() {
	d.mu.Lock()
	due := d.failback != nil // not stopped meanwhile
	d.mu.Unlock()
	if due {
		d.Failback()
	}
}

// Failback moves I/O to the best group of paths now.
func (d *Device) Failback() {
	d.mu.Lock()
	was := d.tier
	d.rebuild(true)
	is := d.tier
	d.mu.Unlock()
	if was != is {
		d.emit(Event{Kind: Failback, Detail: fmt.Sprintf("I/O goes over the %s paths again, it went over the %s ones", is, was)})
	}
	d.kickAll()
}

// ErrNoSuchPath: no path of the device has the name given.
var ErrNoSuchPath = errors.New("no such path")

// Drain keeps I/O off a path until Enable: it goes there only when no other
// path is left. What is in flight on it is answered. The last path in order is
// not drained: then I/O would have nowhere better to go.
func (d *Device) Drain(path string) error {
	return d.order(path, "drained by an operator", func(p *Path) error {
		for _, o := range d.paths {
			if o != p && o.live != nil && o.live.tier() < tierDrained {
				p.drained, p.preferred = true, false
				return nil
			}
		}
		return fmt.Errorf("volume %s: %s is the last usable path: bring another one up or enable it before draining this one", d.cfg.Name, path)
	})
}

// Enable takes Drain and Prefer back.
func (d *Device) Enable(path string) error {
	return d.order(path, "enabled by an operator", func(p *Path) error {
		p.drained, p.preferred = false, false
		return nil
	})
}

// Prefer puts I/O on a path, and on others that are preferred, as long as one
// of them is usable and not marginal, whatever their access state.
func (d *Device) Prefer(path string) error {
	return d.order(path, "preferred by an operator", func(p *Path) error {
		p.drained, p.preferred = false, true
		return nil
	})
}

// order carries out an operator's command on a path, at once whatever Failback
// says.
func (d *Device) order(path, detail string, f func(p *Path) error) error {
	d.mu.Lock()
	for _, p := range d.paths {
		if p.tr.Name() != path {
			continue
		}
		err := f(p)
		if err == nil {
			d.rebuild(true)
		}
		d.mu.Unlock()
		if err == nil {
			d.emit(Event{Kind: PathOrder, Path: path, Detail: detail})
			d.kickAll()
		}
		return err
	}
	defer d.mu.Unlock()
	names := make([]string, 0, len(d.paths))
	for _, p := range d.paths {
		names = append(names, p.tr.Name())
	}
	return fmt.Errorf("volume %s: %w %q; it has %q", d.cfg.Name, ErrNoSuchPath, path, names)
}
