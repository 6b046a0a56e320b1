package serve

import "slices"

// ReserveType is a protocol's type of reservation.
type ReserveType interface {
	comparable
	// AllRegistrants: every registrant holds the reservation.
	AllRegistrants() bool
	// Registrants: registrants may do what the holder may.
	Registrants() bool
	// ReadsConflict: those shut out may not read either.
	ReadsConflict() bool
}

// Reservations are the registrations of a unit and the reservation that one of
// them may hold (SPC-4 5.12; NVM Express Base 8.1.22 is the same with other
// names). N is who registers: an I_T nexus, or a host.
type Reservations[N comparable, T ReserveType] struct {
	// Generation counts the changes of registrations.
	Generation uint32

	keys   map[N]uint64
	order  []N // of registration
	held   bool
	holder N // not with an all-registrants type
	kind   T
}

// Held reports whether there is a reservation.
func (r *Reservations[N, T]) Held() bool { return r.held }

// Type is the reservation's type.
func (r *Reservations[N, T]) Type() T { return r.kind }

// Registrants are those registered, in order.
func (r *Reservations[N, T]) Registrants() []N { return slices.Clone(r.order) }

// Key is the key of n; false when n is not registered.
func (r *Reservations[N, T]) Key(n N) (key uint64, ok bool) {
	key, ok = r.keys[n]
	return key, ok
}

// HolderKey is the key of the holder, 0 with an all-registrants type.
func (r *Reservations[N, T]) HolderKey() uint64 {
	if r.kind.AllRegistrants() {
		return 0
	}
	return r.keys[r.holder]
}

// Holds reports whether n holds the reservation.
func (r *Reservations[N, T]) Holds(n N) bool {
	_, registered := r.keys[n]
	return r.held && registered && (r.kind.AllRegistrants() || r.holder == n)
}

// Admits reports whether n may do what the holder may.
func (r *Reservations[N, T]) Admits(n N) bool {
	if !r.held || r.Holds(n) {
		return true
	}
	_, registered := r.keys[n]
	return registered && r.kind.Registrants()
}

// Shuts reports whether n is shut out of commands of a kind.
func (r *Reservations[N, T]) Shuts(n N, k Kind) bool {
	if r.Admits(n) {
		return false
	}
	switch k {
	case Writes, Flushes, Trims, Zeroes:
		return true
	case Reads:
		return r.kind.ReadsConflict()
	}
	return false
}

// Register registers n with a key, or gives it another one.
func (r *Reservations[N, T]) Register(n N, key uint64) {
	if r.keys == nil {
		r.keys = map[N]uint64{}
	}
	if _, ok := r.keys[n]; !ok {
		r.order = append(r.order, n)
	}
	r.keys[n] = key
}

// Remove takes n's registration away, and the reservation if n was the last
// who held it; released reports that.
func (r *Reservations[N, T]) Remove(n N) (released bool) {
	delete(r.keys, n)
	if i := slices.Index(r.order, n); i >= 0 {
		r.order = slices.Delete(r.order, i, i+1)
	}
	if r.held && (!r.kind.AllRegistrants() && r.holder == n || len(r.keys) == 0) {
		r.held = false
		return true
	}
	return false
}

// Reserve makes n the holder, if nobody else is; false is a conflict.
func (r *Reservations[N, T]) Reserve(n N, kind T) bool {
	if r.held && (!r.Holds(n) || r.kind != kind) {
		return false
	}
	r.held, r.holder, r.kind = true, n, kind
	return true
}

// Release ends the reservation.
func (r *Reservations[N, T]) Release() { r.held = false }

// Clear ends the reservation and all registrations.
func (r *Reservations[N, T]) Clear() { *r = Reservations[N, T]{Generation: r.Generation + 1} }

// Preemption is what a preemption by n would do.
type Preemption[N comparable] struct {
	Out   []N  // lose their registration
	Takes bool // n gets the reservation
	All   bool // key 0 stands for all registrants
}

// Preempts finds what a preemption of a key by n does.
func (r *Reservations[N, T]) Preempts(n N, key uint64) (p Preemption[N]) {
	p.All = key == 0 && r.held && r.kind.AllRegistrants()
	p.Takes = p.All || r.held && !r.kind.AllRegistrants() && r.keys[r.holder] == key
	for _, o := range r.order {
		if o != n && (p.All || r.keys[o] == key) {
			p.Out = append(p.Out, o)
		}
	}
	return p
}

// Preempt does it; kind is the reservation's new type, if n takes it.
func (r *Reservations[N, T]) Preempt(n N, p Preemption[N], kind T) {
	for _, o := range p.Out {
		r.Remove(o)
	}
	if p.Takes {
		r.held, r.holder, r.kind = true, n, kind
	}
	r.Generation++
}
