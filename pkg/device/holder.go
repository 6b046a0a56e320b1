package device

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"sync"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/datapath"
	"github.com/csi-mpath/csi-mpath/pkg/durable"
	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
)

// Events about a volume's reservation.
const (
	// Reserved: it was taken, and everybody else is shut out.
	Reserved datapath.EventKind = "Reserved"
	// ReservationLost: another has it, and all I/O fails for good.
	ReservationLost datapath.EventKind = "ReservationLost"
	// ReservationLeft: it could not be given back as the device closed.
	ReservationLeft datapath.EventKind = "ReservationLeft"
)

var (
	// ErrNoReservations: the storage has none, and the volume wants one.
	ErrNoReservations = errors.New("the storage offers no reservations; a volume that nothing fences wants fencing: none among its attributes")
	// ErrReservationLost: another node has the volume. Only a new opening takes it back.
	ErrReservationLost = errors.New("the volume is not reserved for this node any more")
)

// registrar is a path's way to the registrations of its unit: an iSCSI session or
// an NVMe controller.
type registrar interface {
	// member is which key of a family it registers.
	member() uint16
	// registry reads.
	registry(ctx context.Context) (registry, error)
	// perform does a step in the name of a registered key.
	perform(ctx context.Context, s step, mine key) error
	// settle makes sure that nothing is executed any more that others had sent when
	// they were removed, since at the latest.
	settle(ctx context.Context, since time.Time) error
	// over: nothing can be asked of it any more.
	over() bool
}

// holder holds a volume for one opening of a device.
type holder struct {
	path   string // of the file
	volume string
	emit   func(datapath.Event)
	family key // constant
	// careful: the opening is an earlier process's. Constant.
	careful bool
	// taking is held by the one path that takes the volume: capacity 1.
	taking chan struct{}
	have   chan struct{} // closed once the volume is taken

	mu      sync.Mutex
	hold    hold
	why     string
	leaving bool
	// dp is the device once it is open; what is lost before fails as it opens.
	dp *datapath.Device
	// joined are the incarnations that claimed; fresh counts the registrations
	// under way, by key.
	joined map[registrar]bool
	fresh  map[key]int
	// owes is since when others are removed whose writes may be on their way yet:
	// the answer that tells they are over was lost. Zero: there are none.
	owes time.Time
}

// newHolder continues an opening that a dead process began, if again says that it
// is that, or begins one.
func newHolder(path, volume string, again bool, emit func(datapath.Event)) (*holder, error) {
	h := &holder{path: path, volume: volume, emit: emit, hold: holdTaking, taking: make(chan struct{}, 1),
		have: make(chan struct{}), joined: map[registrar]bool{}, fresh: map[key]int{}}
	known, err := h.inherit(again)
	if again && (known || err != nil) {
		return h, err
	}
	var b [8]byte
	for h.family == 0 {
		_, _ = rand.Read(b[:]) // never fails (crypto/rand)
		h.family = key(binary.BigEndian.Uint64(b[:])).family()
	}
	return h, h.writeLocked()
}

// inherit reads what the process before wrote, all of it or only what it owes.
func (h *holder) inherit(all bool) (known bool, err error) {
	b, err := durable.Read(h.path, maxStateFile)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	f, family, ok, err := parseReservation(b)
	if err != nil {
		return false, fmt.Errorf("reservation record %s is damaged (%w): remove it once the volume is not in use", h.path, err)
	}
	if ok && f.Owes {
		h.owes = time.Now()
	}
	if ok && all {
		h.family, h.hold, h.why, h.careful = family, f.Hold, f.Why, true
		if h.hold != holdTaking {
			close(h.have)
		}
	}
	return ok, nil
}

// writeLocked writes down how far it is, before anybody relies on it.
func (h *holder) writeLocked() error {
	return writeFile(h.path, &reservationFile{Version: reservationVersion, Boot: durable.BootID(),
		Family: fmt.Sprintf("%016x", uint64(h.family)), Hold: h.hold, Why: h.why, Owes: !h.owes.IsZero()})
}

// opened says that the device is open.
func (h *holder) opened(dp *datapath.Device) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dp = dp
	if h.hold == holdLost {
		dp.Fail()
	}
}

// lostWhy is why the volume is lost; empty: it is not.
func (h *holder) lostWhy() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.why
}

// claim is datapath.Config.Claim.
func (h *holder) claim(ctx context.Context, q datapath.Queue) error {
	r := q.(registrar) // every queue of this package is one
	if done, err := h.settled(r); done || err != nil {
		return err
	}
	taken, err := h.take(ctx, r)
	if err == nil && !taken {
		err = h.keep(ctx, r)
	}
	if errors.Is(err, ErrReservationLost) {
		_, err = h.settled(r)
	}
	return err
}

