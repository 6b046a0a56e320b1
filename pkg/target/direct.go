package target

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxAlign is the largest alignment direct I/O is offered with, bytes: the
// largest block size of a unit.
const maxAlign = 4096

// directAlign finds what a file's direct I/O must be aligned to, by trying:
// kernels before 6.1 have no better way.
func directAlign(f *os.File) (uint64, error) {
	buf := alignedBuffer(maxAlign)
	for _, align := range []uint64{512, maxAlign} {
		_, err := unix.Pread(int(f.Fd()), buf[:align], int64(align))
		if err == nil {
			return align, nil
		}
		if !errors.Is(err, unix.EINVAL) {
			return 0, err
		}
	}
	return 0, fmt.Errorf("%s: direct I/O needs more than %d-byte blocks; leave it off", f.Name(), maxAlign)
}

// alignedBuffer returns n bytes of memory aligned for direct I/O.
func alignedBuffer(n uint64) []byte {
	b := make([]byte, n+maxAlign)
	skip := (maxAlign - address(b)%maxAlign) % maxAlign
	return b[skip : skip+n : skip+n]
}

func address(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// aligned reports whether direct I/O can use p's memory, or needs none. Offsets
// and lengths are multiples of a unit's block size, which is checked against
// Alignment when the unit is added.
func (s *File) aligned(p []byte) bool { return s.align == 1 || address(p)%maxAlign == 0 }

// bounce reads or writes p, whose memory is not aligned, through memory that is.
func (s *File) bounce(p []byte, off uint64, write bool) error {
	buf := alignedBuffer(min(uint64(len(p)), comparePiece))
	for len(p) > 0 {
		part := buf[:min(len(p), len(buf))]
		var err error
		if write {
			copy(part, p)
			_, err = s.f.WriteAt(part, int64(off))
		} else if _, err = s.f.ReadAt(part, int64(off)); err == nil {
			copy(p, part)
		}
		if err != nil {
			return full(err)
		}
		p, off = p[len(part):], off+uint64(len(part))
	}
	return nil
}
