//go:build interop

package mount_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/mount"
	"github.com/csi-mpath/csi-mpath/pkg/nbd"
	"github.com/csi-mpath/csi-mpath/pkg/nbd/nbdtest"
)

// faulty is a disk that fails requests, or keeps them, as told.
type faulty struct {
	*nbdtest.RAM
	mu   sync.Mutex
	mode mode
	kept []*blk.Request
}

type mode int

const (
	works mode = iota
	fails
	keeps
)

func (f *faulty) OpenLane(int) (nbd.Lane, error) { return (*faultyLane)(f), nil }

// become changes what it does; what it kept is done then.
func (f *faulty) become(m mode) {
	f.mu.Lock()
	f.mode = m
	kept := f.kept
	f.kept = nil
	f.mu.Unlock()
	for _, r := range kept {
		(*faultyLane)(f).Submit(r)
	}
}

type faultyLane faulty

func (l *faultyLane) Submit(first *blk.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for r := first; r != nil; {
		next := r.Next
		switch l.mode {
		case works:
			r.Status = l.Do(r)
			r.Owner.Complete(r)
		case fails:
			r.Status = blk.IOError
			r.Owner.Complete(r)
		case keeps:
			r.Next = nil
			l.kept = append(l.kept, r)
		}
		r = next
	}
}

func (l *faultyLane) Close() {}

// disk is a faulty disk that holds a file system, attached, and what Stage is
// asked for with the worst hint: that it is blank.
func disk(t *testing.T, fsType string) (*faulty, *mount.Host, mount.Request) {
	t.Helper()
	m, err := nbdtest.NewRAM(deviceSize, 4096)
	if err != nil {
		t.Fatal(err)
	}
	f, h := &faulty{RAM: m}, mount.New()
	dev, end := attached(t, f)
	t.Cleanup(func() { f.become(works); end() })
	r := mount.Request{Volume: "vol", Device: dev, Target: filepath.Join(shortDir(t), "at"), FSType: fsType, Blank: true}
	if rep := stage(t, h, r); !rep.Formatted {
		t.Fatalf("%+v", rep)
	}
	if err := h.Unmount(t.Context(), r.Target); err != nil {
		t.Fatal(err)
	}
	return f, h, r
}

// eventually stages once the programs that hung have ended.
func eventually(t *testing.T, h *mount.Host, r mount.Request) mount.Report {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		rep, err := h.Stage(t.Context(), r)
		if !errors.Is(err, mount.ErrHangs) {
			if err != nil {
				t.Fatal(err)
			}
			return rep
		}
		<-tick.C
	}
}

func TestD01ARealDeviceThatFailsEveryReadIsNotFormatted(t *testing.T) {
	for _, fsType := range []string{mount.Ext4, mount.XFS} {
		f, h, r := disk(t, fsType)
		f.become(fails)
		if _, err := h.Stage(t.Context(), r); !errors.Is(err, mount.ErrUnreadable) {
			t.Fatal(err)
		}
		f.become(works)
		if rep := stage(t, h, r); rep.Formatted {
			t.Fatal("it was formatted")
		}
		if err := h.Unmount(t.Context(), r.Target); err != nil {
			t.Fatal(err)
		}
	}
}

func TestD01ARealDeviceThatHangsHoldsNobodyAndIsNotFormatted(t *testing.T) {
	f, h, r := disk(t, mount.Ext4)
	f.become(keeps)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := h.Stage(ctx, r); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	f.become(works)
	if rep := eventually(t, h, r); rep.Formatted {
		t.Fatal("it was formatted")
	}
	if err := h.Unmount(t.Context(), r.Target); err != nil {
		t.Fatal(err)
	}
}

// All paths of a staged volume are dead: statistics come all the same, its
// publications go, and its unmount is an error until the device answers.
func TestD20ARealVolumeWhoseDeviceHangs(t *testing.T) {
	for _, fsType := range []string{mount.Ext4, mount.XFS} {
		f, h, r := disk(t, fsType)
		stage(t, h, r)
		pod := filepath.Join(shortDir(t), "pod")
		if err := h.Bind(t.Context(), r.Target, pod, false); err != nil {
			t.Fatal(err)
		}
		f.become(keeps)
		for range 200 {
			begin := time.Now()
			if _, err := h.Stats(t.Context(), pod); err != nil && !errors.Is(err, mount.ErrHangs) {
				t.Fatal(err)
			}
			if took := time.Since(begin); took > 10*time.Second { // half a second, on a machine that is not overloaded
				t.Fatalf("statistics took %v", took)
			}
		}
		if err := h.Unmount(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		if err := h.Unmount(t.Context(), r.Target); !errors.Is(err, mount.ErrHangs) {
			t.Fatalf("%s: %v", fsType, err)
		}
		f.become(works)
		eventually(t, h, r)
		if err := h.Unmount(t.Context(), r.Target); err != nil {
			t.Fatal(err)
		}
	}
}
