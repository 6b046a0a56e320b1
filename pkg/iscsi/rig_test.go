package iscsi

import (
	"bytes"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
)

// rig drives the machine without a socket: bytes in, bytes and completions out.
type rig struct {
	t    testing.TB
	s    *Session
	m    *machine
	now  int64
	sn   uint32 // StatSN the target uses next
	maxC uint32
	luns []*LUN
	sink []*recorder
}

// recorder is a sink that remembers.
type recorder struct {
	done     []*blk.Command
	batches  int
	evidence blk.Evidence
	seenAt   int // how many completions came before the evidence
	lost     [][]*blk.Command
	cause    error
	again    func(*blk.Command) // called in Complete
}

func (r *recorder) Complete(c *blk.Command) {
	r.done = append(r.done, c)
	if r.again != nil {
		r.again(c)
	}
}
func (r *recorder) BatchEnd(uint64) { r.batches++ }
func (r *recorder) Evidence(e blk.Evidence) {
	r.evidence |= e
	r.seenAt = len(r.done)
}
func (r *recorder) Lost(first *blk.Command, cause error) {
	var l []*blk.Command
	for c := first; c != nil; c = c.Next {
		l = append(l, c)
	}
	r.lost, r.cause = append(r.lost, l), cause
}

func defaultParams() Params {
	return Params{ImmediateData: true, InitialR2T: true, MaxRecv: 256 << 10, MaxSend: 64 << 10, MaxBurst: 256 << 10,
		FirstBurst: 64 << 10, MaxOutstandingR2T: 1}
}

func testProfile() *scsi.Profile {
	p := &scsi.Profile{}
	p.BlockSize, p.LastLBA, p.LBPME = 512, 1<<20, true
	p.LBPU, p.LBPWS = true, true
	p.Capacity.LBPRZ = true
	p.BlockLimits.MaxUnmap, p.MaxUnmapDescriptors = 1<<20, 1
	return p
}

// newRig makes a session with a shut-proof window of 1000 commands and one
// unit per depth.
func newRig(t testing.TB, p Params, depths ...int) *rig {
	t.Helper()
	cfg, err := Config{Portal: "192.0.2.1:3260", InitiatorName: "iqn.2001-04.com.example:i",
		TargetName: "iqn.2001-04.com.example:t"}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, s: &Session{cfg: cfg}, sn: 1, maxC: 1000}
	r.m = newMachine(p, pdu.Window{StatSN: 0, ExpCmdSN: 1, MaxCmdSN: r.maxC}, r.sn, cfg.QueueDepth, 1,
		func() int64 { r.now += 1000; return r.now })
	r.s.m = r.m
	if len(depths) == 0 {
		depths = []int{cfg.QueueDepth}
	}
	for i, d := range depths {
		sink := &recorder{}
		l := r.s.LUN(scsi.LUN(uint64(i+1)<<48), d, sink)
		l.SetProfile(testProfile())
		r.luns, r.sink = append(r.luns, l), append(r.sink, sink)
	}
	return r
}

func (r *rig) submit(cmds ...*blk.Command) {
	r.t.Helper()
	for _, c := range cmds {
		if !r.luns[0].Submit(c, 0) {
			r.t.Fatalf("%v was not taken", c.Op)
		}
	}
}

// sent is one PDU we sent.
type sent struct {
	op     pdu.Opcode
	header []byte
	data   []byte
}

func bytesOf(iov []unix.Iovec) []byte {
	var out []byte
	for _, v := range iov {
		out = append(out, unsafe.Slice(v.Base, v.Len)...)
	}
	return out
}

// take gathers and "sends" everything there is, and cuts it into PDUs.
func (r *rig) take() []sent {
	r.t.Helper()
	var stream []byte
	for iov := r.m.Gather(); len(iov) > 0; iov = r.m.Gather() {
		b := bytesOf(iov)
		stream = append(stream, b...)
		r.m.Accept(len(b))
	}
	return r.cut(stream)
}

func (r *rig) cut(stream []byte) []sent {
	r.t.Helper()
	var out []sent
	l := r.m.p.Layout
	for len(stream) > 0 {
		n := l.Size(stream)
		if n > len(stream) {
			r.t.Fatalf("a PDU of %d bytes is cut at %d", n, len(stream))
		}
		op, _ := pdu.Op(stream)
		start, dl := l.DataStart(0), pdu.DataLen(stream)
		data := stream[start : start+dl]
		if err := l.CheckHeader(stream); err != nil {
			r.t.Fatal(err)
		}
		if err := l.CheckTrailer(stream[start+dl:n], dl, pdu.CRC(0, data)); err != nil {
			r.t.Fatal(err)
		}
		out = append(out, sent{op, stream[:pdu.HeaderLen], data})
		stream = stream[n:]
	}
	return out
}

