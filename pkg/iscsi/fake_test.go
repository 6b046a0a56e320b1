package iscsi

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
)

// fake is a target of a few lines on a real socket, one PDU at a time. Tests
// replace what it does with a command.
type fake struct {
	t      testing.TB
	l      net.Listener
	mem    []byte
	keys   string // of its operational answer
	handle func(c *fakeConn, h *pdu.SCSICommand, data []byte) bool
	text   func(c *fakeConn, h *pdu.TextRequest, data []byte)
	other  func(c *fakeConn, op pdu.Opcode, header []byte) bool
	mu     sync.Mutex // handlers run one at a time
}

type fakeConn struct {
	net.Conn
	f     *fake
	sn    uint32
	exp   uint32
	sent  map[uint32][]byte // write data by ITT
	cmds  map[uint32]*pdu.SCSICommand
	ended bool
}

func newFake(t testing.TB) *fake {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{t: t, l: l, mem: make([]byte, 16<<20), keys: usual}
	var wg sync.WaitGroup
	wg.Add(1)
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		defer wg.Done()
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			context.AfterFunc(ctx, func() { c.Close() })
			wg.Add(1)
			go func() { defer wg.Done(); defer c.Close(); f.serve(c) }()
		}
	}()
	t.Cleanup(func() { l.Close(); stop(); wg.Wait() })
	return f
}

func (f *fake) config() Config {
	return Config{Portal: f.l.Addr().String(), InitiatorName: "iqn.2001-04.com.example:i", TargetName: "iqn.2001-04.com.example:t"}
}

func (f *fake) serve(conn net.Conn) {
	c := &fakeConn{Conn: conn, f: f, sn: 1, exp: 1, sent: map[uint32][]byte{}, cmds: map[uint32]*pdu.SCSICommand{}}
	for !c.ended {
		header, data, err := readPDU(conn, 1<<24)
		if err != nil {
			return
		}
		f.mu.Lock()
		c.take(header, data)
		f.mu.Unlock()
	}
}

func (c *fakeConn) window(status bool) pdu.Window {
	w := pdu.Window{StatSN: c.sn, ExpCmdSN: c.exp, MaxCmdSN: c.exp + 256}
	if status {
		c.sn++
	}
	return w
}

func (c *fakeConn) send(p putter, data []byte) { _, _ = c.Write(bytesFor(pdu.Layout{}, p, data)) }

func (c *fakeConn) take(header, data []byte) {
	op, immediate := pdu.Op(header)
	if c.f.other != nil && c.f.other(c, op, header) {
		return
	}
	switch op {
	case pdu.OpLoginRequest:
		c.login(header)
	case pdu.OpSCSICommand:
		h := new(pdu.SCSICommand)
		_ = h.Decode(header)
		if !immediate {
			c.exp++
		}
		c.cmds[h.ITT] = h
		c.sent[h.ITT] = data
		if c.f.handle != nil && c.f.handle(c, h, data) {
			return
		}
		c.step(h)
	case pdu.OpDataOut:
		var d pdu.DataOut
		_ = d.Decode(header)
		c.sent[d.ITT] = append(c.sent[d.ITT], data...)
		if d.Final {
			c.step(c.cmds[d.ITT])
		}
	case pdu.OpNOPOut:
		if itt := pdu.ITT(header); itt != pdu.NoTag {
			c.send(&pdu.NOPIn{ITT: itt, TTT: pdu.NoTag, Window: c.window(true)}, nil)
		}
	case pdu.OpTMFRequest:
		c.send(&pdu.TMFResponse{ITT: pdu.ITT(header), Window: c.window(true)}, nil)
	case pdu.OpTextRequest:
		var h pdu.TextRequest
		_ = h.Decode(header)
		c.f.text(c, &h, data)
	case pdu.OpLogoutRequest:
		c.send(&pdu.LogoutResponse{ITT: pdu.ITT(header), Window: c.window(true)}, nil)
	}
}

func (c *fakeConn) login(header []byte) {
	var q pdu.LoginRequest
	_ = q.Decode(header)
	r := pdu.LoginResponse{Transit: true, CSG: q.CSG, NSG: q.NSG, ISID: q.ISID, Window: c.window(true)}
	text := "AuthMethod=None TargetPortalGroupTag=1"
	if q.CSG == pdu.StageOperational {
		text, r.TSIH = c.f.keys, 1
	}
	c.send(&r, segment(text))
}

