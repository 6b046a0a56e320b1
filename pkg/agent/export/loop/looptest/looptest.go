// Package looptest has loop devices that are only remembered.
package looptest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
)

// Devices implements loop.Devices. mu guards all.
type Devices struct {
	mu      sync.Mutex
	marks   map[string]string // to devices
	resized int
}

// Attach implements loop.Devices.
func (d *Devices) Attach(_ context.Context, mark, _ string) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.marks == nil {
		d.marks = map[string]string{}
	}
	if d.marks[mark] == "" {
		d.marks[mark] = d.free()
	}
	return d.marks[mark], nil
}

func (d *Devices) free() string {
	taken := slices.Collect(maps.Values(d.marks))
	for n := 0; ; n++ {
		if path := fmt.Sprint("/dev/loop", n); !slices.Contains(taken, path) {
			return path
		}
	}
}

// Resize implements loop.Devices.
func (d *Devices) Resize(_ context.Context, mark string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.marks[mark] != "" {
		d.resized++
	}
	return nil
}

// Release implements loop.Devices.
func (d *Devices) Release(_ context.Context, mark string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.marks, mark)
	return nil
}

// Marks are those attached, in order.
func (d *Devices) Marks() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.marks))
}

// Resized is how many devices were.
func (d *Devices) Resized() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.resized
}
