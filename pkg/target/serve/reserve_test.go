package serve

import (
	"math/rand/v2"
	"testing"
)

// kind is a type of reservation by its letter: w and e shut all others out, W and
// E let registrants in, A and B make all registrants holders; e, E and B shut
// readers out too.
type kind byte

func (k kind) AllRegistrants() bool { return k == 'A' || k == 'B' }
func (k kind) Registrants() bool    { return k == 'W' || k == 'E' || k.AllRegistrants() }
func (k kind) ReadsConflict() bool  { return k == 'e' || k == 'E' || k == 'B' }

// twin is the same, said slowly: who is registered, and who holds what.
type twin struct {
	keys    map[int]uint64
	kind    kind // 0: no reservation
	holders map[int]bool
}

func (w *twin) settle() {
	if w.kind.AllRegistrants() {
		w.holders = map[int]bool{}
		for n := range w.keys {
			w.holders[n] = true
		}
	}
	for n := range w.holders {
		if _, ok := w.keys[n]; !ok {
			delete(w.holders, n)
		}
	}
	if len(w.holders) == 0 {
		w.kind = 0
	}
}

func (w *twin) shuts(n int, write bool) bool {
	_, registered := w.keys[n]
	switch {
	case w.kind == 0, w.holders[n], registered && w.kind.Registrants():
		return false
	}
	return write || w.kind.ReadsConflict()
}

func (w *twin) preempt(n int, key uint64, k kind) {
	all := key == 0 && w.kind.AllRegistrants()
	takes := all
	for h := range w.holders {
		takes = takes || !w.kind.AllRegistrants() && w.keys[h] == key
	}
	for o, v := range w.keys {
		if o != n && (all || v == key) {
			delete(w.keys, o)
		}
	}
	if takes {
		w.kind, w.holders = k, map[int]bool{n: true}
	}
	w.settle()
}

// Long: one step of each operation, on both.
func TestReservationsAreWhatTheirTwinSays(t *testing.T) {
	kinds := []kind{'w', 'e', 'W', 'E', 'A', 'B'}
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var r Reservations[int, kind]
		w := &twin{keys: map[int]uint64{}, holders: map[int]bool{}}
		for range 300 {
			n, key, k := rng.IntN(4), rng.Uint64N(3)+1, kinds[rng.IntN(len(kinds))]
			_, registered := w.keys[n]
			switch rng.IntN(6) {
			case 0, 1:
				r.Register(n, key)
				w.keys[n] = key
			case 2:
				r.Remove(n)
				delete(w.keys, n)
			case 3:
				if !registered {
					break
				}
				if free := w.kind == 0; r.Reserve(n, k) != (free || w.holders[n] && w.kind == k) {
					t.Fatalf("seed %d: reserving went another way", seed)
				} else if free {
					w.kind, w.holders = k, map[int]bool{n: true}
				}
			case 4:
				if r.Holds(n) {
					r.Release()
					w.kind, w.holders = 0, map[int]bool{}
				}
			default:
				if registered {
					if rng.IntN(3) == 0 && w.kind.AllRegistrants() {
						key = 0
					}
					r.Preempt(n, r.Preempts(n, key), k)
					w.preempt(n, key, k)
				}
			}
			w.settle()
			for n := range 5 {
				if r.Holds(n) != w.holders[n] || r.Shuts(n, Writes) != w.shuts(n, true) || r.Shuts(n, Reads) != w.shuts(n, false) || r.Shuts(n, Others) {
					t.Fatalf("seed %d: host %d: holds %t, want %t", seed, n, r.Holds(n), w.holders[n])
				}
			}
			if r.Held() != (w.kind != 0) || len(r.Registrants()) != len(w.keys) {
				t.Fatalf("seed %d: held %t with %d registrants, want %c with %d", seed, r.Held(), len(r.Registrants()), w.kind, len(w.keys))
			}
		}
	}
}
