package embedded

import (
	"context"
	"fmt"
	"sync"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// Quiesce implements export.Exporter. Initiators see writes that take longer,
// nothing else: connections are answered. One at a time for a volume.
func (x *Exporter) Quiesce(ctx context.Context, identity string) (resume func(), err error) {
	v := x.find(identity)
	if v == nil || v.ending.Load() {
		return func() {}, nil
	}
	p, err := v.srv.Pause()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", v.name, err)
	}
	flushed := make(chan error, 1)
	go func() {
		<-p.Still()
		flushed <- v.store.Flush()
	}()
	select {
	case err = <-flushed:
	case <-ctx.Done():
		err = fmt.Errorf("%w: writes that were begun are not in the store yet: %w", backend.ErrBusy, ctx.Err())
	}
	if err != nil {
		p.Resume()
		return nil, fmt.Errorf("%s: %w", v.name, err)
	}
	return sync.OnceFunc(p.Resume), nil
}
