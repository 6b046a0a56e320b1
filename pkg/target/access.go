package target

import (
	"fmt"
	"maps"
	"slices"

	"github.com/csi-mpath/csi-mpath/pkg/iscsi/auth"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
	"github.com/csi-mpath/csi-mpath/pkg/target/serve"
)

// Grant is what one initiator may do.
type Grant struct {
	// Auth is what it must know; the zero value is nothing.
	Auth auth.Credentials
	// ReadOnly refuses it what writes, whatever the LUN allows.
	ReadOnly bool
}

// SetAccess changes who is let in. Sessions of initiators that are not any more
// end at once, with all their tasks (I9); auth is for the logins to come.
func (m *Machine) SetAccess(initiators []string, c auth.Credentials) error {
	if err := c.Check(); err != nil {
		return fmt.Errorf("target %s: %w", m.cfg.Name, err)
	}
	m.cfg.Auth, m.cfg.Initiators, m.cfg.Grants = c, slices.Clone(initiators), nil
	m.putOut(nil)
	return nil
}

// SetGrants lets in exactly the initiators of grants: nobody if that is empty.
// Sessions of those that may do less than before end at once, with all their
// tasks (I9); credentials are for the logins to come. It reports whether anything
// is different now.
func (m *Machine) SetGrants(grants map[string]Grant) (changed bool, err error) {
	if err := checkGrants(m.cfg.Name, grants); err != nil {
		return false, err
	}
	was := m.cfg.Grants
	changed = was == nil || !maps.Equal(was, grants)
	m.cfg.Grants = map[string]Grant{}
	maps.Copy(m.cfg.Grants, grants)
	m.putOut(was)
	return changed, nil
}

// checkGrants refuses credentials that cannot work. Its errors hold no secret (I10).
func checkGrants(target string, grants map[string]Grant) error {
	for name, g := range grants {
		if err := g.Auth.Check(); err != nil {
			return fmt.Errorf("target %s: initiator %s: %w", target, name, err)
		}
	}
	return nil
}

// putOut ends the sessions of those who may do less than they might.
func (m *Machine) putOut(was map[string]Grant) {
	for _, s := range m.sessions {
		name := s.key.initiator
		if !m.admits(name) || m.cfg.Grants[name].ReadOnly && !was[name].ReadOnly {
			m.endSession(s, true)
		}
	}
}

// admits reports whether an initiator may log in, as far as its name decides.
func (m *Machine) admits(initiator string) bool {
	if m.cfg.Grants != nil {
		_, ok := m.cfg.Grants[initiator]
		return ok
	}
	return len(m.cfg.Initiators) == 0 || slices.Contains(m.cfg.Initiators, initiator)
}

// credentials are what an initiator must know, if anything.
func (m *Machine) credentials(initiator string) auth.Credentials {
	if m.cfg.Grants != nil {
		return m.cfg.Grants[initiator].Auth
	}
	return m.cfg.Auth
}

// banned reports whether a task is of one who may not have it any more: its job
// may run on after its session ended.
func (m *Machine) banned(t *task) bool {
	name := t.sess.key.initiator
	return !m.admits(name) || m.cfg.Grants[name].ReadOnly && serve.ChangesBlocks(&t.Task)
}

// protected is why t may not write to its unit; zero if it may.
func (m *Machine) protected(t *task) scsi.Sense {
	if m.cfg.Grants[t.sess.key.initiator].ReadOnly {
		return senseProtected
	}
	return t.unit.protected()
}

// Granted lists the initiators of SetGrants, in the order of their names.
func (m *Machine) Granted() []string { return slices.Sorted(maps.Keys(m.cfg.Grants)) }

// Attached lists the initiators that are logged in, a session each.
func (m *Machine) Attached() (out []serve.Attached) {
	for _, s := range m.sessions {
		if s.conn != nil && !s.discovery {
			out = append(out, serve.Attached{Initiator: s.key.initiator, Portal: s.portal.Address})
		}
	}
	return out
}
