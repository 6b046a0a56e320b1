package wire

import "github.com/csi-mpath/csi-mpath/pkg/mpsc"

// Fifo is a list linked through its elements. Its zero value is empty.
type Fifo[T any, P mpsc.Linked[T]] struct{ Head, tail *T }

// Push appends a chain.
func (f *Fifo[T, P]) Push(first *T) {
	if first == nil {
		return
	}
	if f.Head == nil {
		f.Head = first
	} else {
		*P(f.tail).NextPtr() = first
	}
	for f.tail = first; *P(f.tail).NextPtr() != nil; {
		f.tail = *P(f.tail).NextPtr()
	}
}

// PushFront puts all of g before f and leaves g empty.
func (f *Fifo[T, P]) PushFront(g *Fifo[T, P]) {
	if g.Head == nil {
		return
	}
	g.Push(f.Head)
	*f, *g = *g, Fifo[T, P]{}
}

// Pop takes the oldest; the list must not be empty.
func (f *Fifo[T, P]) Pop() *T {
	e := f.Head
	f.Head = *P(e).NextPtr()
	*P(e).NextPtr() = nil
	return e
}
