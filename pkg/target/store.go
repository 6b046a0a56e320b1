package target

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Store holds the blocks of a logical unit. Several targets may share one:
// methods may be called concurrently. Offsets and lengths are bytes, inside
// Size, multiples of the unit's block size.
type Store interface {
	Size() uint64
	ReadAt(p []byte, off uint64) error
	// WriteAt returns ErrNoSpace when the backing is full.
	WriteAt(p []byte, off uint64) error
	// Zero makes the range read as zeroes and may free it.
	Zero(off, n uint64) error
	// Flush makes completed writes durable. It may take long and runs beside
	// the other methods.
	Flush() error
	Close() error
}

// ErrNoSpace is a store whose backing is full.
var ErrNoSpace = errors.New("target: the store is full")

// viewer is a store whose bytes can be sent where they lie. What another write
// changes meanwhile may be seen half: as on a disk, only concurrent commands
// can tell.
type viewer interface{ view(off, n uint64) []byte }

// RAM is a store in memory.
type RAM struct {
	mem   []byte
	locks [ramLocks]sync.RWMutex // of the stripes, by number modulo ramLocks
}

// NewRAM returns a store of size bytes, all zero.
func NewRAM(size uint64) *RAM { return &RAM{mem: make([]byte, size)} }

// Size is the store's size in bytes.
func (r *RAM) Size() uint64 { return uint64(len(r.mem)) }

// stripes calls f for each stripe's part of the range, under its lock.
func (r *RAM) stripes(off, n uint64, write bool, f func(at, to uint64)) {
	for at := off; at < off+n; {
		to := min(off+n, (at/ramStripe+1)*ramStripe)
		l := &r.locks[at/ramStripe%ramLocks]
		if write {
			l.Lock()
			f(at, to)
			l.Unlock()
		} else {
			l.RLock()
			f(at, to)
			l.RUnlock()
		}
		at = to
	}
}

// ReadAt copies from the store.
func (r *RAM) ReadAt(p []byte, off uint64) error {
	r.stripes(off, uint64(len(p)), false, func(at, to uint64) { copy(p[at-off:], r.mem[at:to]) })
	return nil
}

// WriteAt copies into the store.
func (r *RAM) WriteAt(p []byte, off uint64) error {
	r.stripes(off, uint64(len(p)), true, func(at, to uint64) { copy(r.mem[at:to], p[at-off:]) })
	return nil
}

// Zero clears the range.
func (r *RAM) Zero(off, n uint64) error {
	r.stripes(off, n, true, func(at, to uint64) { clear(r.mem[at:to]) })
	return nil
}

// Flush does nothing: there is no cache.
func (r *RAM) Flush() error { return nil }

// Close does nothing.
func (r *RAM) Close() error { return nil }

func (r *RAM) view(off, n uint64) []byte { return r.mem[off : off+n : off+n] }

// File is a store in a file or block device.
type File struct {
	f    *os.File
	size uint64
}

// OpenFile opens a file that exists; its size is the store's.
func OpenFile(path string) (*File, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("target store: %w", err)
	}
	end, err := f.Seek(0, 2) // a device's Stat has no size
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("target store: %w", err)
	}
	return &File{f: f, size: uint64(end)}, nil
}

// Size is the file's size when it was opened, bytes.
func (s *File) Size() uint64 { return s.size }

// ReadAt reads.
func (s *File) ReadAt(p []byte, off uint64) error {
	_, err := s.f.ReadAt(p, int64(off))
	return err
}

// WriteAt writes; a full file system is ErrNoSpace.
func (s *File) WriteAt(p []byte, off uint64) error {
	_, err := s.f.WriteAt(p, int64(off))
	return full(err)
}

func full(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	}
	return err
}

// Zero punches a hole, or writes zeroes where that is not offered.
func (s *File) Zero(off, n uint64) error {
	err := unix.Fallocate(int(s.f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(off), int64(n))
	if err == nil {
		return nil
	}
	zeros := make([]byte, min(n, ramStripe))
	for at := off; at < off+n; {
		part := zeros[:min(off+n-at, uint64(len(zeros)))]
		if err := s.WriteAt(part, at); err != nil {
			return err
		}
		at += uint64(len(part))
	}
	return nil
}

// Flush is fdatasync.
func (s *File) Flush() error { return unix.Fdatasync(int(s.f.Fd())) }

// Close closes the file.
func (s *File) Close() error { return s.f.Close() }
