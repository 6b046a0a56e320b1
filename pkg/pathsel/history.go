package pathsel

import "sync/atomic"

// History is how long one path has taken for its commands: an exponential
// moving average of the service time, counted as if commands were served one
// after the other (the kernel's dm historical-service-time does the same).
//
// began is written by whoever sends on an idle path, the rest by the path's
// reader; lanes read all of it. A stale read picks a slower path once.
type History struct {
	service atomic.Int64 // average, ns; 0: nothing measured yet
	last    atomic.Int64 // when the last batch of answers came, ns
	began   atomic.Int64 // when the path last stopped being idle, ns
	_       [40]byte
}

// Began notes that a command goes out on an idle path at now (ns of any
// monotonic clock, the same for all methods).
func (h *History) Began(now int64) { h.began.Store(now) }

// Finished notes n answers that came together at now.
func (h *History) Finished(now int64, n int) {
	since := max(h.last.Load(), h.began.Load())
	h.last.Store(now)
	if n <= 0 || now < since {
		return
	}
	took := max((now-since)/int64(n), 1)
	old := h.service.Load()
	if old == 0 {
		h.service.Store(took)
		return
	}
	for range min(n, averageDepth) {
		old += (took - old) / averageOver
	}
	h.service.Store(max(old, 1))
}

// Service is the average service time in ns, 0 when nothing was measured.
func (h *History) Service() int64 { return h.service.Load() }

// Read returns the average service time and the time of the last answers, ns.
func (h *History) Read() (service, last int64) { return h.service.Load(), h.last.Load() }
