package contract

import (
	"context"
	"errors"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// patient makes calls again that were refused with ErrBusy, as every caller must.
type patient struct{ backend.Backend }

// patiently is one call until it is not busy.
func patiently[T any](ctx context.Context, call func() (T, error)) (T, error) {
	for {
		got, err := call()
		if !errors.Is(err, backend.ErrBusy) {
			return got, err
		}
		select {
		case <-ctx.Done():
			return got, err
		case <-time.After(busyPause):
		}
	}
}

// gently is patiently for calls that return nothing.
func gently(ctx context.Context, call func() error) error {
	_, err := patiently(ctx, func() (struct{}, error) { return struct{}{}, call() })
	return err
}

func (p patient) CreateVolume(ctx context.Context, r backend.CreateVolume) (backend.Volume, error) {
	return patiently(ctx, func() (backend.Volume, error) { return p.Backend.CreateVolume(ctx, r) })
}

func (p patient) DeleteVolume(ctx context.Context, id backend.ID) error {
	return gently(ctx, func() error { return p.Backend.DeleteVolume(ctx, id) })
}

func (p patient) ExpandVolume(ctx context.Context, id backend.ID, size backend.Size) (backend.Volume, error) {
	return patiently(ctx, func() (backend.Volume, error) { return p.Backend.ExpandVolume(ctx, id, size) })
}

func (p patient) TuneVolume(ctx context.Context, id backend.ID, t map[string]string) (backend.Volume, error) {
	return patiently(ctx, func() (backend.Volume, error) { return p.Backend.TuneVolume(ctx, id, t) })
}

func (p patient) CreateSnapshot(ctx context.Context, r backend.CreateSnapshot) (backend.Snapshot, error) {
	return patiently(ctx, func() (backend.Snapshot, error) { return p.Backend.CreateSnapshot(ctx, r) })
}

func (p patient) DeleteSnapshot(ctx context.Context, id backend.ID) error {
	return gently(ctx, func() error { return p.Backend.DeleteSnapshot(ctx, id) })
}

func (p patient) Publish(ctx context.Context, r backend.Publish) (backend.Connection, error) {
	return patiently(ctx, func() (backend.Connection, error) { return p.Backend.Publish(ctx, r) })
}

func (p patient) Unpublish(ctx context.Context, id backend.ID, node string) error {
	return gently(ctx, func() error { return p.Backend.Unpublish(ctx, id, node) })
}

func (p patient) Fence(ctx context.Context, node string) error {
	return gently(ctx, func() error { return p.Backend.Fence(ctx, node) })
}

func (p patient) Unfence(ctx context.Context, node string) error {
	return gently(ctx, func() error { return p.Backend.Unfence(ctx, node) })
}
