//go:build vm

package agent

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/test/node"
	"github.com/csi-mpath/csi-mpath/test/vm/rig"
)

// load is a node that must not be disturbed: it writes, reads back, and wants no
// error and no loss of a session.
type load struct {
	stop    chan struct{}
	failed  chan error
	writers sync.WaitGroup
	count   atomic.Uint64 // of write and read, acknowledged
	longest atomic.Int64  // nanoseconds
}

func newLoad() *load { return &load{stop: make(chan struct{}), failed: make(chan error, 64)} }

// add begins to write 4 KiB at off through a path, again and again.
func (l *load) add(p *node.Path, off int64) {
	l.writers.Go(func() {
		for n := uint64(1); ; n++ {
			select {
			case <-l.stop:
				return
			default:
			}
			at := time.Now()
			if err := roundTrip(p, off, n); err != nil {
				l.failed <- err
				return
			}
			l.count.Add(1)
			if took := int64(time.Since(at)); took > l.longest.Load() {
				l.longest.Store(took)
			}
		}
	})
}

// roundTrip writes a block that has n in it, and reads it back.
func roundTrip(p *node.Path, off int64, n uint64) error {
	b, back := make([]byte, 4096), make([]byte, 4096)
	binary.LittleEndian.PutUint64(b, n)
	if err := errors.Join(p.Write(b, off), p.Read(back, off)); err != nil {
		return err
	}
	if !bytes.Equal(b, back) {
		return errors.New("read something else than was written")
	}
	return nil
}

// moves waits until something more was written.
func (l *load) moves(t *testing.T) {
	t.Helper()
	from := l.count.Load()
	rig.Must(t, rig.Wait("the load to move", func() error {
		if len(l.failed) > 0 {
			return fmt.Errorf("it failed: %w", rig.ErrOver)
		}
		if l.count.Load() < from+8 {
			return errors.New("it does not")
		}
		return nil
	}))
}

// end stops it. An error it saw is the test's.
func (l *load) end(t *testing.T) {
	t.Helper()
	close(l.stop)
	l.writers.Wait()
	select {
	case err := <-l.failed:
		t.Errorf("the node that must not be disturbed saw: %v", err)
	default:
	}
}

// shortly is less than a held write takes.
func shortly() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), held*time.Millisecond/3)
}
