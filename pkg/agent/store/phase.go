package store

// Phase is how far an object is. What is not Ready is not there for anybody, and
// unfinished: a Create of that name begins anew, a Delete ends it.
type Phase string

// The phases, as they are written down with the object.
const (
	Creating Phase = "creating"
	Ready    Phase = "ready"
	Deleting Phase = "deleting"
)

// Valid reports whether p is one of them.
func (p Phase) Valid() bool { return p == Creating || p == Ready || p == Deleting }
