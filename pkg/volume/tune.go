package volume

import (
	"context"
	"fmt"
	"maps"

	"github.com/csi-mpath/csi-mpath/pkg/tunable"
)

// Tune brings a staged volume's tunables up to a generation: the highest wins,
// and what is not named keeps its value. A volume that is not staged is no error:
// it will be staged with them.
func (n *Node) Tune(ctx context.Context, volume string, generation int64, tunables map[string]string) error {
	o, err := n.wait(ctx, volume)
	if err != nil {
		return err
	}
	defer n.end(o)
	st, err := n.find(volume)
	if err == nil && st != nil {
		_, err = n.tuned(st, generation, tunables)
	}
	return of(volume, "tune", err)
}

// tuned writes tunables down, and then tells the device.
func (n *Node) tuned(st *state, generation int64, tunables map[string]string) (*state, error) {
	if generation <= st.rec.Generation {
		return st, nil
	}
	if err := tunable.CheckChange(st.rec.Tunables, tunables); err != nil {
		return st, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	st, err := n.record(st, func(r *record) {
		r.Generation, r.Tunables = generation, tunable.Merge(r.Tunables, tunables)
	})
	if err != nil {
		return st, err
	}
	settings, err := st.rec.settings()
	if err != nil {
		return st, err
	}
	st = n.with(st, func(s *state) { s.settings = settings })
	return st, n.apply(st)
}

// apply tells the device what it is tuned to.
func (n *Node) apply(st *state) error {
	if st.dev == nil {
		return nil
	}
	n.mu.Lock()
	down := n.shutdown
	n.mu.Unlock()
	s := st.settings
	if down {
		s = ending(s)
	}
	return st.dev.Tune(s)
}

// renewed makes secrets those of logins to come: for this process, and the next.
// Keys that are not given keep their value: the call's Secret may be about
// something else.
func (n *Node) renewed(st *state, given Secrets) (*state, error) {
	s := Secrets{}
	maps.Copy(s, st.secrets)
	maps.Copy(s, given)
	if maps.Equal(st.secrets, s) {
		return st, nil
	}
	if err := s.check(); err != nil {
		return st, err
	}
	if st.dev != nil {
		if err := st.dev.Renew(s); err != nil {
			return st, err
		}
	}
	if err := n.vault.put(st.rec.Volume, s); err != nil {
		return st, err
	}
	return n.with(st, func(now *state) { now.secrets = s }), nil
}

// Shutdown says that this machine goes down: I/O that no path takes fails after
// shutdownTimeout, so that nothing waits for it longer (I5).
func (n *Node) Shutdown() {
	n.mu.Lock()
	n.shutdown = true
	all := make([]*state, 0, len(n.vols))
	for _, st := range n.vols {
		all = append(all, st)
	}
	n.mu.Unlock()
	for _, st := range all {
		if err := n.apply(st); err != nil {
			n.event(st.rec.Volume, NotTuned, "its shutdownTimeout is not in force: %v", err)
		}
	}
}

// ending are settings while the machine goes down.
func ending(s tunable.Settings) tunable.Settings {
	if s.NoPathTimeout == tunable.Never || s.NoPathTimeout > s.ShutdownTimeout {
		s.NoPathTimeout = s.ShutdownTimeout
	}
	return s
}
