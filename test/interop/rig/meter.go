package rig

import (
	"context"
	"sync"
	"time"
)

// meterEvery is the distance of the meter's readings.
const meterEvery = 20 * time.Millisecond

// meterKeep bounds what the meter remembers.
const meterKeep = time.Minute

// Meter remembers how much each path carried when.
type Meter struct {
	mu       sync.Mutex
	readings []reading
}

type reading struct {
	at    time.Time
	bytes []uint64 // of each path
}

// StartMeter reads the paths' counters until ctx ends.
func (r *Rig) StartMeter(ctx context.Context) *Meter {
	m := &Meter{}
	go func() {
		t := time.NewTicker(meterEvery)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
				m.add(r)
			}
		}
	}()
	return m
}

func (m *Meter) add(r *Rig) {
	now := reading{at: time.Now()}
	for _, p := range r.Paths {
		now.bytes = append(now.bytes, p.bytes())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.readings = append(m.readings, now)
	if limit := int(meterKeep / meterEvery); len(m.readings) > 2*limit {
		m.readings = append(m.readings[:0], m.readings[limit:]...)
	}
}

// Ratio is what a path carried in the time span after an event, as a share of
// what it carried in the time before; 0 when either is unknown.
func (m *Meter) Ratio(path int, event time.Time, span time.Duration) float64 {
	before, after := m.rate(path, event.Add(-span), event), m.rate(path, event, event.Add(span))
	if before == 0 {
		return 0
	}
	return after / before
}

// rate is bytes per second between the readings inside from..to.
func (m *Meter) rate(path int, from, to time.Time) float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	var first, last *reading
	for i := range m.readings {
		if r := &m.readings[i]; !r.at.Before(from) && !r.at.After(to) {
			if first == nil {
				first = r
			}
			last = r
		}
	}
	if first == nil || first == last {
		return 0
	}
	return float64(last.bytes[path]-first.bytes[path]) / last.at.Sub(first.at).Seconds()
}