// step asks for the rest of a write, or ends the command.
func (c *fakeConn) step(h *pdu.SCSICommand) {
	if have := uint32(len(c.sent[h.ITT])); h.Write && have < h.EDTL {
		if !h.Final && have == uint32(h.DataLen) {
			return // unsolicited data comes
		}
		c.send(&pdu.R2T{ITT: h.ITT, TTT: 1 + have, Window: c.window(false), Offset: have, Length: min(h.EDTL-have, 256<<10),
			R2TSN: c.asked(h, have)}, nil)
		return
	}
	d, _, ok := scsi.DecodeCDB(h.CDB[:])
	switch {
	case !ok:
		s := scsi.SenseInvalidOpcode.AppendFixed([]byte{0, scsi.SenseLen})
		c.send(&pdu.SCSIResponse{ITT: h.ITT, Status: scsi.StatusCheckCondition, Window: c.window(true)}, s)
		return
	case h.Read && (d.Op == scsi.OpRead10 || d.Op == scsi.OpRead16):
		c.data(h, c.f.mem[d.LBA*512:][:h.EDTL])
		return
	case h.Write && (d.Op == scsi.OpWrite10 || d.Op == scsi.OpWrite16):
		copy(c.f.mem[d.LBA*512:], c.sent[h.ITT])
	}
	c.send(&pdu.SCSIResponse{ITT: h.ITT, Window: c.window(true)}, nil)
}

func (c *fakeConn) asked(h *pdu.SCSICommand, have uint32) uint32 {
	first := uint32(0)
	if !h.Final {
		first = 65536 // FirstBurstLength
	} else {
		first = uint32(h.DataLen)
	}
	return (have - first) / (256 << 10)
}

// data answers a read; what is missing to EDTL is a residual.
func (c *fakeConn) data(h *pdu.SCSICommand, b []byte) {
	b = b[:min(len(b), int(h.EDTL))]
	d := pdu.DataIn{ITT: h.ITT, TTT: pdu.NoTag}
	for first := true; first || len(b) > 0; first = false {
		n := min(len(b), 100<<10)
		d.Final, d.HasStatus, d.Window = n == len(b), n == len(b), c.window(n == len(b))
		if left := h.EDTL - d.Offset - uint32(n); d.HasStatus && left > 0 {
			d.Residual = pdu.Residual{Underflow: true, Count: left}
		}
		c.send(&d, b[:n])
		b = b[n:]
		d.DataSN++
		d.Offset += uint32(n)
	}
}

// patience bounds what must come in the end, on however slow a machine.
const patience = time.Minute

func testCtx(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func (f *fake) dial(cfg Config) *Session {
	f.t.Helper()
	s, err := Dial(testCtx(f.t), cfg)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { s.Abort(io.EOF); <-s.Done() })
	return s
}

// waiter is a sink for tests that wait for each command.
type waiter struct {
	done chan *blk.Command
	lost chan []*blk.Command
	// onLost is called first in Lost.
	onLost func()
}

func newWaiter() *waiter {
	return &waiter{done: make(chan *blk.Command, 4096), lost: make(chan []*blk.Command, 4)}
}

func (w *waiter) Complete(c *blk.Command) { w.done <- c }
func (w *waiter) BatchEnd(uint64)         {}
func (w *waiter) Evidence(blk.Evidence)   {}
func (w *waiter) Lost(first *blk.Command, _ error) {
	if w.onLost != nil {
		w.onLost()
	}
	var l []*blk.Command
	for c := first; c != nil; c = c.Next {
		l = append(l, c)
	}
	w.lost <- l
}

// do runs commands to their end and wants them good.
func do(t testing.TB, l *LUN, w *waiter, cmds ...*blk.Command) {
	t.Helper()
	sent, back := 0, 0
	for back < len(cmds) {
		for sent < len(cmds) && l.Submit(cmds[sent], 0) {
			sent++
		}
		l.Kick(0)
		select {
		case c := <-w.done:
			back++
			if c.Verdict.Class != blk.Good {
				t.Fatalf("%v of %d bytes at %d: %v", c.Op, c.Len, c.Off, c.Verdict)
			}
		case <-w.lost:
			t.Fatalf("session lost: %v", l.s.Err())
		case <-time.After(patience):
			t.Fatalf("%d of %d commands came back", back, len(cmds))
		}
	}
}

var errTest = errors.New("the test ends it")
