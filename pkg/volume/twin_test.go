package volume

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/csi-mpath/csi-mpath/pkg/mount"
	"github.com/csi-mpath/csi-mpath/pkg/mount/mounttest"
	"github.com/csi-mpath/csi-mpath/pkg/tunable"
)

// storage is the twin of all that devices are: volumes on arrays, the kernel's
// block devices, which outlive a process, and sessions, which do not.
type storage struct {
	node   *mounttest.Node
	before func() // if set, called by Open; set before use

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced at each change
	luns     map[string]*lun
	kernel   map[string]*blockDevice // by volume
	next     int
	opens    int
	discards int
}

// lun is a volume on the array; its fields are under storage.mu.
type lun struct {
	disk       *mounttest.Memory
	up, paths  int
	deny       error // what Open says
	noFlush    error
	inDoubt    int64
	size       uint64 // that the paths show, 0: the disk's
	disagree   bool
	sessions   int
	lastTuned  tunable.Settings
	lastSecret Secrets
	readOnly   bool
}

// blockDevice is what the kernel has; writes of a revoked one go nowhere.
type blockDevice struct {
	path, number string
	lun          *lun
	failed       bool
	server       *twinDevice
}

// eio is a disk that fails when its block device was failed.
type eio struct {
	*mounttest.Memory
	s *storage
	b *blockDevice
}

func (d eio) ReadAt(b []byte, off int64) (int, error) {
	if d.dead() {
		return 0, errors.New("input/output error")
	}
	return d.Memory.ReadAt(b, off)
}

func (d eio) WriteAt(b []byte, off int64) (int, error) {
	if d.dead() {
		return 0, errors.New("input/output error")
	}
	return d.Memory.WriteAt(b, off)
}

func (d eio) dead() bool {
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	return d.b.failed
}

func newStorage() *storage {
	return &storage{node: mounttest.New(), changed: make(chan struct{}), luns: map[string]*lun{}, kernel: map[string]*blockDevice{}}
}

// create makes a volume with two paths.
func (s *storage) create(name string, size uint64) *lun {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &lun{disk: mounttest.NewMemory(size), up: 2, paths: 2}
	s.luns[target(name)] = l
	return l
}

func target(name string) string { return "iqn.2025-01.io.csi-mpath:vol:" + name }

// change does something to the world, which who waits for it sees.
func (s *storage) change(f func()) {
	s.mu.Lock()
	f()
	for _, b := range s.kernel {
		if b.lun.up == 0 && !b.failed || b.server == nil && !b.failed {
			s.node.Hang(b.path)
		} else {
			s.node.Resume(b.path)
		}
	}
	close(s.changed)
	s.changed = make(chan struct{})
	s.mu.Unlock()
}

