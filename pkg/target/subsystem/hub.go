package subsystem

import (
	"io"
	"net"

	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	"github.com/csi-mpath/csi-mpath/pkg/nvmetcp/auth"
	"github.com/csi-mpath/csi-mpath/pkg/nvmetcp/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/target/serve"
)

// Hub lets several subsystems share listening addresses: a connection goes to
// the subsystem that its Connect names, and the discovery subsystem tells each
// host of all that let it in. What names no subsystem goes to the directory.
//
// A host does not say for whom it is before its connection is initialized
// (ICReq), so the hub does that for all of its subsystems alike.
type Hub struct {
	*serve.Hub
	directory *Server
}

// NewHub returns a Hub without subsystems. discovery, if enabled, is demanded of
// discovery controllers; that of the subsystems plays no part in them.
func NewHub(discovery auth.Credentials) (*Hub, error) {
	d, err := New(Config{Auth: discovery})
	if err != nil {
		return nil, err
	}
	h := &Hub{serve.NewHub(d, d.m.greet), d}
	d.m.directory = h.records
	return h, nil
}

// records are those of all subsystems. It is called with the directory's lock
// held; no subsystem's lock is held then.
func (h *Hub) records(host string) (out []nvme.Record) {
	h.Each(func(s *serve.Server) {
		s.Look(func() {
			if m, ok := s.Machine().(*Machine); ok && len(out) < maxRecords {
				out = append(out, m.records(host)...)
			}
		})
	})
	return out
}

// SetDiscoveryAuth changes what is demanded of the discovery controllers to come.
func (h *Hub) SetDiscoveryAuth(c auth.Credentials) error {
	return h.directory.SetAccess(nil, c, nil)
}

// Changed tells discovery controllers that subsystems, portals or access changed.
func (h *Hub) Changed() { h.directory.Do((*Machine).discoveryChanged) }

// initialized is a connection whose ICReq is answered.
type initialized struct {
	req  pdu.ICReq
	resp pdu.ICResp
}

// greet initializes a connection and reads its Connect. What is no Connect is
// for the directory, whose machine knows what to say.
func (m *Machine) greet(c net.Conn) (g serve.Greeting, err error) {
	var said initialized
	b := make([]byte, pdu.InitLen)
	if _, err := io.ReadFull(c, b); err != nil {
		return g, err
	}
	if said.req.Decode(b) != nil {
		return serve.Greeting{First: b}, nil //nolint:nilerr // the directory says what is wrong
	}
	said.resp = m.accept(&said.req)
	said.resp.Put(b)
	if _, err := c.Write(b); err != nil {
		return g, err
	}
	g.Said = &said
	g.First, g.Name, err = readConnect(c, &said)
	return g, err
}

// readConnect reads a connection's first command, and nothing behind it.
func readConnect(c io.Reader, said *initialized) (b []byte, name string, err error) {
	layout, _ := said.resp.Layouts(&said.req)
	b = make([]byte, pdu.CommonLen)
	if _, err := io.ReadFull(c, b); err != nil {
		return nil, "", err
	}
	h, err := layout.Parse(b)
	if err != nil || h.Type != pdu.TypeCapsuleCmd || h.Size > pdu.MaxHeader+pdu.AdminCapsuleData+pdu.DigestLen {
		return b, "", nil //nolint:nilerr // the machine that gets it says what is wrong
	}
	b = append(b, make([]byte, h.Size-len(b))...)
	if _, err := io.ReadFull(c, b[pdu.CommonLen:]); err != nil {
		return nil, "", err
	}
	return b, connectName(b, h), nil
}

// connectName is the subsystem that a whole Connect names, "" for what is none.
func connectName(b []byte, h pdu.Header) string {
	var cmd nvme.Command
	var d nvme.ConnectData
	if cmd.Decode(pdu.Entry(b)) != nil || cmd.Opcode != nvme.OpFabrics || cmd.Fabrics() != nvme.Connect ||
		h.Data < nvme.ConnectDataLen || d.Decode(b[h.DataOff:h.DataOff+h.Data]) != nil {
		return ""
	}
	return d.Subsystem
}

// Resume implements serve.Resumer.
func (c *conn) Resume(said any) {
	if s, ok := said.(*initialized); ok {
		c.begin(&s.req, &s.resp)
	}
}