// settled is the answer that needs no path: nothing is claimed for a volume that
// is lost. One that was lost before its device is open gets its paths, and fails
// all I/O from the start; later ones would only hang on to it.
func (h *holder) settled(r registrar) (done bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.hold == holdLost && h.dp == nil && h.careful, h.leaving && h.joined[r]:
		return true, nil
	case h.hold == holdLost:
		return false, h.lostError()
	case h.leaving:
		return false, errClosing
	}
	return false, nil
}

var errClosing = errors.New("the volume is being closed")

func (h *holder) lostError() error {
	return fmt.Errorf("volume %s: %w: %s (%w)", h.volume, ErrReservationLost, h.why, datapath.ErrDefinite)
}

// take takes the volume, unless it is taken: the path that comes first does, and
// the others wait.
func (h *holder) take(ctx context.Context, r registrar) (taken bool, err error) {
	select {
	case h.taking <- struct{}{}:
		defer func() { <-h.taking }()
	case <-h.have: // it is taken: nobody waits for anybody
		return false, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	switch h.now() {
	case holdHeld:
		return false, nil
	case holdLost:
		return false, ErrReservationLost
	}
	c := &claim{mine: h.family.member(r.member())}
	if err = h.run(ctx, r, c, func(v *registry) step { return c.take(v, h.careful) }); err != nil {
		return false, err
	}
	if err = h.settleDebt(ctx, r); err != nil {
		return false, err
	}
	return true, h.taken(r)
}

func (h *holder) now() hold {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.hold
}

// taken writes it down before the first write passes.
func (h *holder) taken(r registrar) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hold = holdHeld
	if err := h.writeLocked(); err != nil {
		h.hold = holdTaking
		return err
	}
	close(h.have)
	h.joinedLocked(r)
	h.emit(datapath.Event{Kind: Reserved, Detail: fmt.Sprintf("keys %#x and up are registered; writes of everybody else are refused", uint64(h.family))})
	return nil
}

// keep lets a path join what is taken, or looks whether it still is.
func (h *holder) keep(ctx context.Context, r registrar) error {
	c := &claim{mine: h.family.member(r.member())}
	h.mu.Lock()
	joins := !h.joined[r]
	h.mu.Unlock()
	err := h.run(ctx, r, c, func(v *registry) step { return c.keep(v, joins, h.proven) })
	if err != nil {
		return err
	}
	h.mu.Lock()
	late := h.leaving && joins
	if !late {
		h.joinedLocked(r)
	}
	h.mu.Unlock()
	if late { // whoever gives the volume back did not see it
		_ = r.perform(ctx, step{do: actUnregister, key: c.mine}, c.mine)
		return errClosing
	}
	return nil
}

// joinedLocked notes a path, and forgets those that are over.
func (h *holder) joinedLocked(r registrar) {
	maps.DeleteFunc(h.joined, func(o registrar, _ bool) bool { return o.over() })
	h.joined[r] = true
}

// proven: a key whose registration is under way proves nothing.
func (h *holder) proven(k key) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.fresh[k] == 0
}

// registers counts the registrations of a key under way.
func (h *holder) registers(k key, by int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fresh[k] += by; h.fresh[k] == 0 {
		delete(h.fresh, k)
	}
}

// run reads and does the next step until there is none. A conflict only says that
// something has changed: it reads again.
func (h *holder) run(ctx context.Context, r registrar, c *claim, next func(*registry) step) error {
	for range maxReserveSteps {
		v, err := r.registry(ctx)
		if err != nil {
			return incurable(err)
		}
		s := next(&v)
		switch s.do {
		case actDone:
			return nil
		case actLost:
			if c.registered {
				_ = r.perform(ctx, step{do: actUnregister, key: c.mine}, c.mine)
			}
			return h.lose(s.why)
		case actRegister:
			c.registered = true
			h.registers(c.mine, 1)
			defer h.registers(c.mine, -1) // once: it is registered
		}
		if err := h.perform(ctx, r, s, c.mine); err != nil && !conflicts(err) {
			return incurable(err)
		}
	}
	return fmt.Errorf("its reservation did not settle in %d steps: others change it all the time", maxReserveSteps)
}

// lose ends all I/O for good: nothing of this opening is written any more (I9).
func (h *holder) lose(why string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.hold == holdLost {
		return h.lostError()
	}
	h.hold, h.why = holdLost, why
	if h.dp != nil {
		h.dp.Fail()
	}
	_ = h.writeLocked() // the next process finds the same out again
	h.emit(datapath.Event{Kind: ReservationLost, Detail: why + "; all I/O fails until the volume is staged anew"})
	return h.lostError()
}

// conflicts reports an answer that says that somebody else was quicker.
func conflicts(err error) bool {
	return errors.Is(err, scsi.ErrConflict) || errors.Is(err, nvme.ReservationConflict)
}

// incurable marks what waiting does not cure.
func incurable(err error) error {
	if errors.Is(err, ErrNoReservations) {
		return fmt.Errorf("%w (%w)", err, datapath.ErrDefinite)
	}
	return err
}
