package target

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/iscsi/auth"
	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// rig is a machine with one RAM unit of 1 MiB and two portals of one group.
type rig struct {
	*Machine
	t   *testing.T
	ram *RAM
}

func newRig(t *testing.T, change func(*Config)) *rig {
	t.Helper()
	ram := NewRAM(1 << 20)
	cfg := Config{LUNs: []LUN{{Store: ram}}}
	if change != nil {
		change(&cfg)
	}
	m, err := NewMachine(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range []string{"10.0.0.1:3260", "10.0.0.2:3260"} {
		if _, err := m.AddPortal(PortalConfig{Address: a}); err != nil {
			t.Fatal(err)
		}
	}
	return &rig{m, t, ram}
}

// client is an initiator made of raw PDUs.
type client struct {
	t      *testing.T
	m      *Machine
	c      *Conn
	layout pdu.Layout
	in     []byte // from the target, not read yet
	raw    []byte // everything ever received
	cmdSN  uint32
	itt    uint32
	isid   byte
	name   string
	split  int // bytes per Input, 0 all
	sent   []byte
	more   pdu.Keys // offered in mustLogin beside loginKeys
}

func (r *rig) dial(portal int) *client {
	r.t.Helper()
	c := r.Connect(portal, epoch)
	if c == nil {
		r.t.Fatal("no connection")
	}
	return &client{t: r.t, m: r.Machine, c: c, cmdSN: 100, isid: 1, name: "iqn.2025-01.io.test:host"}
}

// inner is the target's end of the connection.
func (c *client) inner() *conn { return c.c.Wire().(*conn) }

// session logs in at a portal.
func (r *rig) session(portal int, isid byte) *client {
	c := r.dial(portal)
	c.isid = isid
	c.mustLogin()
	return c
}

func (c *client) write(b []byte) {
	c.sent = append(c.sent, b...)
	step := c.split
	if step == 0 {
		step = len(b)
	}
	for ; len(b) > 0; b = b[min(step, len(b)):] {
		c.c.Input(epoch, b[:min(step, len(b))])
		c.drain()
		for c.c.Backlogged() {
			c.c.Advance(epoch, 0)
			c.drain()
		}
	}
}

// drain moves the target's output to the client.
func (c *client) drain() {
	var b Batch
	for c.c.Take(&b) {
		for _, v := range b.Vectors() {
			c.in = append(c.in, v...)
			c.raw = append(c.raw, v...)
		}
		b.Reset()
	}
}

// pdu frames a header with its data.
func (c *client) pdu(put func(b []byte), data []byte) []byte {
	h := make([]byte, pdu.HeaderLen+pdu.DigestLen)
	put(h)
	out := h[:pdu.HeaderLen+c.layout.PutHeaderDigest(h)]
	out = append(out, data...)
	tr := make([]byte, 8)
	return append(out, tr[:c.layout.PutTrailer(tr, len(data), pdu.CRC(0, data))]...)
}

// read takes one PDU from the target.
func (c *client) read() (h, data []byte) {
	c.t.Helper()
	c.drain()
	if len(c.in) < pdu.HeaderLen {
		c.t.Fatalf("no PDU: %d bytes (closing %v %s)", len(c.in), c.c.Closing(), c.c.Cause())
	}
	n, start := pdu.DataLen(c.in), c.layout.DataStart(0)
	size := c.layout.Size(c.in)
	h, data = c.in[:pdu.HeaderLen], c.in[start:start+n]
	if err := c.layout.CheckHeader(c.in[:start]); err != nil {
		c.t.Fatal(err)
	}
	if err := c.layout.CheckTrailer(c.in[start+n:size], n, pdu.CRC(0, data)); err != nil {
		c.t.Fatal(err)
	}
	c.in = c.in[size:]
	return h, data
}

func (c *client) quiet() {
	c.t.Helper()
	if c.drain(); len(c.in) > 0 {
		op, _ := pdu.Op(c.in)
		c.t.Fatalf("unexpected %v", op)
	}
}

var loginKeys = pdu.Keys{{Key: "InitialR2T", Value: "No"}, {Key: "ImmediateData", Value: "Yes"},
	{Key: "MaxRecvDataSegmentLength", Value: "65536"}, {Key: "MaxBurstLength", Value: "262144"},
	{Key: "FirstBurstLength", Value: "16384"}, {Key: "HeaderDigest", Value: "None"}, {Key: "DataDigest", Value: "None"}}

// leg sends one login request and reads the answer.
func (c *client) leg(csg, nsg uint8, transit bool, keys pdu.Keys) (pdu.LoginResponse, pdu.Keys) {
	c.t.Helper()
	text := keys.Append(nil)
	p := pdu.LoginRequest{Transit: transit, CSG: csg, NSG: nsg, ISID: [6]byte{0x80, 0, 0, 0, 0, c.isid}, CmdSN: c.cmdSN, DataLen: len(text)}
	c.write(c.pdu(p.Put, text))
	h, data := c.read()
	var r pdu.LoginResponse
	if err := r.Decode(h); err != nil {
		c.t.Fatal(err)
	}
	got, err := pdu.ParseKeys(data)
	if err != nil {
		c.t.Fatal(err)
	}
	return r, got
}

func (c *client) hello(more ...pdu.Pair) pdu.Keys {
	return append(pdu.Keys{{Key: "InitiatorName", Value: c.name}, {Key: "TargetName", Value: DefaultName}}, more...)
}

func (c *client) mustLogin(change ...pdu.Pair) {
	c.t.Helper()
	keys := c.hello()
	for _, k := range loginKeys {
		for _, ch := range change {
			if ch.Key == k.Key {
				k.Value = ch.Value
			}
		}
		keys = append(keys, k)
	}
	keys = append(keys, c.more...)
	r, got := c.leg(pdu.StageOperational, pdu.StageFull, true, keys)
	if r.StatusClass != 0 || !r.Transit || r.TSIH == 0 {
		c.t.Fatalf("login: %+v %v", r, got)
	}
	hd, _ := got.Get("HeaderDigest")
	dd, _ := got.Get("DataDigest")
	c.layout = pdu.Layout{HeaderDigest: hd == "CRC32C", DataDigest: dd == "CRC32C"}
}

// command sends a SCSI command and returns its tag.
func (c *client) command(p pdu.SCSICommand, put func(b []byte) int, immediate []byte) uint32 {
	c.itt++
	p.ITT, p.CmdSN, p.DataLen = c.itt, c.cmdSN, len(immediate)
	put(p.CDB[:])
	if !p.Immediate {
		c.cmdSN++
	}
	c.write(c.pdu(p.Put, immediate))
	return p.ITT
}

func (c *client) readCmd(lba uint64, blocks uint32) uint32 {
	return c.command(pdu.SCSICommand{Final: true, Read: true, EDTL: blocks * 512},
		func(b []byte) int { return scsi.PutRead16(b, lba, blocks, 0) }, nil)
}

// writeCmd sends a write with all its data immediate.
func (c *client) writeCmd(lba uint64, data []byte) uint32 {
	return c.command(pdu.SCSICommand{Final: true, Write: true, EDTL: uint32(len(data))},
		func(b []byte) int { return scsi.PutWrite16(b, lba, uint32(len(data)/512), 0) }, data)
}

// ask sends a command that returns parameter data.
func (c *client) ask(alloc uint32, put func(b []byte) int) ([]byte, *pdu.SCSIResponse) {
	c.t.Helper()
	return c.result(c.command(pdu.SCSICommand{Final: true, Read: true, EDTL: alloc}, put, nil))
}

// result reads a command's data and status.
func (c *client) result(itt uint32) (data []byte, r *pdu.SCSIResponse) {
	c.t.Helper()
	for {
		h, d := c.read()
		if pdu.ITT(h) != itt {
			c.t.Fatalf("an answer to %d, want %d", pdu.ITT(h), itt)
		}
		switch op, _ := pdu.Op(h); op {
		case pdu.OpDataIn:
			var p pdu.DataIn
			_ = p.Decode(h)
			if int(p.Offset) != len(data) {
				c.t.Fatalf("Data-In at %d, want %d", p.Offset, len(data))
			}
			data = append(data, d...)
			if p.HasStatus {
				return data, &pdu.SCSIResponse{Status: p.Status, Residual: p.Residual, Window: p.Window}
			}
		case pdu.OpSCSIResponse:
			r = &pdu.SCSIResponse{}
			_ = r.Decode(h)
			return append(data, pdu.Sense(d)...), r
		default:
			c.t.Fatalf("%v in a command", op)
		}
	}
}

// good reads a GOOD answer.
func (c *client) good(itt uint32) []byte {
	c.t.Helper()
	data, r := c.result(itt)
	if r.Status != scsi.StatusGood {
		s, _ := scsi.ParseSense(data)
		c.t.Fatalf("status %02x, sense %v", r.Status, s)
	}
	return data
}

// fails reads a CHECK CONDITION.
func (c *client) fails(itt uint32, want scsi.Sense) {
	c.t.Helper()
	data, r := c.result(itt)
	if s, _ := scsi.ParseSense(data); r.Status != scsi.StatusCheckCondition || s != want {
		c.t.Fatalf("status %02x, sense %v, want %v", r.Status, s, want)
	}
}

func (c *client) dataOut(itt, ttt, sn, off uint32, final bool, data []byte) {
	p := pdu.DataOut{Final: final, ITT: itt, TTT: ttt, DataSN: sn, Offset: off, DataLen: len(data)}
	c.write(c.pdu(p.Put, data))
}

func (c *client) r2t() (p pdu.R2T) {
	c.t.Helper()
	h, _ := c.read()
	if err := p.Decode(h); err != nil {
		c.t.Fatal(err)
	}
	return p
}

func (c *client) tmf(function uint8, ref uint32) uint8 {
	c.t.Helper()
	c.itt++
	p := pdu.TMFRequest{Immediate: true, Function: function, ITT: c.itt, RefTag: ref, CmdSN: c.cmdSN}
	c.write(c.pdu(p.Put, nil))
	var r pdu.TMFResponse
	h, _ := c.read()
	if err := r.Decode(h); err != nil {
		c.t.Fatal(err)
	}
	return r.Response
}

// block is n blocks filled with v.
func block(v byte, n int) []byte { return bytes.Repeat([]byte{v}, 512*n) }

// pattern is n bytes that differ.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := 0; i+8 <= n; i += 8 {
		binary.BigEndian.PutUint64(b[i:], uint64(i)*2654435761)
	}
	return b
}

var chap = auth.Credentials{User: "host", Secret: "a long secret", MutualUser: "target", MutualSecret: "another secret"}
