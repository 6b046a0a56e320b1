package subsystem

import (
	"fmt"
	"maps"
	"slices"

	"github.com/csi-mpath/csi-mpath/pkg/nvmetcp/auth"
	"github.com/csi-mpath/csi-mpath/pkg/target/serve"
)

// Grant is what one host may do.
type Grant struct {
	// HostID is the host identifier it must come with; zero is any.
	HostID [16]byte
	// Auth is what it must know; the zero value is nothing.
	Auth auth.Credentials
	// ReadOnly refuses it what writes, whatever the namespace allows.
	ReadOnly bool
}

// SetAccess changes who is let in. Controllers of hosts that are not any more
// end at once, with all their tasks (I9); all and each, as Config's Auth and
// HostAuth, are for the queues to come.
func (m *Machine) SetAccess(hosts []string, all auth.Credentials, each map[string]auth.Credentials) error {
	if err := checkAuth(m.cfg.Name, all, each); err != nil {
		return err
	}
	m.cfg.Hosts, m.cfg.Auth, m.cfg.HostAuth, m.cfg.Grants = slices.Clone(hosts), all, maps.Clone(each), nil
	m.putOut(nil)
	m.discoveryChanged()
	return nil
}

// SetGrants lets in exactly the hosts of grants: nobody if that is empty.
// Controllers of those that may do less than before end at once, with all their
// tasks (I9); credentials are for the queues to come. It reports whether anything
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
	if changed {
		m.discoveryChanged()
	}
	return changed, nil
}

// checkGrants refuses credentials that cannot work. Its errors hold no secret (I10).
func checkGrants(subsystem string, grants map[string]Grant) error {
	each := map[string]auth.Credentials{}
	for host, g := range grants {
		each[host] = g.Auth
	}
	return checkAuth(subsystem, auth.Credentials{}, each)
}

// checkAuth refuses credentials that cannot work. Its errors hold no secret (I10).
func checkAuth(name string, all auth.Credentials, hosts map[string]auth.Credentials) error {
	if err := all.Check(); err != nil {
		return fmt.Errorf("target %s: %w", name, err)
	}
	for host, c := range hosts {
		if err := c.Check(); err != nil {
			return fmt.Errorf("target %s: host %s: %w", name, host, err)
		}
	}
	return nil
}

// putOut ends the controllers of those who may do less than they might.
func (m *Machine) putOut(was map[string]Grant) {
	for _, x := range m.controllers {
		if !m.admitsHost(x.host, x.hostID) || m.cfg.Grants[x.host].ReadOnly && !was[x.host].ReadOnly {
			m.end(x)
		}
	}
}

// admits reports whether a host is let in, as far as its name decides.
func (m *Machine) admits(host string) bool {
	if m.cfg.Grants != nil {
		_, ok := m.cfg.Grants[host]
		return ok
	}
	return len(m.cfg.Hosts) == 0 || slices.Contains(m.cfg.Hosts, host)
}

// admitsHost asks for the host identifier, too.
func (m *Machine) admitsHost(host string, id [16]byte) bool {
	want := m.cfg.Grants[host].HostID
	return m.admits(host) && (want == [16]byte{} || want == id)
}

// credentials are what a host must know, if anything.
func (m *Machine) credentials(host string) auth.Credentials {
	if m.cfg.Grants != nil {
		return m.cfg.Grants[host].Auth
	}
	if c, ok := m.cfg.HostAuth[host]; ok {
		return c
	}
	return m.cfg.Auth
}

// banned reports whether a task is of one who may not have it any more: its job
// may run on after its controller ended.
func (m *Machine) banned(t *task) bool {
	x := t.q.ctrl
	return x != nil && (!m.admitsHost(x.host, x.hostID) || m.cfg.Grants[x.host].ReadOnly && serve.ChangesBlocks(&t.Task))
}

// readOnly reports whether a host may not write to n.
func (m *Machine) readOnly(n *namespace, host string) bool {
	return n.ReadOnly || m.cfg.Grants[host].ReadOnly
}

// Granted lists the hosts of SetGrants, in the order of their names.
func (m *Machine) Granted() []string { return slices.Sorted(maps.Keys(m.cfg.Grants)) }

// Attached lists the hosts that are connected, a controller each.
func (m *Machine) Attached() (out []serve.Attached) {
	for _, x := range m.controllers {
		if !x.discovery && !x.over {
			out = append(out, serve.Attached{Initiator: x.host, Portal: x.portal.Address})
		}
	}
	return out
}
