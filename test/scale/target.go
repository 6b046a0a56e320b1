package main

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/iscsi/auth"
	"github.com/csi-mpath/csi-mpath/pkg/target"
)

const (
	portals = 2
	// volumeSize is in memory, and touched only where it is written, bytes.
	volumeSize = 8 << 20
	// sampleEvery is how often the target looks at its login counters.
	sampleEvery = 100 * time.Millisecond
)

// Target is the role of the storage: a target for each volume behind portals
// that all share.
type Target struct {
	hub     *target.Hub
	doors   []*target.Door
	servers []*target.Server

	mu      sync.Mutex
	samples []uint64 // logins so far, one per sampleEvery
}

// Storage is what the initiator needs to know.
type Storage struct{ Portals, Targets []string }

// Start makes n targets.
func (t *Target) Start(n int, out *Storage) (err error) {
	if t.hub, err = target.NewHub(auth.Credentials{}); err != nil {
		return err
	}
	for range portals {
		d, err := t.hub.Listen("127.0.0.1:0")
		if err != nil {
			return err
		}
		t.doors = append(t.doors, d)
		out.Portals = append(out.Portals, d.Addr())
	}
	for i := range n {
		s, err := target.New(target.Config{Name: fmt.Sprintf("iqn.2026-01.test:scale.%d", i),
			LUNs: []target.LUN{{Number: 1, Store: target.NewRAM(volumeSize)}}})
		if err == nil {
			err = t.hub.Add(s)
		}
		for k, d := range t.doors {
			if err == nil {
				_, err = d.Add(s, target.PortalConfig{TPGT: uint16(k + 1)})
			}
		}
		if err != nil {
			return err
		}
		t.servers = append(t.servers, s)
		out.Targets = append(out.Targets, s.Name())
	}
	go t.sample()
	return nil
}

func (t *Target) sample() {
	for range time.Tick(sampleEvery) {
		n := t.logins()
		t.mu.Lock()
		t.samples = append(t.samples, n)
		t.mu.Unlock()
	}
}

func (t *Target) logins() (n uint64) {
	for _, s := range t.servers {
		n += s.Stats().Logins
	}
	return n
}

// Kill takes portals away, as if their controllers died.
func (t *Target) Kill(doors []int, _ *struct{}) error { //nolint:unparam // net/rpc wants it
	for _, d := range doors {
		t.doors[d].Kill()
	}
	return nil
}

// Return brings portals back.
func (t *Target) Return(doors []int, _ *struct{}) error {
	for _, d := range doors {
		if err := t.doors[d].Start(); err != nil {
			return err
		}
	}
	return nil
}

// Mark names a moment for Rate.
func (t *Target) Mark(_ struct{}, at *int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	*at = len(t.samples)
	return nil
}

// Rate is what the target saw since a mark.
type Rate struct {
	Logins uint64
	Peak   float64 // most of one second
}

// Rate counts logins since a mark.
func (t *Target) Rate(from int, out *Rate) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.samples[min(max(from-1, 0), len(t.samples)):]
	if len(s) == 0 {
		return nil
	}
	out.Logins = s[len(s)-1] - s[0]
	span := int(time.Second / sampleEvery)
	peaks := []uint64{0}
	for i := range s {
		peaks = append(peaks, s[i]-s[max(i-span, 0)])
	}
	out.Peak = float64(slices.Max(peaks))
	return nil
}
