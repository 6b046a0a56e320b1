package nvmetcp

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	"github.com/csi-mpath/csi-mpath/pkg/nvmetcp/pdu"
)

const (
	someSubsystem = "nqn.2025-01.io.test:subsystem"
	someHost      = "nqn.2025-01.io.test:host"
)

// scripted is a controller of a few lines over connections in memory, one PDU
// at a time. Tests replace what it does. Handlers run one at a time, under mu.
type scripted struct {
	t    testing.TB
	mu   sync.Mutex
	gone sync.WaitGroup
	mem  []byte

	resp   pdu.ICResp
	caps   nvme.Caps
	id     nvme.Controller
	ns     nvme.Namespace
	ids    nvme.Descriptors
	ana    nvme.ANALog
	queues int // I/O queues granted
	events uint32

	// init, connect, admin, io and h2c, if set, come first; true: it is dealt with.
	init    func(q *scriptedQueue, req *pdu.ICReq) bool
	connect func(q *scriptedQueue, c nvme.ConnectCommand, d *nvme.ConnectData) nvme.Status
	admin   func(q *scriptedQueue, c *nvme.Command, data []byte) bool
	io      func(q *scriptedQueue, c *nvme.Command, data []byte) bool
	h2c     func(q *scriptedQueue, d *pdu.Data, data []byte) bool

	// What was seen. Under mu.
	conns    []*scriptedQueue
	commands []nvme.Command // admin commands, but for Fabrics
	terms    []pdu.TermReq
	joined   []nvme.ConnectData
	config   uint32 // CC
	fatal    bool   // CSTS.CFS
	changed  []uint32
}

// scriptedQueue is one connection.
type scriptedQueue struct {
	*end
	s         *scripted
	id        uint16 // of the queue
	size      int    // entries
	conn      nvme.ConnectCommand
	in, out   pdu.Layout
	connected bool
	writes    map[uint16]*scriptedWrite
	aers      []uint16 // CIDs of Async Event Requests held
	closing   bool     // it ends when its Connect was refused
	silent    bool     // reads no more, and says no more
	open      int      // I/O commands under way
	most      int      // the most there ever were
}

// scriptedWrite is a command whose data comes.
type scriptedWrite struct {
	c    nvme.Command
	data []byte
	got  int
}

// newScripted makes a controller with a namespace of 16 MiB in blocks of 512 bytes.
func newScripted(t testing.TB) *scripted {
	s := &scripted{t: t, mem: make([]byte, 16<<20), queues: 8, resp: pdu.ICResp{MaxH2CData: 128 << 10},
		caps: nvme.Caps{MaxEntries: 128, Contiguous: true, Ready: 15 * time.Second, MinPageShift: 12, MaxPageShift: 12, CommandSets: 1},
		id: nvme.Controller{Serial: "SN", Model: "scripted", MDTS: 8, ControllerID: 1, Version: nvme.Version(2, 1, 0),
			Events: nvme.AsyncNamespace | nvme.AsyncANA, CMIC: nvme.CMICANA | nvme.CMICPorts, Kind: nvme.ControllerIO,
			Attributes: nvme.CtrattHostID128 | nvme.CtrattTBKAS, AsyncEvents: 3, KeepAliveStep: 1, ANATransition: 10,
			ANACaps: 0x1F, ANAGroupMax: 8, ANAGroups: 8, SQES: 0x66, CQES: 0x44, MaxCommands: 128, Namespaces: 8,
			ONCS: nvme.ONCSDataset | nvme.ONCSWriteZeroes, VolatileCache: 1, SGLS: 1 | 1<<20, Subsystem: someSubsystem,
			CapsuleUnits: (64 + 4096) / 16, ResponseUnits: 1, MaxSGLs: 1},
		ns: nvme.Namespace{Size: 16 << 11, Capacity: 16 << 11, BlockShift: 9, Shared: true, Group: 1},
	}
	s.ids.UUID = "01234567-89ab-cdef-0123-456789abcdef"
	s.ana.Groups = []nvme.ANAGroup{{ID: 1, State: nvme.Optimized, NSIDs: []uint32{1}}}
	t.Cleanup(s.over)
	return s
}