// until waits for the world to be as f says.
func (s *storage) until(ctx context.Context, f func() bool) error {
	for {
		s.mu.Lock()
		ok, changed := f(), s.changed
		s.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// kill ends the process: sessions end, block devices wait for the next.
func (s *storage) kill() {
	s.change(func() {
		for _, b := range s.kernel {
			b.server = nil
		}
		for _, l := range s.luns {
			l.sessions = 0
		}
	})
}

// reset is the end of the machine: no block device and no mount is left of it.
func (s *storage) reset() {
	s.kill()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kernel, s.node = map[string]*blockDevice{}, mounttest.New()
}

// Open implements DeviceOpener.
func (s *storage) Open(ctx context.Context, c DeviceConfig) (Device, error) {
	if s.before != nil {
		s.before()
	}
	s.mu.Lock()
	s.opens++
	l := s.luns[c.Attached.Target]
	s.mu.Unlock()
	if l == nil {
		return nil, fmt.Errorf("%w: no target %s", ErrUnavailable, c.Attached.Target)
	}
	enough := func() bool { return l.up >= c.Settings.MinPaths && l.deny == nil }
	if c.Again {
		if err := s.until(ctx, enough); err != nil {
			return nil, err
		}
	}
	var dev *twinDevice
	var err error
	s.change(func() {
		if !enough() {
			if err = l.deny; err == nil {
				err = fmt.Errorf("%w: %d of %d paths work, %d are needed", ErrUnavailable, l.up, l.paths, c.Settings.MinPaths)
			}
			return
		}
		b := s.kernel[c.Volume]
		if b == nil {
			s.next++
			b = &blockDevice{path: fmt.Sprintf("/dev/nbd%d", s.next), number: fmt.Sprintf("43:%d", s.next), lun: l}
			s.kernel[c.Volume] = b
			s.node.Add(b.path, b.number, eio{l.disk, s, b})
		}
		l.sessions++
		l.readOnly, l.lastTuned, l.lastSecret = c.ReadOnly, c.Settings, c.Secrets
		dev = &twinDevice{s: s, l: l, b: b, volume: c.Volume}
		b.server = dev
	})
	if err != nil {
		return nil, err
	}
	return dev, nil
}

// Discard implements DeviceOpener.
func (s *storage) Discard(_ context.Context, volume string) error {
	var b *blockDevice
	s.change(func() {
		s.discards++
		if b = s.kernel[volume]; b != nil {
			b.failed = true
			delete(s.kernel, volume)
		}
	})
	if b != nil {
		s.node.Remove(b.path)
	}
	return nil
}

// twinDevice is an open volume.
type twinDevice struct {
	s      *storage
	l      *lun
	b      *blockDevice
	volume string
}

func (d *twinDevice) Path() string { return d.b.path }

func (d *twinDevice) Status() Status {
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	st := Status{Size: int64(d.l.disk.Size()), Usable: d.l.up, InDoubt: d.l.inDoubt}
	for i := range d.l.paths {
		p := PathStatus{Portal: fmt.Sprintf("10.0.0.%d:3260", i+1), Up: i < d.l.up, State: "up"}
		if !p.Up {
			p.State, p.Cause = "down", "no answer for 5s"
		}
		st.Paths = append(st.Paths, p)
	}
	return st
}

func (d *twinDevice) Flush(ctx context.Context) error {
	var err error
	if e := d.s.until(ctx, func() bool { err = d.l.noFlush; return d.l.up > 0 || d.b.failed }); e != nil {
		return e
	}
	if d.b.failed {
		return errors.New("input/output error")
	}
	return err
}

func (d *twinDevice) Settle(ctx context.Context) error {
	if err := d.s.until(ctx, func() bool { return d.l.inDoubt == 0 }); err != nil {
		return fmt.Errorf("%d writes in doubt: %w", d.l.inDoubt, err)
	}
	return nil
}

func (d *twinDevice) Rescan(context.Context) (int64, error) {
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	switch {
	case d.l.disagree:
		return 0, fmt.Errorf("%w: paths show different sizes", ErrUnavailable)
	case d.l.up == 0:
		return 0, fmt.Errorf("%w: no path answers", ErrUnavailable)
	case d.l.size > 0:
		d.l.disk.Resize(d.l.size)
	}
	return int64(d.l.disk.Size()), nil
}

func (d *twinDevice) Tune(s tunable.Settings) error {
	d.s.change(func() { d.l.lastTuned = s })
	return nil
}

func (d *twinDevice) Renew(x Secrets) error {
	d.s.change(func() { d.l.lastSecret = x })
	return nil
}

func (d *twinDevice) Fail(error) { d.s.change(func() { d.b.failed = true }) }

func (d *twinDevice) Detach(context.Context) error {
	if points, err := mount.Over(d.s.node).Mounts(d.b.path); err != nil || len(points) > 0 {
		return fmt.Errorf("%w: %s is mounted at %v (%v)", ErrState, d.b.path, points, err)
	}
	d.s.change(func() { delete(d.s.kernel, d.volume) })
	d.s.node.Remove(d.b.path)
	return nil
}

func (d *twinDevice) Close(context.Context) error {
	d.s.change(func() { d.l.sessions-- })
	return nil
}

func (d *twinDevice) Leave(context.Context) error {
	d.s.change(func() { d.l.sessions--; d.b.server = nil })
	return nil
}
