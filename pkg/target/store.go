package target

import (
	"errors"
	"sync"
	"sync/atomic"
	"unsafe"

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

// aligned is a store that cannot do with blocks smaller than Alignment, bytes.
type aligned interface{ Alignment() uint64 }

// StoreAlignment is the smallest block size, bytes, a store can do with.
func StoreAlignment(st Store) uint64 {
	if a, ok := st.(aligned); ok {
		return a.Alignment()
	}
	return 1
}

// Viewer is a store whose bytes can be sent where they lie. What another write
// changes meanwhile may be seen half: as on a disk, only concurrent commands
// can tell.
type Viewer interface{ View(off, n uint64) []byte }

// RAM is a store in memory.
type RAM struct {
	mem   []byte
	locks [ramLocks]sync.RWMutex // of the stripes, by number modulo ramLocks
	// mapped has a bit for each page that was written and not zeroed since. A
	// stripe's bits fill whole words, under its lock.
	mapped []uint64
	used   atomic.Int64 // pages mapped
	space  atomic.Int64 // pages that may be; 0 is all
}

// NewRAM returns a store of size bytes, all zero.
func NewRAM(size uint64) *RAM {
	r := &RAM{mem: make([]byte, size), mapped: make([]uint64, mapWords(size))}
	hugePages(r.mem)
	return r
}

// hugePages asks for large pages where the kernel gives them only when asked:
// walking the page tables is a good part of reading 4 KiB somewhere in many MiB.
// Without them all works the same.
func hugePages(mem []byte) {
	start := -uintptr(unsafe.Pointer(unsafe.SliceData(mem))) % hugePage
	if n := uintptr(len(mem)); n >= start+hugePage {
		_ = unix.Madvise(mem[start:n-(n-start)%hugePage], unix.MADV_HUGEPAGE)
	}
}

// SetSpace makes the store thin: writes beyond so many bytes of mapped pages
// (4096 bytes each) find no space. 0 ends that.
func (r *RAM) SetSpace(bytes uint64) { r.space.Store(int64(bytes / ramPage)) }

// Used is how many bytes the mapped pages take.
func (r *RAM) Used() uint64 { return uint64(r.used.Load()) * ramPage }

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
func (r *RAM) WriteAt(p []byte, off uint64) (err error) {
	r.stripes(off, uint64(len(p)), true, func(at, to uint64) {
		if r.take(at, to) {
			copy(r.mem[at:to], p[at-off:])
		} else {
			err = ErrNoSpace
		}
	})
	return err
}

// Zero clears the range.
func (r *RAM) Zero(off, n uint64) error {
	r.stripes(off, n, true, func(at, to uint64) {
		clear(r.mem[at:to])
		r.drop(at, to)
	})
	return nil
}

// Flush does nothing: there is no cache.
func (r *RAM) Flush() error { return nil }

// Close does nothing.
func (r *RAM) Close() error { return nil }

// View implements Viewer.
func (r *RAM) View(off, n uint64) []byte { return r.mem[off : off+n : off+n] }