// window is what the target's next PDU says; status says it uses up a StatSN.
func (r *rig) window(status bool) pdu.Window {
	w := pdu.Window{StatSN: r.sn, ExpCmdSN: r.m.tx.cmdSN, MaxCmdSN: r.maxC}
	if status {
		r.sn++
	}
	return w
}

type putter interface{ Put([]byte) }

// bytesFor makes whole PDU bytes as a target sends them.
func bytesFor(l pdu.Layout, p putter, data []byte) []byte {
	b := make([]byte, l.DataStart(0)+len(data)+l.Trailer(len(data)))
	p.Put(b)
	b[5], b[6], b[7] = byte(len(data)>>16), byte(len(data)>>8), byte(len(data))
	l.PutHeaderDigest(b)
	copy(b[l.DataStart(0):], data)
	l.PutTrailer(b[l.DataStart(0)+len(data):], len(data), pdu.CRC(0, data))
	return b
}

func (r *rig) wire(p putter, data []byte) []byte { return bytesFor(r.m.p.Layout, p, data) }

// feed gives bytes to the receiver in pieces of the given sizes (the last
// repeats), as the reader does.
func (r *rig) feed(b []byte, sizes ...int) error {
	for i := 0; len(b) > 0; i++ {
		n := len(b)
		if len(sizes) > 0 {
			n = min(n, sizes[min(i, len(sizes)-1)])
		}
		a, c := r.m.In.Space()
		if len(a) == 0 {
			r.t.Fatal("no space to receive into")
		}
		k := copy(a, b[:n])
		k += copy(c, b[k:n])
		err := r.m.In.Fed(k)
		r.m.CompleteEarly()
		r.m.EndBatch()
		if err != nil {
			return err
		}
		b = b[k:]
	}
	return nil
}

func (r *rig) mustFeed(b []byte, sizes ...int) {
	r.t.Helper()
	if err := r.feed(b, sizes...); err != nil {
		r.t.Fatal(err)
	}
}

// good is a SCSI Response with GOOD status.
func (r *rig) good(itt uint32) []byte {
	return r.wire(&pdu.SCSIResponse{ITT: itt, Window: r.window(true)}, nil)
}

// check is a SCSI Response with CHECK CONDITION and sense.
func (r *rig) check(itt uint32, s scsi.Sense) []byte {
	b := s.AppendFixed([]byte{0, scsi.SenseLen})
	return r.wire(&pdu.SCSIResponse{ITT: itt, Status: scsi.StatusCheckCondition, Window: r.window(true)}, b)
}

// dataIn answers a read with PDUs of at most max bytes, status in the last.
func (r *rig) dataIn(itt uint32, data []byte, max int) []byte {
	var out []byte
	for off, sn := 0, uint32(0); off < len(data); sn++ {
		n := min(max, len(data)-off)
		last := off+n == len(data)
		out = append(out, r.wire(&pdu.DataIn{Final: last, HasStatus: last, ITT: itt, TTT: pdu.NoTag,
			Window: r.window(last), DataSN: sn, Offset: uint32(off)}, data[off:off+n])...)
		off += n
	}
	return out
}

func read(off, n int) *blk.Command {
	return &blk.Command{Op: blk.Read, Off: uint64(off), Len: uint32(n), Buf: make([]byte, n)}
}

func write(off, n int) *blk.Command {
	return &blk.Command{Op: blk.Write, Off: uint64(off), Len: uint32(n), Buf: pattern(n, byte(off>>9))}
}

func pattern(n int, seed byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7) + byte(i>>8) + seed
	}
	return b
}

// mustBe fails unless the commands given, and no others, completed in order
// with the class.
func (r *rig) mustBe(class blk.PathStatus, cmds ...*blk.Command) {
	r.t.Helper()
	if len(r.sink[0].done) != len(cmds) {
		r.t.Fatalf("%d commands completed, want %d", len(r.sink[0].done), len(cmds))
	}
	for i, c := range cmds {
		if r.sink[0].done[i] != c || c.Verdict.Class != class {
			r.t.Fatalf("completion %d: %v, want %v", i, r.sink[0].done[i].Verdict, class)
		}
	}
}

func equal(t testing.TB, what string, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Fatalf("%s differs", what)
	}
}
