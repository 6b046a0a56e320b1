package device

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/datapath"
)

// reservable is the registrations of a unit, as one path reaches them.
type reservable struct {
	datapath.Queue
	table   registry
	cut     bool // the answer to the next removal is lost
	settled int
}

var errCut = errors.New("the connection is gone")

func (u *reservable) member() uint16 { return 1 }

func (u *reservable) over() bool { return false }

func (u *reservable) registry(context.Context) (registry, error) {
	r := u.table
	r.keys = slices.Clone(r.keys)
	return r, nil
}

func (u *reservable) settle(context.Context, time.Time) error {
	u.settled++
	return nil
}

func (u *reservable) perform(_ context.Context, s step, mine key) error {
	switch s.do {
	case actRegister:
		if !slices.Contains(u.table.keys, mine) {
			u.table.keys = append(u.table.keys, mine)
		}
	case actReserve:
		u.table.held, u.table.fits, u.table.holder = true, true, mine
	case actPreempt:
		u.table.keys = slices.DeleteFunc(u.table.keys, func(k key) bool { return k == s.key })
		if u.table.holder == s.key {
			u.table.holder = mine
		}
		if u.cut {
			u.cut = false
			return errCut
		}
	}
	return nil
}

// The table shows nobody after a removal, whether or not what they had sent is over.
func TestATakeOverWhoseAnswerWasLostIsNotOver(t *testing.T) {
	for _, killed := range []bool{false, true} {
		dir := t.TempDir()
		h, err := newHolder(dir+"/v.reservation", "v", false, func(datapath.Event) {})
		if err != nil {
			t.Fatal(err)
		}
		u := &reservable{cut: true}
		u.table = registry{held: true, fits: true, holder: them.member(1), keys: []key{them.member(1)}}
		if err := h.claim(t.Context(), u); !errors.Is(err, errCut) {
			t.Fatalf("%v, want the lost answer", err)
		}
		if killed {
			if h, err = newHolder(dir+"/v.reservation", "v", false, func(datapath.Event) {}); err != nil {
				t.Fatal(err)
			}
		}
		if err := h.claim(t.Context(), u); err != nil || u.settled != 1 {
			t.Fatalf("killed %v: %v, settled %d times", killed, err, u.settled)
		}
		if err := h.claim(t.Context(), u); err != nil || u.settled != 1 {
			t.Fatalf("killed %v, the next path: %v, settled %d times", killed, err, u.settled)
		}
	}
}

func TestATakeOverThatWasAnsweredOwesNothing(t *testing.T) {
	h, err := newHolder(t.TempDir()+"/v.reservation", "v", false, func(datapath.Event) {})
	if err != nil {
		t.Fatal(err)
	}
	u := &reservable{}
	u.table = registry{held: true, fits: true, holder: them.member(1), keys: []key{them.member(1), them.member(2)}}
	if err := h.claim(t.Context(), u); err != nil || u.settled != 0 || len(u.table.keys) != 1 {
		t.Fatalf("%v, settled %d times, keys %x", err, u.settled, u.table.keys)
	}
}
