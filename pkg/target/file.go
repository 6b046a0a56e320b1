package target

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Options are how a file is used.
type Options struct {
	// Direct goes past the page cache (O_DIRECT). The device below may still
	// have a volatile cache: flushes matter as before.
	Direct bool
	// WriteThrough makes each write durable before it is answered (O_DSYNC): the
	// unit then says that it has no write cache.
	WriteThrough bool
	// Thick keeps the space of what is zeroed: it was reserved.
	Thick bool
}

// File is a store in a file or block device. Its methods may run side by side.
type File struct {
	f    *os.File
	size uint64
	Options
	align uint64 // of memory, offset and length of direct I/O, bytes; else 1
}

// OpenFile opens a file that exists; its size is the store's.
func OpenFile(path string) (*File, error) { return OpenFileWith(path, Options{}) }

// OpenFileWith opens a file that exists; its size is the store's. Direct is an
// error where the file system has no direct I/O.
func OpenFileWith(path string, o Options) (*File, error) {
	flags := os.O_RDWR
	if o.Direct {
		flags |= unix.O_DIRECT
	}
	if o.WriteThrough {
		flags |= unix.O_DSYNC
	}
	f, err := os.OpenFile(path, flags, 0)
	if err != nil {
		if o.Direct && errors.Is(err, unix.EINVAL) {
			err = fmt.Errorf("%w: its file system has no direct I/O; leave that off, or move the file", err)
		}
		return nil, fmt.Errorf("target store: %w", err)
	}
	s := &File{f: f, Options: o, align: 1}
	if s.size, err = FileSize(f); err == nil && o.Direct {
		s.align, err = directAlign(f)
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("target store: %w", err)
	}
	return s, nil
}

// Size is the file's size when it was opened, bytes.
func (s *File) Size() uint64 { return s.size }

// Alignment is the smallest block size, bytes, the store can be used with.
func (s *File) Alignment() uint64 { return s.align }

// ReadAt reads.
func (s *File) ReadAt(p []byte, off uint64) error {
	if !s.aligned(p) {
		return s.bounce(p, off, false)
	}
	_, err := s.f.ReadAt(p, int64(off))
	return err
}

// WriteAt writes; a full file system is ErrNoSpace.
func (s *File) WriteAt(p []byte, off uint64) error {
	if !s.aligned(p) {
		return s.bounce(p, off, true)
	}
	_, err := s.f.WriteAt(p, int64(off))
	return full(err)
}

func full(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	}
	return err
}

// Zero punches a hole, or zeroes a range of a thick file; it writes zeroes where
// that is not offered.
func (s *File) Zero(off, n uint64) error {
	how := uint32(unix.FALLOC_FL_PUNCH_HOLE)
	if s.Thick {
		how = unix.FALLOC_FL_ZERO_RANGE
	}
	err := unix.Fallocate(s.fd(), how|unix.FALLOC_FL_KEEP_SIZE, int64(off), int64(n))
	if err != nil {
		err = s.writeZeros(off, n)
	}
	if err == nil && s.Options.WriteThrough { // O_DSYNC is about writes only
		err = s.Flush()
	}
	return err
}

func (s *File) writeZeros(off, n uint64) error {
	zeros := alignedBuffer(min(n, ramStripe))
	for at := off; at < off+n; {
		part := zeros[:min(off+n-at, uint64(len(zeros)))]
		if err := s.WriteAt(part, at); err != nil {
			return err
		}
		at += uint64(len(part))
	}
	return nil
}

// Mapped implements mapper. A file system that does not know its holes has none.
func (s *File) Mapped(off uint64) (n uint64, hole bool, err error) {
	const unknown = 1 << 62 // up to the end; callers know where that is
	data, err := unix.Seek(s.fd(), int64(off), unix.SEEK_DATA)
	switch {
	case errors.Is(err, unix.ENXIO):
		return unknown, true, nil
	case errors.Is(err, unix.EINVAL):
		return unknown, false, nil
	case err != nil:
		return 0, false, err
	case uint64(data) > off:
		return uint64(data) - off, true, nil
	}
	end, err := unix.Seek(s.fd(), int64(off), unix.SEEK_HOLE)
	return uint64(end) - off, false, err
}

// Prefetch tells the kernel what will be read.
func (s *File) Prefetch(off, n uint64) {
	if !s.Direct {
		_ = unix.Fadvise(s.fd(), int64(off), int64(n), unix.FADV_WILLNEED) // a hint
	}
}

// Flush is fdatasync; where space is only found then, a lack of it is ErrNoSpace.
func (s *File) Flush() error { return full(unix.Fdatasync(s.fd())) }

// WriteThrough reports whether completed writes are durable.
func (s *File) WriteThrough() bool { return s.Options.WriteThrough }

// Close closes the file.
func (s *File) Close() error { return s.f.Close() }

func (s *File) fd() int { return int(s.f.Fd()) }
