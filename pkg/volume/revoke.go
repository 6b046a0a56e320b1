package volume

import "context"

// Revoke ends a volume's I/O for good: its publication is over, or an operator
// gives up what was not written (I5). Its I/O fails from now on, nothing of it is
// sent again, and Unstage waits for no storage. It is written down when the
// operation in progress is over.
func (n *Node) Revoke(ctx context.Context, volume, cause string) error {
	if st := n.known(volume); st != nil && st.dev != nil {
		st.dev.Fail(revokedError(cause)) // at once: who holds the volume may wait for its I/O
	}
	o, err := n.wait(ctx, volume)
	if err != nil {
		return err
	}
	defer n.end(o)
	st, err := n.find(volume)
	if err != nil || st == nil || st.rec.Revoked != "" {
		return of(volume, "revoke", err)
	}
	_, err = n.revoked(st, cause)
	return of(volume, "revoke", err)
}

// lost revokes a volume that another node has by now: what was not written here
// never will be, and a new Stage begins anew.
func (n *Node) lost(st *state) *state {
	if st.dev == nil || st.rec.Revoked != "" {
		return st
	}
	if why := st.dev.Status().Lost; why != "" {
		return n.revoke(st, why)
	}
	return st
}

// revokedError says why I/O failed.
type revokedError string

// Error is the cause.
func (e revokedError) Error() string { return string(e) }

// revoke is revoked for who goes on anyway: what cannot be written down is found
// out again by the next process, from the epoch.
func (n *Node) revoke(st *state, cause string) *state {
	next, err := n.revoked(st, cause)
	if err != nil {
		return n.with(st, func(s *state) {
			s.rec = s.rec.clone()
			s.rec.Revoked = cause
		})
	}
	return next
}

func (n *Node) revoked(st *state, cause string) (*state, error) {
	if st.dev != nil {
		st.dev.Fail(revokedError(cause))
	}
	n.event(st.rec.Volume, Revoked, "its I/O fails from now on: %s", cause)
	return n.record(st, func(r *record) { r.Revoked = cause })
}
