package subsystem

import (
	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	"github.com/csi-mpath/csi-mpath/pkg/nvmetcp/auth"
	"github.com/csi-mpath/csi-mpath/pkg/target/serve"
)

// authState is the authentication of one queue. While a step of it runs beside
// the machine nothing else touches side: steps have turns.
type authState struct {
	side   *auth.Controller
	turn   serve.Turn
	proven bool
	msg    []byte // of the step that ran last, for the host
	err    error
}

// unproven reports whether the queue must authenticate before anything else.
func (c *conn) unproven() bool { return c.auth != nil && !c.auth.proven }

// authFor is the authentication of a new queue of x; nil when none is demanded.
func (m *Machine) authFor(x *controller) (*authState, error) {
	c := m.credentials(x.host)
	if !c.Enabled() {
		return nil, nil //nolint:nilnil // nothing to prove
	}
	name := m.cfg.Name
	if x.discovery {
		name = nvme.DiscoveryNQN
	}
	side, err := auth.NewController(c, x.host, name, &m.source)
	if err != nil {
		return nil, err
	}
	return &authState{side: side}, nil
}

// authWants is the data of Authentication Send and Receive, bytes.
func (t *task) authWants() (uint32, nvme.Status) {
	a := nvme.ParseAuth(&t.cmd)
	switch {
	case t.conn.auth == nil:
		return 0, nvme.InvalidOpcode.Final()
	case a.Protocol != nvme.AuthProtocol || a.Specific != nvme.AuthSpecific || a.Len == 0 || a.Len > auth.MaxMessage:
		return 0, nvme.InvalidField.Final()
	}
	return a.Len, nvme.Success
}

// authenticate does one step of the exchange, beside the machine: its
// arithmetic takes as long as a disk.
func (t *task) authenticate() {
	a, send := t.conn.auth, t.cmd.Fabrics() == nvme.AuthSend
	length := int(nvme.ParseAuth(&t.cmd).Len)
	step := func() {
		if a.msg, a.err = nil, nil; send {
			a.side.Take(t.data)
		} else {
			a.msg, a.err = a.side.Give(length)
		}
	}
	t.auth = a
	if t.m.Run == nil {
		step()
		t.authenticated()
		return
	}
	t.Alone = true
	t.m.Work(&t.Task, &a.turn, step)
}

// authenticated answers a step that is over.
func (t *task) authenticated() {
	a, c := t.auth, t.conn
	if a.proven = a.side.Authenticated() || a.proven && a.side.Err() == nil; a.proven {
		t.m.Rouse()
	}
	switch {
	case a.err != nil:
		t.answer(nvme.InvalidField.Final())
	case a.msg != nil:
		t.reply(a.msg)
	default:
		t.answer(nvme.Success)
	}
	if a.side.Over() && c != nil {
		t.m.stats.AuthFailures++
		c.Close()
	}
}
