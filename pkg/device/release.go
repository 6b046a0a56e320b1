package device

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/datapath"
)

// perform does a step. A removal whose answer is lost may have been done, and then
// nothing shows that there was one: it is written down before.
func (h *holder) perform(ctx context.Context, r registrar, s step, mine key) error {
	if s.do != actPreempt {
		return r.perform(ctx, s, mine)
	}
	was, err := h.owe(time.Now())
	if err != nil {
		return err
	}
	if err = r.perform(ctx, s, mine); err == nil || conflicts(err) {
		_, err = h.owe(was)
	}
	return err
}

// owe notes a debt, or that there is none, and returns what was.
func (h *holder) owe(now time.Time) (was time.Time, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if was = h.owes; was.IsZero() != now.IsZero() {
		h.owes = now
		err = h.writeLocked()
	}
	return was, err
}

// settleDebt makes sure that nothing of those removed is on its way: before the
// first write passes (I9).
func (h *holder) settleDebt(ctx context.Context, r registrar) error {
	h.mu.Lock()
	since := h.owes
	h.mu.Unlock()
	if since.IsZero() {
		return nil
	}
	if err := r.settle(ctx, since); err != nil {
		return err
	}
	_, err := h.owe(time.Time{})
	return err
}

// release gives the volume back through the first path that works: it removes the
// registrations of all. Failing is no failure of the device: whoever opens the
// volume next removes what is left.
func (h *holder) release(ctx context.Context) {
	h.mu.Lock()
	h.leaving = true
	held, all := h.hold == holdHeld, slices.Collect(maps.Keys(h.joined))
	h.mu.Unlock()
	if !held {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, releaseWithin)
	defer cancel()
	err := errors.New("no path works")
	for _, r := range all {
		if r.over() {
			continue
		}
		if err = h.releaseBy(ctx, r); err == nil {
			return
		}
	}
	h.left(err)
}

// left tells that the reservation stays, and why.
func (h *holder) left(cause error) {
	if h.now() == holdHeld {
		h.emit(datapath.Event{Kind: ReservationLeft,
			Detail: fmt.Sprintf("the reservation stays at the storage (%v): whoever opens the volume next for writing removes it", cause)})
	}
}

// releaseBy gives it back through one path.
func (h *holder) releaseBy(ctx context.Context, r registrar) error {
	c := &claim{mine: h.family.member(r.member())}
	for range maxReserveSteps {
		v, err := r.registry(ctx)
		if err != nil {
			return err
		}
		s := c.leave(&v)
		if s.do == actDone {
			return nil
		}
		if err := r.perform(ctx, s, c.mine); err != nil && !conflicts(err) {
			return err
		}
	}
	return errors.New("others change it all the time")
}
