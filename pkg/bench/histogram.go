package bench

// histogram counts times to the nanosecond up to its top; what is longer is
// counted as the top.
type histogram struct {
	counts [1 << 14]uint32
	total  int64
}

func (h *histogram) add(ns int64) {
	h.counts[max(0, min(ns, int64(len(h.counts)-1)))]++
	h.total++
}

func (h *histogram) merge(o *histogram) {
	for i, n := range o.counts {
		h.counts[i] += n
	}
	h.total += o.total
}

// quantile returns the least time that q of all are not above, ns.
func (h *histogram) quantile(q float64) float64 {
	want, seen := int64(q*float64(h.total)), int64(0)
	for i, n := range h.counts {
		if seen += int64(n); seen >= want {
			return float64(i)
		}
	}
	return float64(len(h.counts) - 1)
}
