package bufpool

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// page finds the page number of a buffer's start.
func (a *Arena) page(buf []byte) uint32 {
	off := uintptr(unsafe.Pointer(unsafe.SliceData(buf))) - uintptr(unsafe.Pointer(unsafe.SliceData(a.mem)))
	if off >= uintptr(len(a.mem)) || off&(MinBuf-1) != 0 {
		panic("bufpool: BUG: freed a buffer of another arena")
	}
	return uint32(off >> minShift)
}

// reclaim takes back what other goroutines returned.
func (a *Arena) reclaim() {
	if a.returned.Load() == 0 {
		return
	}
	for p := a.returned.Swap(0); p != 0; {
		page := p - 1
		p = a.pages[page].ret
		a.release(page)
	}
}

// release frees one block and joins it with its buddies while they are free.
func (a *Arena) release(p uint32) {
	if a.pages[p].state != pageUsed {
		panic("bufpool: BUG: buffer freed twice")
	}
	k := int(a.pages[p].order)
	a.used -= MinBuf << k
	for k < len(a.heads)-1 {
		buddy := p ^ 1<<k
		if a.pages[buddy].state != pageFree || int(a.pages[buddy].order) != k {
			break
		}
		a.unlink(buddy, k)
		a.pages[p].state = pageInner
		p &^= 1 << k
		k++
	}
	a.push(p, k)
}

func (a *Arena) push(p uint32, k int) {
	a.pages[p].order, a.pages[p].state = uint8(k), pageFree
	a.pages[p].next, a.pages[p].prev = a.heads[k], none
	if a.heads[k] != none {
		a.pages[a.heads[k]].prev = p
	}
	a.heads[k] = p
}

func (a *Arena) unlink(p uint32, k int) {
	if a.pages[p].prev == none {
		a.heads[k] = a.pages[p].next
	} else {
		a.pages[a.pages[p].prev].next = a.pages[p].next
	}
	if a.pages[p].next != none {
		a.pages[a.pages[p].next].prev = a.pages[p].prev
	}
	a.pages[p].state = pageInner
}

// pageInfo is what is known of one page, if a block starts there. All zero is
// right for a page in the middle of a block.
type pageInfo struct {
	// next and prev link the free blocks of one order, by page number; order is
	// of the block starting here, state pageInner, pageFree or pageUsed. Owner's.
	next, prev uint32
	// ret links returned blocks, see Arena.returned.
	ret   uint32
	order uint8
	state uint8
	_     [2]byte
}

// mapPages makes the table in memory that costs nothing where it is not touched:
// most of a large arena's pages never start a block.
func mapPages(n int) ([]pageInfo, error) {
	size := n * int(unsafe.Sizeof(pageInfo{}))
	mem, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("bufpool: map a table of %d bytes: %w", size, err)
	}
	_ = unix.Madvise(mem, unix.MADV_NOHUGEPAGE)
	return unsafe.Slice((*pageInfo)(unsafe.Pointer(unsafe.SliceData(mem))), n), nil
}

func unmapPages(p []pageInfo) error {
	return unix.Munmap(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(p))), len(p)*int(unsafe.Sizeof(pageInfo{}))))
}
