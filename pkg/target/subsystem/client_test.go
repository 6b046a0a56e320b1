package subsystem

import (
	"bytes"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	"github.com/csi-mpath/csi-mpath/pkg/nvmetcp/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/target"
	"github.com/csi-mpath/csi-mpath/pkg/target/serve"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

const hostNQN = "nqn.2025-01.io.test:host"

// rig is a machine with one RAM namespace of 1 MiB and two portals, of groups 1 and 2.
type rig struct {
	*Machine
	t   *testing.T
	ram *target.RAM
	now time.Time
}

func newRig(t *testing.T, change func(*Config)) *rig {
	t.Helper()
	ram := target.NewRAM(1 << 20)
	cfg := Config{Namespaces: []Namespace{{ID: 1, Store: ram}}}
	if change != nil {
		change(&cfg)
	}
	m, err := NewMachine(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range []string{"10.0.0.1:4420", "10.0.0.2:4420"} {
		if _, err := m.AddPortal(serve.PortalConfig{Address: a, Group: uint16(i + 1)}); err != nil {
			t.Fatal(err)
		}
	}
	return &rig{m, t, ram, epoch}
}

// client is one connection of a host made of raw PDUs.
type client struct {
	t     *testing.T
	r     *rig
	c     *serve.Conn
	out   pdu.Layout // of what it sends
	inl   pdu.Layout
	maxH  uint32
	in    []byte // from the target, not read yet
	total int    // bytes ever received
	cid   uint16
	split int // bytes per Input, 0 all
	sent  []byte

	data  map[uint16][]byte          // C2HData by CID
	done  map[uint16]nvme.Completion // SUCCESS too
	r2ts  []pdu.R2T
	term  *pdu.TermReq
	large bool // answers R2Ts with all data in one PDU, as far as MAXH2CDATA allows
}

// dial connects and initializes.
func (r *rig) dial(portal int, req pdu.ICReq) *client {
	r.t.Helper()
	c := r.raw(portal)
	b := make([]byte, pdu.InitLen)
	req.Put(b)
	c.write(b)
	var resp pdu.ICResp
	if err := resp.Decode(c.take(pdu.InitLen)); err != nil {
		r.t.Fatal(err)
	}
	c.out, c.inl = resp.Layouts(&req)
	c.maxH = resp.MaxH2CData
	return c
}

// raw connects and says nothing.
func (r *rig) raw(portal int) *client {
	r.t.Helper()
	k := r.Connect(portal, r.now)
	if k == nil {
		r.t.Fatal("no connection")
	}
	return &client{t: r.t, r: r, c: k, data: map[uint16][]byte{}, done: map[uint16]nvme.Completion{}}
}

func (c *client) write(b []byte) {
	c.sent = append(c.sent, b...)
	step := c.split
	if step == 0 {
		step = len(b)
	}
	for len(b) > 0 {
		n := min(step, len(b))
		c.c.Input(c.r.now, b[:n])
		c.drain()
		b = b[n:]
	}
	c.drain()
}

// drain takes what the target has to say.
func (c *client) drain() {
	var batch serve.Batch
	for {
		for c.c.Take(&batch) {
			for _, v := range batch.Vectors() {
				c.in = append(c.in, v...)
				c.total += len(v)
			}
			batch.Reset()
		}
		if !c.c.Backlogged() {
			return
		}
		c.c.Advance(c.r.now, 0)
	}
}

func (c *client) take(n int) []byte {
	c.t.Helper()
	c.drain()
	if len(c.in) < n {
		c.t.Fatalf("%d bytes from the target, want %d; %s", len(c.in), n, c.c.Cause())
	}
	b := c.in[:n]
	c.in = c.in[n:]
	return b
}

// read takes apart what came.
func (c *client) read() {
	c.t.Helper()
	c.drain()
	for len(c.in) > 0 {
		h, more, err := c.inl.Open(c.in)
		if err != nil || more > 0 || len(c.in) < h.Size {
			c.t.Fatalf("a bad PDU: %v, %d more", err, more)
		}
		c.one(h, c.in[:h.Size])
		c.in = c.in[h.Size:]
	}
}

func (c *client) one(h pdu.Header, b []byte) {
	c.t.Helper()
	switch h.Type {
	case pdu.TypeCapsuleResp:
		var v nvme.Completion
		_ = v.Decode(pdu.Entry(b))
		if _, twice := c.done[v.CID]; twice {
			c.t.Fatalf("command %d is answered twice", v.CID)
		}
		c.done[v.CID] = v
	case pdu.TypeC2HData:
		var p pdu.Data
		if err := p.DecodeC2H(b, h); err != nil {
			c.t.Fatal(err)
		}
		d := b[h.DataOff : h.DataOff+h.Data]
		if err := c.inl.CheckTrailer(b[h.DataOff+h.Data:], h.Data, pdu.CRC(0, d)); err != nil {
			c.t.Fatal(err)
		}
		if int(p.Offset) != len(c.data[p.CID]) {
			c.t.Fatalf("data at %d, want %d", p.Offset, len(c.data[p.CID]))
		}
		c.data[p.CID] = append(c.data[p.CID], d...)
		if p.Success {
			c.done[p.CID] = nvme.Completion{CID: p.CID}
		}
	case pdu.TypeR2T:
		var p pdu.R2T
		if err := p.Decode(b); err != nil {
			c.t.Fatal(err)
		}
		c.r2ts = append(c.r2ts, p)
	case pdu.TypeC2HTerm:
		c.term = &pdu.TermReq{}
		if err := c.term.Decode(b); err != nil {
			c.t.Fatal(err)
		}
		c.term.Offender = bytes.Clone(c.term.Offender)
	default:
		c.t.Fatalf("the target sent %v", h.Type)
	}
}

// capsule is a command on the wire; data goes with it.
func (c *client) capsule(cmd nvme.Command, data []byte) []byte {
	b := make([]byte, c.out.DataStart(pdu.CommandLen)+pdu.DigestLen)
	cmd.Put(pdu.CommandSpace(b))
	b = b[:c.out.PutCapsuleCmd(b, len(data))]
	return c.trail(append(b, data...), data)
}

func (c *client) trail(b, data []byte) []byte {
	var t [pdu.DigestLen]byte
	n := c.out.PutTrailer(t[:], len(data), pdu.CRC(0, data))
	return append(b, t[:n]...)
}

// start sends a command whose data, if any, goes in the capsule.
func (c *client) start(cmd nvme.Command, inCapsule []byte) uint16 {
	c.t.Helper()
	c.cid++
	cmd.CID = c.cid
	if inCapsule != nil {
		cmd.SGL = nvme.InCapsule(uint32(len(inCapsule)))
	}
	c.write(c.capsule(cmd, inCapsule))
	return c.cid
}

// h2c sends data for an R2T.
func (c *client) h2c(r pdu.R2T, all []byte) {
	for off := r.Offset; off < r.Offset+r.Len; {
		n := min(c.maxH, r.Offset+r.Len-off)
		if !c.large {
			n = min(n, 20<<10)
		}
		p := pdu.Data{CID: r.CID, Tag: r.Tag, Offset: off, Len: n, Last: off+n == r.Offset+r.Len}
		b := make([]byte, c.out.DataStart(pdu.HeaderLen))
		p.PutH2C(b, c.out)
		d := all[off : off+n]
		c.write(c.trail(append(b, d...), d))
		off += n
	}
}

// send sends a command and its data when it is asked for.
func (c *client) send(cmd nvme.Command, data []byte) uint16 {
	c.t.Helper()
	cmd.SGL = nvme.ByTransport(uint32(len(data)))
	cid := c.start(cmd, nil)
	for c.read(); len(c.r2ts) > 0; c.read() {
		r := c.r2ts[0]
		c.r2ts = c.r2ts[1:]
		c.h2c(r, data)
	}
	return cid
}

// get sends a command that returns n bytes.
func (c *client) get(cmd nvme.Command, n int) []byte {
	c.t.Helper()
	cmd.SGL = nvme.ByTransport(uint32(n))
	cid := c.start(cmd, nil)
	c.good(cid)
	return c.data[cid]
}

// answer is the completion of a command.
func (c *client) answer(cid uint16) nvme.Completion {
	c.t.Helper()
	c.read()
	v, ok := c.done[cid]
	if !ok {
		c.t.Fatalf("command %d is not answered; %s", cid, c.c.Cause())
	}
	return v
}

func (c *client) open(cid uint16) {
	c.t.Helper()
	c.read()
	if v, ok := c.done[cid]; ok {
		c.t.Fatalf("command %d is answered with %v", cid, v.Status)
	}
}

func (c *client) good(cid uint16) uint64 {
	c.t.Helper()
	v := c.answer(cid)
	if !v.Status.OK() {
		c.t.Fatalf("command %d: %v", cid, v.Status)
	}
	return v.Result
}

func (c *client) bad(cid uint16, want nvme.Status) {
	c.t.Helper()
	if v := c.answer(cid); v.Status != want {
		c.t.Fatalf("command %d: %v, want %v", cid, v.Status, want)
	}
}

// tries says how a Connect goes.
func (c *client) tries(cc nvme.ConnectCommand, d nvme.ConnectData) nvme.Completion {
	c.t.Helper()
	b, err := d.Append(nil)
	if err != nil {
		c.t.Fatal(err)
	}
	if cc.SQSize == 0 {
		cc.SQSize = 31
	}
	return c.answer(c.start(cc.Command(), b))
}

// host is a controller with its admin queue and one I/O queue.
type host struct {
	r     *rig
	admin *client
	io    *client
	id    uint16
	data  nvme.ConnectData
}

func connectData(n byte) nvme.ConnectData {
	return nvme.ConnectData{HostID: [16]byte{1, 15: n}, ControllerID: nvme.AnyController, Subsystem: DefaultName, Host: hostNQN}
}

var plain = pdu.ICReq{MaxR2T: 1}

// adminOnly connects an admin queue and enables the controller.
func (r *rig) adminOnly(portal int, n byte, cc nvme.ConnectCommand, d nvme.ConnectData) *host {
	r.t.Helper()
	h := &host{r: r, admin: r.dial(portal, plain), data: d}
	v := h.admin.tries(cc, d)
	if !v.Status.OK() {
		r.t.Fatal(v.Status)
	}
	h.id = nvme.ParseConnectResult(v.Result).ControllerID
	h.enable()
	return h
}

func (h *host) enable() {
	h.r.t.Helper()
	cc := nvme.ControllerConfig{Enable: true, PageShift: 12, SQShift: 6, CQShift: 4}
	h.set(cc)
	if !h.state().Ready {
		h.r.t.Fatal("not ready")
	}
}

func (h *host) set(cc nvme.ControllerConfig) {
	h.r.t.Helper()
	h.admin.good(h.admin.start(nvme.SetProperty(nvme.RegCC, uint64(cc.Value())), nil))
}

func (h *host) state() nvme.ControllerState {
	h.r.t.Helper()
	return nvme.ParseState(uint32(h.admin.good(h.admin.start(nvme.GetProperty(nvme.RegCSTS), nil))))
}

// queue adds an I/O queue.
func (h *host) queue(portal int, id uint16, req pdu.ICReq, attributes uint8) *client {
	h.r.t.Helper()
	c := h.r.dial(portal, req)
	d := h.data
	d.ControllerID = h.id
	if v := c.tries(nvme.ConnectCommand{QueueID: id, SQSize: uint16(min(64, h.r.cfg.Depth) - 1), Attributes: attributes}, d); !v.Status.OK() {
		h.r.t.Fatal(v.Status)
	}
	return c
}

// host connects host n over a portal.
func (r *rig) host(portal int, n byte) *host {
	r.t.Helper()
	h := r.adminOnly(portal, n, nvme.ConnectCommand{}, connectData(n))
	h.io = h.queue(portal, 1, plain, 0)
	return h
}

// gone breaks the connections of the host.
func (h *host) gone() {
	h.admin.c.Gone()
	h.io.c.Gone()
}

func pattern(seed byte, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = seed ^ byte(i) ^ byte(i>>8)
	}
	return b
}

func (c *client) write1(lba uint64, data []byte) uint16 {
	c.t.Helper()
	return c.start(nvme.Write(1, lba, uint32(len(data)/512), 0), data)
}

func (c *client) read1(lba uint64, blocks int) []byte {
	c.t.Helper()
	return c.get(nvme.Read(1, lba, uint32(blocks), 0), blocks*512)
}
