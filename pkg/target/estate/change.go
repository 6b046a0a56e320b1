package estate

import (
	"errors"
	"fmt"
	"slices"

	"github.com/csi-mpath/csi-mpath/pkg/target/config"
	"github.com/csi-mpath/csi-mpath/pkg/target/serve"
)

// change makes a plan true. Errors do not stop it: half a change would be
// neither the old configuration nor the new one.
func (e *Estate) change(p *plan) error {
	errs := []error{e.hubs.setAuth(p.discovery)}
	for address, d := range p.doors {
		e.doors[address] = d
	}
	var order []string
	keep := map[string]bool{}
	for _, t := range p.cfg.Targets {
		order, keep[t.Name] = append(order, t.Name), true
	}
	for name, s := range e.targets {
		if !keep[name] {
			e.hubs.of(&s.cfg).Remove(s.srv)
			delete(e.targets, name)
			errs = append(errs, s.close())
		}
	}
	e.order = order
	// What ends comes before what begins, on all targets: a file that moves from
	// one LUN to another is never served twice, nor an initiator let in early.
	for _, t := range p.cfg.Targets {
		if s := e.targets[t.Name]; s != nil {
			errs = append(errs, wrap(t.Name, e.end(p, s, &t)))
		}
	}
	for _, t := range p.cfg.Targets {
		if s := e.targets[t.Name]; s != nil {
			errs = append(errs, wrap(t.Name, e.follow(p, s, t)))
		} else {
			errs = append(errs, wrap(t.Name, e.begin(p.targets[t.Name])))
		}
	}
	for address, d := range e.doors {
		if d.Targets() == 0 {
			d.Close()
			delete(e.doors, address)
		}
	}
	e.hubs.nvme.Changed()
	return errors.Join(errs...)
}

func wrap(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("target %s: %w", name, err)
}

// begin makes a new target reachable.
func (e *Estate) begin(s *served) error {
	e.targets[s.cfg.Name] = s
	if err := e.hubs.of(&s.cfg).Add(s.srv); err != nil {
		return err
	}
	for _, g := range changed(&config.Target{}, &s.cfg) { // before anybody can log in
		s.srv.state(g)
	}
	return e.join(s, s.cfg.Portals, nil)
}

// join makes a target reachable at the portals that it was not at.
func (e *Estate) join(s *served, portals, were []config.Portal) error {
	var errs []error
	for _, p := range missing(portals, were) {
		_, err := e.doors[p.Address].Add(s.srv, serve.PortalConfig{Address: p.Advertise, TPGT: p.TPGT, Group: p.Group})
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// missing are the elements of a that are not in b.
func missing[T comparable](a, b []T) (out []T) {
	in := map[T]bool{}
	for _, v := range b {
		in[v] = true
	}
	for _, v := range a {
		if !in[v] {
			out = append(out, v)
		}
	}
	return out
}

// end takes away what a target that stays loses: access, portals, LUNs.
func (e *Estate) end(p *plan, s *served, to *config.Target) error {
	errs := []error{s.srv.access(inBoth(s.cfg.Initiators, to.Initiators), p.secrets[to.Name])}
	for _, gone := range missing(s.cfg.Portals, to.Portals) {
		e.doors[gone.Address].Remove(s.srv)
	}
	for n, l := range s.luns {
		if _, stays := p.sizes[to.Name][n]; !stays {
			delete(s.luns, n)
			errs = append(errs, s.srv.RemoveLUN(n), l.close())
		}
	}
	return errors.Join(errs...)
}

// follow gives a target that stays what is new or different.
func (e *Estate) follow(p *plan, s *served, to config.Target) error {
	was := s.cfg
	s.cfg = to
	var errs []error
	if to.Depth != was.Depth || to.Queues != was.Queues {
		errs = append(errs, s.srv.limits(&to))
	}
	for _, g := range changed(&was, &to) {
		s.srv.state(g)
	}
	errs = append(errs, e.join(s, to.Portals, was.Portals))
	for _, c := range to.LUNs {
		if l := s.luns[c.Number]; l != nil {
			errs = append(errs, s.followLUN(l, c, p.sizes[to.Name][c.Number]))
			continue
		}
		l := p.luns[to.Name][c.Number]
		s.luns[c.Number] = l
		errs = append(errs, s.srv.add(l))
	}
	errs = append(errs, s.srv.access(to.Initiators, p.secrets[to.Name]))
	return errors.Join(errs...)
}

// inBoth is who is let in by both lists; an empty one lets everybody in.
func inBoth(was, to []string) (both []string) {
	switch {
	case len(was) == 0:
		return to
	case len(to) == 0:
		return was
	}
	for _, name := range was {
		if slices.Contains(to, name) {
			both = append(both, name)
		}
	}
	if both == nil {
		return []string{""} // a name that nobody has
	}
	return both
}

// changed are the groups whose state is another one now, or that may have been
// without a portal or a namespace for a moment.
func changed(was, to *config.Target) (out []config.Group) {
	old, known := map[uint16]bool{}, was.ANAGroups()
	for _, p := range was.Portals {
		old[p.Group] = true
	}
	for _, p := range missing(to.Portals, was.Portals) {
		old[p.Group] = false
	}
	done := map[uint16]bool{}
	for _, p := range to.Portals {
		if done[p.Group] {
			continue
		}
		done[p.Group] = true
		for _, ana := range to.ANAGroups() {
			g := to.Access(p.Group, ana)
			if !old[p.Group] || !slices.Contains(known, ana) || was.Access(p.Group, ana) != g {
				out = append(out, g)
			}
		}
	}
	return out
}

func (s *served) followLUN(l *lun, to config.LUN, size uint64) error {
	var err error
	if size > l.size {
		if err = s.srv.Grow(to.Number, size); err == nil {
			l.size = size
		}
	}
	l.cfg = to
	return errors.Join(err, s.srv.SetMode(to.Number, to.ReadOnly, to.WriteThrough, to.Thick))
}
