package bufpool

import "unsafe"

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
		p = a.ret[page]
		a.release(page)
	}
}

// release frees one block and joins it with its buddies while they are free.
func (a *Arena) release(p uint32) {
	if a.state[p] != pageUsed {
		panic("bufpool: BUG: buffer freed twice")
	}
	k := int(a.order[p])
	a.used -= MinBuf << k
	for k < len(a.heads)-1 {
		buddy := p ^ 1<<k
		if a.state[buddy] != pageFree || int(a.order[buddy]) != k {
			break
		}
		a.unlink(buddy, k)
		a.state[p] = pageInner
		p &^= 1 << k
		k++
	}
	a.push(p, k)
}

func (a *Arena) push(p uint32, k int) {
	a.order[p], a.state[p] = uint8(k), pageFree
	a.next[p], a.prev[p] = a.heads[k], none
	if a.heads[k] != none {
		a.prev[a.heads[k]] = p
	}
	a.heads[k] = p
}

func (a *Arena) unlink(p uint32, k int) {
	if a.prev[p] == none {
		a.heads[k] = a.next[p]
	} else {
		a.next[a.prev[p]] = a.next[p]
	}
	if a.next[p] != none {
		a.prev[a.next[p]] = a.prev[p]
	}
	a.state[p] = pageInner
}
