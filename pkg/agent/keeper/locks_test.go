package keeper

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

func TestASecondVerbIsToldToTryAgain(t *testing.T) {
	l := newLocks()
	unlock, err := l.verb(t.Context(), "v", "a", "b")
	if err != nil {
		t.Fatal(err)
	}
	for _, keys := range [][]string{{"a"}, {"c", "b"}} {
		if _, err := l.verb(t.Context(), "v", keys...); !errors.Is(err, backend.ErrBusy) {
			t.Errorf("%v: %v", keys, err)
		}
	}
	unlock()
	again, err := l.verb(t.Context(), "v", "c", "b", "a")
	if err != nil {
		t.Fatal(err)
	}
	again()
	if len(l.held) != 0 {
		t.Errorf("held: %v", l.held)
	}
}

func TestAVerbAsksTheReconcilerToStopAndWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLocks()
		ctx, unlock, ok := l.background(t.Context(), "a")
		if !ok {
			t.Fatal("not free")
		}
		got := make(chan error, 1)
		go func() {
			unlock, err := l.verb(t.Context(), "v", "a")
			got <- err
			unlock()
		}()
		synctest.Wait()
		if ctx.Err() == nil {
			t.Error("the reconciler was not asked to stop")
		}
		unlock()
		if err := <-got; err != nil {
			t.Error(err)
		}
	})
}

func TestWaitingForALockEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLocks()
		unlock, err := l.verb(t.Context(), "v", "a")
		if err != nil {
			t.Fatal(err)
		}
		defer unlock()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := l.wait(ctx, "v", "a"); !errors.Is(err, backend.ErrBusy) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

func TestTheReconcilerTakesNothingFromAVerb(t *testing.T) {
	l := newLocks()
	unlock, _ := l.verb(t.Context(), "v", "a")
	if _, _, ok := l.background(t.Context(), "a"); ok {
		t.Error("both have it")
	}
	l.note()
	unlock()
	if !l.noted("a") || l.noted("b") {
		t.Error("a verb that had it when the note began is not noted, or another is")
	}
	other, _ := l.verb(t.Context(), "v", "b")
	other()
	if !l.noted("b") {
		t.Error("a verb that came later is not noted")
	}
}

// Whoever has a lock is alone: the twin is a counter for each key.
func TestALockIsHeldByOneAtATime(t *testing.T) {
	l := newLocks()
	var in [4]atomic.Int32
	var wg sync.WaitGroup
	for g := range 8 {
		rnd := rand.New(rand.NewPCG(1, uint64(g)))
		wg.Go(func() {
			for range 300 {
				a, b := rnd.IntN(4), rnd.IntN(4)
				keys := []string{strconv.Itoa(a)}
				if a != b && g%2 == 0 {
					keys = append(keys, strconv.Itoa(b))
				}
				unlock := takeAny(t, l, keys, g)
				if unlock == nil {
					continue
				}
				for _, k := range keys {
					n, _ := strconv.Atoi(k)
					if in[n].Add(1) != 1 {
						t.Error("two have", k)
					}
				}
				for _, k := range keys {
					n, _ := strconv.Atoi(k)
					in[n].Add(-1)
				}
				unlock()
			}
		})
	}
	wg.Wait()
	if len(l.held) != 0 {
		t.Errorf("held: %v", l.held)
	}
}

// takeAny takes keys in one of the three ways; nil if it got none.
func takeAny(t *testing.T, l *locks, keys []string, g int) (unlock func()) {
	var err error
	switch {
	case g%3 == 0:
		_, unlock, _ := l.background(t.Context(), keys[0])
		if len(keys) > 1 && unlock != nil {
			unlock()
			return nil
		}
		return unlock
	case g%3 == 1 && len(keys) == 1:
		unlock, err = l.wait(t.Context(), "v", keys[0])
	default:
		unlock, err = l.verb(t.Context(), "v", keys...)
	}
	if err != nil && !errors.Is(err, backend.ErrBusy) {
		t.Error(err)
	}
	return unlock
}
