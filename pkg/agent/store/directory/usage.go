package directory

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/csi-mpath/csi-mpath/pkg/agent/store"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// Usage is that of the file system, for everybody but root.
func (s *Store) Usage(context.Context) (store.Usage, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.usage()
}

// usage wants s.mu.
func (s *Store) usage() (store.Usage, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(s.dir, &st); err != nil {
		return store.Usage{}, fmt.Errorf("statfs %s: %w", s.dir, err)
	}
	block := st.Bsize
	used, free := int64(st.Blocks-st.Bfree)*block, int64(st.Bavail)*block //nolint:gosec // bytes of a disk
	u := store.Usage{Total: used + free, Used: used, Full: free < step}
	for _, n := range s.promised {
		u.Promised += n
	}
	return s.marks.Judge(u, s.features), nil
}

// promise admits an object of size bytes, or a longer one, and counts it. What is
// promised is decided one at a time.
func (s *Store) promise(_ context.Context, name string, size int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	u, err := s.usage()
	if err != nil {
		return err
	}
	before, there := s.promised[name]
	if !there && len(s.promised) >= maxObjects {
		return fmt.Errorf("%w: %s has %d objects already", backend.ErrNoSpace, s.dir, maxObjects)
	}
	if err := u.Admit(s.dir, size-before); err != nil {
		return err
	}
	s.promised[name] = size
	return nil
}

// keep corrects what an object is counted with; 0: it is gone.
func (s *Store) keep(name string, size int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if size == 0 {
		delete(s.promised, name)
		return
	}
	s.promised[name] = size
}
