package target

// ramPage is what a RAM store maps and unmaps at once, bytes.
const ramPage = 4096

// mapWords is the length of a map of the pages of size bytes.
func mapWords(size uint64) uint64 { return (size + 64*ramPage - 1) / (64 * ramPage) }

// take maps the pages of a range; false: there is no space for them, and
// nothing changes. Under the stripe's lock, like drop.
func (r *RAM) take(at, to uint64) bool {
	first, last := at/ramPage, (to-1)/ramPage
	fresh := int64(0)
	for p := first; p <= last; p++ {
		if r.mapped[p/64]>>(p%64)&1 == 0 {
			fresh++
		}
	}
	if fresh == 0 {
		return true
	}
	if used, space := r.used.Add(fresh), r.space.Load(); space > 0 && used > space {
		r.used.Add(-fresh)
		return false
	}
	for p := first; p <= last; p++ {
		r.mapped[p/64] |= 1 << (p % 64)
	}
	return true
}

// drop unmaps the pages that lie in a range that was zeroed, whole.
func (r *RAM) drop(at, to uint64) {
	first, end := (at+ramPage-1)/ramPage, to/ramPage
	if to == r.Size() {
		end = (to + ramPage - 1) / ramPage
	}
	for p := first; p < end; p++ {
		if bit := uint64(1) << (p % 64); r.mapped[p/64]&bit != 0 {
			r.mapped[p/64] &^= bit
			r.used.Add(-1)
		}
	}
}

// Mapped implements mapper.
func (r *RAM) Mapped(off uint64) (n uint64, hole bool, err error) {
	begun, over := false, false
	r.locks[0].RLock() // Grow may run beside
	size := r.Size()
	r.locks[0].RUnlock()
	for at := off; at < size && !over; at = (at/ramStripe + 1) * ramStripe {
		r.stripes(at, min(size, (at/ramStripe+1)*ramStripe)-at, false, func(at, to uint64) {
			for p := at / ramPage; p <= (to-1)/ramPage && !over; p++ {
				h := r.mapped[p/64]>>(p%64)&1 == 0
				if !begun {
					begun, hole = true, h
				}
				if over = h != hole; !over {
					n = min((p+1)*ramPage, size) - off
				}
			}
		})
	}
	return n, hole, nil
}
