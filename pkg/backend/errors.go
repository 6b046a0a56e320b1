package backend

import (
	"errors"
	"fmt"
)

// What can go wrong. Errors of a Backend wrap one of these, or are those of the
// context, or mean that the outcome is not known (ErrUnavailable).
var (
	ErrNotFound    = errors.New("not found")
	ErrConflict    = errors.New("exists with other properties")
	ErrInUse       = errors.New("in use")                // wrapped by InUse
	ErrNoSpace     = errors.New("no space")              // of a pool, or a limit on numbers
	ErrRange       = errors.New("size out of range")     // more than allowed, less than the source
	ErrBusy        = errors.New("operation in progress") // for the same object: try again
	ErrInvalid     = errors.New("invalid")               // the request itself
	ErrToken       = errors.New("invalid page token")
	ErrUnsupported = errors.New("not supported")
	ErrFenced      = errors.New("node is fenced")
	ErrDenied      = errors.New("access denied")
	ErrUnavailable = errors.New("storage cannot be reached")
	ErrNoPool      = errors.New("pool is not configured") // any more: what is in it is not gone
)

// InUse is ErrInUse with who uses it.
type InUse struct {
	Object string // the volume or snapshot
	Node   string // who has it; empty if it is not a node
	Why    string
}

// Error names the object and the node.
func (e *InUse) Error() string {
	if e.Node == "" {
		return fmt.Sprintf("%s is in use: %s", e.Object, e.Why)
	}
	return fmt.Sprintf("%s is in use by node %s: %s", e.Object, e.Node, e.Why)
}

// Is makes it ErrInUse.
func (e *InUse) Is(target error) bool { return target == ErrInUse }