// over cuts every connection and waits for their goroutines.
func (s *scripted) over() {
	s.cut()
	s.gone.Wait()
}

// cut cuts every connection there is.
func (s *scripted) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.conns {
		q.Close()
	}
}

// settings are those of a host of this controller.
func (s *scripted) settings() Config {
	return Config{Portal: "192.0.2.2:4420", Subsystem: someSubsystem, HostNQN: someHost, HostID: [16]byte{1}, Dial: s.dial, Queues: 1}
}

func (s *scripted) dial(context.Context, string) (net.Conn, error) {
	host, ours := newPair()
	q := &scriptedQueue{end: ours, s: s, writes: map[uint16]*scriptedWrite{}}
	s.mu.Lock()
	s.conns = append(s.conns, q)
	s.mu.Unlock()
	s.gone.Add(1)
	go func() { defer s.gone.Done(); defer ours.Close(); q.serve() }()
	return host, nil
}

// bring dials a controller that ends with the test.
func (s *scripted) bring(cfg Config) *Controller {
	s.t.Helper()
	c, err := Dial(s.t.Context(), cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Abort(io.EOF); <-c.Done() })
	return c
}

func (q *scriptedQueue) serve() {
	for {
		if q.silent {
			q.rx.untilOver()
			return
		}
		h, b, err := q.read()
		if err != nil {
			return
		}
		q.s.mu.Lock()
		goOn := q.take(h, b)
		q.s.mu.Unlock()
		if !goOn {
			return
		}
	}
}

// read reads one PDU.
func (q *scriptedQueue) read() (h pdu.Header, b []byte, err error) {
	b = make([]byte, pdu.CommonLen)
	if _, err = io.ReadFull(q, b); err != nil {
		return h, nil, err
	}
	if h, err = q.in.Parse(b); err != nil {
		q.s.t.Errorf("from the host: %v", err)
		return h, nil, err
	}
	b = append(b, make([]byte, h.Size-len(b))...)
	if _, err = io.ReadFull(q, b[pdu.CommonLen:]); err != nil {
		return h, nil, err
	}
	if h, _, err = q.in.Open(b); err == nil && h.Type >= pdu.TypeCapsuleCmd {
		data := b[h.DataOff : h.DataOff+h.Data]
		err = q.in.CheckTrailer(b[h.DataOff+h.Data:], h.Data, pdu.CRC(0, data))
	}
	if err != nil {
		q.s.t.Errorf("from the host: %v", err)
	}
	return h, b, err
}

// take deals with a PDU; false ends the connection.
func (q *scriptedQueue) take(h pdu.Header, b []byte) bool {
	data := b[h.DataOff : h.DataOff+h.Data]
	switch h.Type {
	case pdu.TypeICReq:
		return q.start(b)
	case pdu.TypeH2CTerm:
		var p pdu.TermReq
		_ = p.Decode(b)
		q.s.terms = append(q.s.terms, p)
		return false
	case pdu.TypeH2CData:
		var d pdu.Data
		if err := d.DecodeH2C(b, h); err != nil {
			q.s.t.Errorf("from the host: %v", err)
			return false
		}
		if q.s.h2c == nil || !q.s.h2c(q, &d, data) {
			q.arrived(&d, data)
		}
	case pdu.TypeCapsuleCmd:
		var c nvme.Command
		_ = c.Decode(pdu.Entry(b))
		q.command(&c, data)
	}
	return true
}

func (q *scriptedQueue) start(b []byte) bool {
	var req pdu.ICReq
	if err := req.Decode(b); err != nil {
		q.s.t.Errorf("from the host: %v", err)
		return false
	}
	if q.s.init != nil && q.s.init(q, &req) {
		return true
	}
	resp := q.s.resp
	resp.HeaderDigest, resp.DataDigest = req.HeaderDigest, req.DataDigest
	q.greet(&req, &resp)
	return true
}

// greet answers an ICReq.
func (q *scriptedQueue) greet(req *pdu.ICReq, resp *pdu.ICResp) {
	p := make([]byte, pdu.InitLen)
	resp.Put(p)
	_, _ = q.Write(p)
	q.in, q.out = resp.Layouts(req)
}

