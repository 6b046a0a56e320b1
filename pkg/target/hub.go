package target

import (
	"net"

	"github.com/csi-mpath/csi-mpath/pkg/iscsi/auth"
	"github.com/csi-mpath/csi-mpath/pkg/target/serve"
)

// Hub lets several targets share listening addresses: a login goes to the
// target it names, and a discovery session sees all targets that let its
// initiator in. Discovery sessions, unknown names and what is no login go to
// the directory, a target without a name.
type Hub struct {
	*serve.Hub
	directory *Server
}

// NewHub returns a Hub without targets. discovery, if enabled, is demanded of
// discovery sessions; those of the targets play no part in them.
func NewHub(discovery auth.Credentials) (*Hub, error) {
	// No session of the directory's reaches a LUN, but a target has one.
	d, err := New(Config{Auth: discovery, LUNs: []LUN{{Store: NewRAM(512)}}})
	if err != nil {
		return nil, err
	}
	h := &Hub{serve.NewHub(d, greet), d}
	d.m.directory = h.list
	return h, nil
}

// list appends the answer to SendTargets for one target (only), or all. It is
// called with the directory's lock held; no target's lock is held then.
func (h *Hub) list(out []byte, initiator, only string) []byte {
	h.Each(func(s *serve.Server) {
		s.Look(func() {
			m, ok := s.Machine().(*Machine)
			if ok && (only == "" || only == m.cfg.Name) && m.admits(initiator) && len(out) < maxTextAnswer {
				out = m.appendTargets(out)
			}
		})
	})
	return out
}

// SetDiscoveryAuth changes what is demanded of the discovery sessions to come.
func (h *Hub) SetDiscoveryAuth(c auth.Credentials) error {
	return h.directory.SetAccess(nil, c)
}

// greet reads a connection's first PDU and says for whom it is. Discovery
// sessions are for nobody.
func greet(c net.Conn) (serve.Greeting, error) {
	first, g, err := readGreeting(c)
	if g.discovery {
		g.target = ""
	}
	return serve.Greeting{First: first, Name: g.target}, err
}
