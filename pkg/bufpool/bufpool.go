// Package bufpool hands out page-aligned buffers from one fixed arena.
//
// An arena belongs to one allocating goroutine (a connection's reader). Any
// goroutine may give a buffer back: it lands on a lock-free return stack that
// the owner drains. Buffers are powers of two between MinBuf and the arena's
// size, split and joined as buddies, reused last in first out so that hot
// memory stays in the cache. The memory is mapped outside the Go heap and
// touched only when used.
package bufpool

import (
	"errors"
	"fmt"
	"math/bits"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// MinBuf is the smallest buffer, bytes: one page, and one 4Kn block.
const (
	MinBuf   = 4096
	minShift = 12
	none     = ^uint32(0)
)

// Arena is the pool. Alloc, Close: owner only. Free: any goroutine.
type Arena struct {
	mem []byte
	// Owner's state: one list of free blocks per order.
	heads []uint32
	pages []pageInfo
	used  int // bytes handed out and not yet drained back

	// returned is a stack of page numbers + 1, linked by ret. Written by CAS in
	// Free, emptied by Swap in reclaim (owner), hence no ABA.
	returned atomic.Uint32
	_        [56]byte
}

const (
	pageInner = iota
	pageFree
	pageUsed
)

// New maps an arena of size bytes, a power of two of at least MinBuf.
func New(size int) (*Arena, error) {
	if size < MinBuf || size&(size-1) != 0 || size > 1<<40 {
		return nil, fmt.Errorf("bufpool: size %d is not a power of two of at least %d", size, MinBuf)
	}
	mem, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("bufpool: map %d bytes: %w", size, err)
	}
	// A huge page would cost an idle client 2 MiB for its first 4 KiB.
	_ = unix.Madvise(mem, unix.MADV_NOHUGEPAGE)
	pages := size >> minShift
	top := bits.Len(uint(pages)) - 1
	a := &Arena{mem: mem, heads: make([]uint32, top+1)}
	if a.pages, err = mapPages(pages); err != nil {
		return nil, errors.Join(err, unix.Munmap(mem))
	}
	for i := range a.heads {
		a.heads[i] = none
	}
	a.push(0, top)
	return a, nil
}

// Alloc returns a buffer of n bytes (capacity rounded up to a power of two),
// or nil when the arena has no room now. n must be at least 1.
func (a *Arena) Alloc(n int) []byte {
	if n > len(a.mem) || n < 1 {
		return nil
	}
	want := 0
	if n > MinBuf {
		want = bits.Len(uint(n-1)) - minShift
	}
	a.reclaim()
	k := want
	for k < len(a.heads) && a.heads[k] == none {
		k++
	}
	if k == len(a.heads) {
		return nil
	}
	p := a.heads[k]
	a.unlink(p, k)
	for ; k > want; k-- {
		a.push(p+1<<(k-1), k-1)
	}
	a.pages[p].order, a.pages[p].state = uint8(want), pageUsed
	a.used += MinBuf << want
	off := int(p) << minShift
	return a.mem[off : off+n : off+MinBuf<<want]
}

// Free gives back a buffer that Alloc returned; a shorter slice of the same
// start will do. Any goroutine may call it.
func (a *Arena) Free(buf []byte) {
	p := a.page(buf)
	for {
		old := a.returned.Load()
		a.pages[p].ret = old
		if a.returned.CompareAndSwap(old, p+1) {
			return
		}
	}
}

// Used counts the bytes handed out, as far as the owner has seen them returned.
func (a *Arena) Used() int { a.reclaim(); return a.used }

// Size is the arena's size in bytes.
func (a *Arena) Size() int { return len(a.mem) }

// Close unmaps the arena. All buffers must have been given back.
func (a *Arena) Close() error {
	a.reclaim()
	if a.used != 0 {
		return errors.New("bufpool: BUG: closed with buffers still out")
	}
	return errors.Join(unmapPages(a.pages), unix.Munmap(a.mem))
}
