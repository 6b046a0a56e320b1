package node

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// redial bounds a login that follows a session's end.
const redial = 10 * time.Second

// Disk is a volume at the first portal that lets its node in, as package
// backend/contract wants it: when the session ends, or the volume says that it
// changed, it logs in again, once for each call.
type Disk struct {
	conn backend.Connection
	auth backend.Auth

	mu   sync.Mutex
	path *Path
}

// Attach logs in.
func Attach(ctx context.Context, c backend.Connection, a backend.Auth) (*Disk, error) {
	d := &Disk{conn: c, auth: a}
	return d, d.dial(ctx)
}

func (d *Disk) dial(ctx context.Context) error {
	err := fmt.Errorf("no portals: %w", backend.ErrInvalid)
	for i := range d.conn.Portals {
		var p *Path
		if p, err = Dial(ctx, d.conn, i, d.auth); err == nil {
			d.path = p
			return nil
		}
	}
	return err
}

// do makes a call, and again on a session that is new.
func (d *Disk) do(call func(*Path) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	type outcome struct{ err error }
	done := make(chan outcome, 1)
	go func(p *Path) { done <- outcome{call(p)} }(d.path)
	select {
	case <-d.path.Told(): // it takes no commands, and this one may hang
		d.path.Close()
		<-done
	case o := <-done:
		select {
		case <-d.path.Done():
		case <-d.path.Told():
		default:
			return o.err
		}
		d.path.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), redial)
	defer cancel()
	if err := d.dial(ctx); err != nil {
		return err
	}
	return call(d.path)
}

// ReadAt implements io.ReaderAt, for whole blocks.
func (d *Disk) ReadAt(b []byte, off int64) (int, error) {
	return len(b), d.do(func(p *Path) error { return p.Read(b, off) })
}

// WriteAt implements io.WriterAt, for whole blocks.
func (d *Disk) WriteAt(b []byte, off int64) (int, error) {
	return len(b), d.do(func(p *Path) error { return p.Write(b, off) })
}

// Flush makes what was written durable.
func (d *Disk) Flush() error { return d.do((*Path).Flush) }

// Close logs out.
func (d *Disk) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.path.Close()
	return nil
}
