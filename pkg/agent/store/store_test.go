package store

import (
	"errors"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

func TestAPoolPromisesUpToItsOvercommitment(t *testing.T) {
	m := Marks{Data: 0.8, Metadata: 0.7, Overcommit: 2}
	f := Features{Thin: true, Step: 4, Min: 4, Max: 1000}
	u := m.Judge(Usage{Total: 1000, Used: 10, Promised: 1501}, f)
	if u.Available != 499 || u.MaxObject != 496 || u.Filling {
		t.Errorf("%+v", u)
	}
	if err := u.Admit("p", 499); err != nil {
		t.Error(err)
	}
	if err := u.Admit("p", 500); !errors.Is(err, backend.ErrNoSpace) {
		t.Errorf("%v", err)
	}
}

func TestAPoolAboveAMarkPromisesNothing(t *testing.T) {
	m := Marks{Data: 0.8, Metadata: 0.7, Overcommit: 2}
	f := Features{Thin: true, Step: 4, Min: 4, Max: 1000}
	for _, u := range []Usage{{Total: 1000, Used: 800}, {Total: 1000, Metadata: 0.7}, {Total: 1000, Full: true}} {
		got := m.Judge(u, f)
		if !got.Filling || got.Available != 0 || got.MaxObject != 0 {
			t.Errorf("%+v", got)
		}
		if err := got.Admit("p", 0); !errors.Is(err, backend.ErrNoSpace) {
			t.Errorf("%v", err)
		}
	}
}

func TestAPoolWhoseObjectsTakeTheirSpacePromisesWhatIsFree(t *testing.T) {
	m := Marks{Data: 0.8, Metadata: 1, Overcommit: 10}
	if u := m.Judge(Usage{Total: 1000, Used: 300, Promised: 300}, Features{Step: 4, Max: 1000}); u.Available != 500 || u.MaxObject != 500 {
		t.Errorf("%+v", u)
	}
}

func TestMarksThatMakeNoSenseAreRefused(t *testing.T) {
	good := Marks{Data: 0.8, Metadata: 0.7, Overcommit: 1}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	for _, m := range []Marks{{Data: 1.1, Metadata: 1, Overcommit: 1}, {Data: -1, Metadata: 1, Overcommit: 1}, {Data: 1, Metadata: 1, Overcommit: 0.5}, {}} {
		if err := m.Check(); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("%+v: %v", m, err)
		}
		if m.Or(good).Data == 0 {
			t.Error("a default was not taken")
		}
	}
}