func (q *scriptedQueue) command(c *nvme.Command, data []byte) {
	if st := c.Check(); st != nvme.Success {
		q.s.t.Errorf("from the host: %+v: %v", c, st)
	}
	switch {
	case c.Opcode == nvme.OpFabrics:
		q.fabrics(c, data)
	case q.id == 0:
		q.s.commands = append(q.s.commands, *c)
		if q.s.admin == nil || !q.s.admin(q, c, data) {
			q.administer(c, data)
		}
	default:
		q.open++
		q.most = max(q.most, q.open)
		if q.s.io == nil || !q.s.io(q, c, data) {
			q.run(c, data)
		}
	}
}

// run does an I/O command.
func (q *scriptedQueue) run(c *nvme.Command, data []byte) {
	if c.Direction() == nvme.HostToController && c.SGL.Len > 0 && len(data) == 0 {
		w := &scriptedWrite{c: *c, data: make([]byte, c.SGL.Len)}
		q.writes[c.CID] = w
		q.ask(&pdu.R2T{CID: c.CID, Tag: c.CID + 100, Len: c.SGL.Len})
		return
	}
	q.execute(c, data)
}

func (q *scriptedQueue) execute(c *nvme.Command, data []byte) {
	at := int(c.LBA()) << q.s.ns.BlockShift
	switch c.Opcode {
	case nvme.OpRead:
		q.give(c, q.s.mem[at:][:c.SGL.Len])
		return
	case nvme.OpWrite:
		copy(q.s.mem[at:], data)
	case nvme.OpWriteZeroes:
		clear(q.s.mem[at:][:int(c.Blocks())<<q.s.ns.BlockShift])
	}
	q.complete(c, 0, nvme.Success)
}

// arrived takes data of a write.
func (q *scriptedQueue) arrived(d *pdu.Data, data []byte) {
	w := q.writes[d.CID]
	if w == nil || d.Tag != d.CID+100 || int(d.Offset) != w.got {
		q.s.t.Errorf("H2CData %+v that was not asked for", d)
		return
	}
	w.got += copy(w.data[w.got:], data)
	if d.Last != (w.got == len(w.data)) {
		q.s.t.Errorf("H2CData %+v with %d of %d bytes there", d, w.got, len(w.data))
	}
	if w.got == len(w.data) {
		delete(q.writes, d.CID)
		q.execute(&w.c, w.data)
	}
}

func (q *scriptedQueue) ask(p *pdu.R2T) {
	b := make([]byte, pdu.MaxHeader)
	_, _ = q.Write(b[:p.Put(b, q.out)])
}

// give answers a command that reads with data and a response capsule.
func (q *scriptedQueue) give(c *nvme.Command, b []byte) {
	q.data(&pdu.Data{CID: c.CID, Len: uint32(len(b)), Last: true}, b)
	q.complete(c, 0, nvme.Success)
}

// data sends one C2HData.
func (q *scriptedQueue) data(d *pdu.Data, b []byte) { _, _ = q.Write(q.dataPDU(d, b)) }

func (q *scriptedQueue) dataPDU(d *pdu.Data, b []byte) []byte {
	p := make([]byte, pdu.MaxHeader+len(b)+pdu.DigestLen)
	n := d.PutC2H(p, q.out)
	n += copy(p[n:], b)
	return p[:n+q.out.PutTrailer(p[n:], len(b), pdu.CRC(0, b))]
}

func (q *scriptedQueue) complete(c *nvme.Command, result uint64, st nvme.Status) {
	if q.id != 0 && c.Opcode != nvme.OpFabrics {
		q.open--
	}
	q.respond(c.CID, result, st)
}

// respond sends a response capsule.
func (q *scriptedQueue) respond(cid uint16, result uint64, st nvme.Status) {
	_, _ = q.Write(q.capsule(&nvme.Completion{Result: result, CID: cid, Status: st}))
}

func (q *scriptedQueue) capsule(c *nvme.Completion) []byte {
	b := make([]byte, pdu.MaxHeader)
	c.Put(pdu.ResponseSpace(b))
	return b[:q.out.PutCapsuleResp(b)]
}
