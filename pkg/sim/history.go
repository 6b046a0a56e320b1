package sim

// history says, per block, which writes may still be its content. Time is a
// counter of events at the clients, so that "before" is what they could know.
//
// A write is dead once another was begun after it had ended, and that one has
// taken effect: was answered well, or was seen by a read. A loss of power counts
// as a write of what was left.
type history struct {
	clock  int
	blocks [][]*rec
	open   []*rec // answered well, not proven durable
}

// rec is one write of one block.
type rec struct {
	block      int
	v          uint64
	start, end int // end 0: not answered
	seen       int // end of the first read that returned it, 0 for none
	dead       int // since when it is certain that another came after it, 0 for not
	failed     bool
	durable    int // since when it must survive a loss of power, 0 for not
}

func (h *history) tick() int {
	h.clock++
	return h.clock
}

func (h *history) begin(block int, v uint64) *rec {
	r := &rec{block: block, v: v, start: h.clock}
	h.blocks[block] = append(h.blocks[block], r)
	return r
}

func (h *history) finish(r *rec, ok, fua bool) {
	r.end, r.failed = h.clock, !ok
	if ok && fua {
		r.durable = h.clock
	}
	if ok && !fua {
		h.open = append(h.open, r)
	}
	h.prune(r.block)
}

// effective is when r had certainly happened, 0 when that is not known.
func (r *rec) effective() int {
	at := r.end
	if r.failed {
		at = 0
	}
	if r.seen != 0 && (at == 0 || r.seen < at) {
		at = r.seen
	}
	return at
}

// over reports whether something was begun after end and had happened by start.
func (h *history) over(block, end, start int) bool {
	for _, o := range h.blocks[block] {
		if at := o.effective(); o.start >= end && at != 0 && at <= start {
			return true
		}
	}
	return false
}

// allowed reports whether a read that began at start may return v.
func (h *history) allowed(block int, v uint64, start int) bool {
	known := v == 0
	for _, r := range h.blocks[block] {
		if r.v != v {
			continue
		}
		known = true
		if r.dead != 0 && r.dead < start {
			continue
		}
		if r.end == 0 || !h.over(block, r.end, start) {
			return true
		}
	}
	return known && v == 0 && !h.over(block, 0, start)
}

// saw notes that a read which began at begin and ends now returned v: what had
// ended before it began came before v, and can not come back (that is what a
// late copy of a write does, I3).
func (h *history) saw(block int, v uint64, begin int) {
	if v == 0 {
		return // of which of the writes is not known
	}
	for _, r := range h.blocks[block] {
		if r.v == v && r.seen == 0 {
			r.seen = h.clock
		}
		if r.v != v && r.end != 0 && r.end <= begin && r.dead == 0 {
			r.dead = h.clock
		}
	}
}

// prune forgets writes that are dead for every read that may still be judged,
// and that no loss of power can bring back. It keeps lists short, nothing else.
func (h *history) prune(block int) {
	list := h.blocks[block]
	if len(list) < 64 {
		return
	}
	limit := h.clock - pruneAge
	kept := list[:0]
	for _, r := range list {
		if r.end == 0 || r.end >= limit || !h.buried(list, r, limit) {
			kept = append(kept, r)
		}
	}
	h.blocks[block] = kept
}

// buried reports whether something durable was written over r by limit.
func (h *history) buried(list []*rec, r *rec, limit int) bool {
	for _, o := range list {
		if o != r && o.start >= r.end && o.durable != 0 && o.durable <= limit {
			return true
		}
	}
	return false
}

// pruneAge is how far back a request may have begun that is still under way.
const pruneAge = 20_000

// flushed: a flush that began at start was answered well.
func (h *history) flushed(start int) {
	kept := h.open[:0]
	for _, r := range h.open {
		if r.end <= start {
			r.durable = h.clock
			continue
		}
		kept = append(kept, r)
	}
	h.open = kept
}

// lost judges a block that went back to content v as power was lost: bad when a
// write that had to survive did not. claimed is when the first write ended that
// was answered and is gone, 0 for none: a flush begun after that must fail.
func (h *history) lost(block int, v uint64) (bad *rec, claimed int) {
	left := 0 // the latest end of what survived
	for _, r := range h.blocks[block] {
		if r.v == v {
			if r.end == 0 {
				left = h.clock
			}
			left = max(left, r.end)
		}
	}
	for _, r := range h.blocks[block] {
		if r.start < left || r.end == 0 || r.failed || r.v == v {
			continue
		}
		if r.durable != 0 {
			bad = r
		}
		if claimed == 0 || r.end < claimed {
			claimed = r.end
		}
	}
	r := &rec{block: block, v: v, start: h.tick()}
	r.end = h.tick()
	h.blocks[block] = append(h.blocks[block], r)
	return bad, claimed
}
