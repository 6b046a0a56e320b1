package writers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Verify reads every block of every writer and compares it with what was
// acknowledged. at is where to look instead of the load's own path or folder:
// the target's backing file, another device; "" is the same place. It is called
// after Stop.
func (l *Load) Verify(ctx context.Context, at string) error {
	done := make(chan error, 1)
	go func() { done <- l.verify(at) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("verify: a read hangs: %w", ctx.Err())
	}
}

func (l *Load) verify(at string) error {
	buf, err := buffer(l.cfg.Block)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Munmap(buf) }()
	var found []error
	for _, w := range l.writers() {
		wrong, err := w.verify(buf, at)
		if err != nil {
			return err
		}
		if found = append(found, wrong...); len(found) > maxReport {
			found = append(found[:maxReport], errors.New("… and more"))
			break
		}
	}
	return errors.Join(found...)
}

func (w *writer) verify(buf []byte, at string) (wrong []error, err error) {
	path, offset := w.l.path(w.id, at)
	f, err := open(path, os.O_RDONLY, !w.l.cfg.Buffered)
	if errors.Is(err, os.ErrNotExist) && w.writes == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	for b := range w.acked {
		if w.sent[b] == 0 {
			continue
		}
		off := offset + int64(b)*int64(w.l.cfg.Block)
		n, err := f.ReadAt(buf, off)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("writer %d, block %d of %s at %d: %w", w.id, b, path, off, err)
		}
		clear(buf[n:]) // a file that is too short
		if err := check(buf, place{w.id, uint64(b)}, w.acked[b], w.sent[b]); err != nil {
			wrong = append(wrong, fmt.Errorf("writer %d, block %d of %s at %d: %w", w.id, b, path, off, err))
		}
	}
	return wrong, nil
}
