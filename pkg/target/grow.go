package target

import (
	"fmt"
	"os"
)

// grower is a store that can become longer. Grow runs with the machine's lock
// held, beside the jobs of its unit: none of them looks beyond the old end.
type grower interface{ Grow(size uint64) error }

// GrowStore makes the store of a unit, of was bytes, size bytes long. Smaller
// than it is, or a store that cannot grow, is an error and changes nothing.
func GrowStore(st Store, was, size uint64, blockSize uint32) error {
	g, ok := st.(grower)
	if !ok || size < was || size%uint64(blockSize) != 0 {
		return fmt.Errorf("cannot grow from %d to %d bytes", was, size)
	}
	return g.Grow(size)
}

// Grow makes the store size bytes long; what is new is zero. It copies the
// pages that are mapped. No other target may have the store, too.
func (r *RAM) Grow(size uint64) error {
	if size < r.Size() {
		return fmt.Errorf("target store: %d bytes in memory do not become %d", r.Size(), size)
	}
	for i := range r.locks {
		r.locks[i].Lock()
		defer r.locks[i].Unlock()
	}
	mem := make([]byte, size)
	hugePages(mem)
	for at := uint64(0); at < uint64(len(r.mem)); at += ramPage {
		if p := at / ramPage; r.mapped[p/64]>>(p%64)&1 != 0 {
			copy(mem[at:], r.mem[at:min(at+ramPage, uint64(len(r.mem)))])
		}
	}
	r.mem = mem
	r.mapped = append(make([]uint64, 0, mapWords(size)), r.mapped...)[:mapWords(size)]
	return nil
}

// Grow makes the file size bytes long, sparsely, unless it is already; a block
// device must be.
func (s *File) Grow(size uint64) error {
	st, err := s.f.Stat()
	if err != nil {
		return fmt.Errorf("target store: %w", err)
	}
	end, err := FileSize(s.f)
	if err != nil {
		return err
	}
	if end < size {
		if !st.Mode().IsRegular() {
			return fmt.Errorf("target store: %s has %d bytes, not %d: make the device larger first", s.f.Name(), end, size)
		}
		if err := s.f.Truncate(int64(size)); err != nil {
			return fmt.Errorf("target store: %w", full(err))
		}
	}
	s.size = size
	return nil
}

// FileSize is the size of a file or block device, bytes.
func FileSize(f *os.File) (uint64, error) {
	end, err := f.Seek(0, 2) // a device's Stat has no size
	if err != nil {
		return 0, fmt.Errorf("target store: %w", err)
	}
	return uint64(end), nil
}

// SizeOf is the size of the file or block device at a path, bytes.
func SizeOf(path string) (uint64, error) {
	f, err := os.Open(path) //nolint:gosec // the administrator's configuration, or the agent's store, names it
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	return FileSize(f)
}
