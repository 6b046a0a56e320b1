// Package mpsc is a lock-free queue with many producers and one consumer.
//
// Producers push by one compare-and-swap; the consumer takes everything with
// one swap, so there is no ABA. Elements carry their own link: nothing is
// allocated. Order: elements of one producer come out in the order they were
// pushed; a chain pushed at once stays together.
package mpsc

import "sync/atomic"

// Linked is an element that carries its own link.
type Linked[T any] interface {
	*T
	NextPtr() **T
}

// Queue is the queue; its zero value is empty and ready.
//
// head is written by producers (CAS) and by the consumer (Swap to nil). A
// producer that reads a stale head only fails its CAS and tries again.
type Queue[T any, P Linked[T]] struct {
	head atomic.Pointer[T]
}

// Push adds one element and reports whether the queue was empty before.
func (q *Queue[T, P]) Push(e *T) bool { return q.PushChain(e, e) }

// PushChain adds the elements first..last, linked by their next pointers in
// order, and reports whether the queue was empty before.
func (q *Queue[T, P]) PushChain(first, last *T) bool {
	// The stack holds the newest on top, so the chain goes in reversed: its
	// last element becomes the head.
	first, last = reverse[T, P](first, last)
	for {
		old := q.head.Load()
		*P(last).NextPtr() = old
		if q.head.CompareAndSwap(old, first) {
			return old == nil
		}
	}
}

// Drain takes all elements, oldest first, linked by their next pointers; nil
// when there are none. Only one goroutine at a time may drain.
func (q *Queue[T, P]) Drain() *T {
	head := q.head.Swap(nil)
	if head == nil {
		return nil
	}
	var out *T
	for head != nil {
		next := *P(head).NextPtr()
		*P(head).NextPtr() = out
		out, head = head, next
	}
	return out
}

// Empty reports whether the queue looks empty now.
func (q *Queue[T, P]) Empty() bool { return q.head.Load() == nil }

func reverse[T any, P Linked[T]](first, last *T) (*T, *T) {
	if first == last {
		*P(first).NextPtr() = nil
		return first, last
	}
	var out *T
	for e := first; ; {
		next := *P(e).NextPtr()
		*P(e).NextPtr() = out
		out = e
		if e == last {
			break
		}
		e = next
	}
	return last, first
}
