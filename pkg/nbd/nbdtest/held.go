package nbdtest

import (
	"sync"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/nbd"
)

// Held is an export that completes nothing by itself: the test takes each
// request from Got and gives it back when and where it likes.
type Held struct {
	*RAM
	// Got delivers each request in order of submission. It holds as many as the
	// tests ever have outstanding, so that Submit does not block.
	Got chan *blk.Request
	// Closed is closed by the lane's Close.
	Closed chan struct{}
	once   sync.Once
}

// NewHeld makes a Held over m.
func NewHeld(m *RAM) *Held {
	return &Held{RAM: m, Got: make(chan *blk.Request, 4096), Closed: make(chan struct{})}
}

// OpenLane begins a connection; there should be only one.
func (h *Held) OpenLane(int) (nbd.Lane, error) { return (*heldLane)(h), nil }

// Finish carries r out on the RAM and answers it.
func (h *Held) Finish(r *blk.Request) {
	owner := r.Owner
	r.Status = h.Do(r)
	owner.Complete(r)
	owner.Flush()
}

type heldLane Held

// Submit hands the batch over.
func (l *heldLane) Submit(first *blk.Request) {
	for r := first; r != nil; {
		next := r.Next
		l.Got <- r
		r = next
	}
}

// Close says so on Closed.
func (l *heldLane) Close() { l.once.Do(func() { close(l.Closed) }) }
