package nvmetcp

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	"github.com/csi-mpath/csi-mpath/pkg/nvmetcp/pdu"
)

// rig drives the codec of one I/O queue without a socket: bytes in, bytes and
// completions out.
type rig struct {
	t    testing.TB
	q    *queue
	n    *Namespace
	sink *recorder
}

// recorder is a sink that remembers.
type recorder struct {
	done     []*blk.Command
	evidence blk.Evidence
	lost     []*blk.Command
}

func (r *recorder) Complete(c *blk.Command) { r.done = append(r.done, c) }
func (r *recorder) BatchEnd(uint64)         {}
func (r *recorder) Evidence(e blk.Evidence) { r.evidence |= e }
func (r *recorder) Lost(first *blk.Command, _ error) {
	for c := first; c != nil; c = c.Next {
		r.lost = append(r.lost, c)
	}
}

func testProfile() *nvme.Profile {
	p := &nvme.Profile{NSID: 1, State: nvme.Optimized}
	p.ONCS = nvme.ONCSDataset | nvme.ONCSWriteZeroes
	p.Namespace = nvme.Namespace{Size: 1 << 20, BlockShift: 9}
	return p
}

// newRig makes a queue whose capsules hold 4 KiB, with 32 KiB in each H2CData.
func newRig(t testing.TB, l pdu.Layout) *rig {
	t.Helper()
	c := newController(Config{Portal: "192.0.2.1:4420", Subsystem: someSubsystem})
	q := newQueue(c, shape{id: 1, depth: 64, controls: 4, capsule: 4096}, 32<<10, l, l, c.clock)
	c.queues = []*queue{q}
	r := &rig{t: t, q: q, sink: &recorder{}}
	r.n = c.Namespace(1, 64, r.sink)
	r.n.SetProfile(testProfile())
	return r
}

func (r *rig) submit(cmds ...*blk.Command) {
	r.t.Helper()
	for _, c := range cmds {
		if !r.n.Submit(c, 0) {
			r.t.Fatalf("%v was not taken", c.Op)
		}
	}
}

func bytesOf(iov []unix.Iovec) []byte {
	var out []byte
	for _, v := range iov {
		out = append(out, unsafe.Slice(v.Base, v.Len)...)
	}
	return out
}

// sent is one PDU of ours.
type sent struct {
	pdu.Header
	b []byte
}

// take gathers and "sends" everything there is, and cuts it into PDUs.
func (r *rig) take() (out []sent) {
	r.t.Helper()
	var b []byte
	for iov := r.q.Gather(); len(iov) > 0; iov = r.q.Gather() {
		p := bytesOf(iov)
		b = append(b, p...)
		r.q.Accept(len(p))
	}
	for len(b) > 0 {
		h, more, err := r.q.send.Open(b)
		if err != nil || more > 0 || len(b) < h.Size {
			r.t.Fatalf("%+v of %d bytes: %v", h, len(b), err)
		}
		if err := r.q.send.CheckTrailer(b[h.DataOff+h.Data:], h.Data, pdu.CRC(0, b[h.DataOff:h.DataOff+h.Data])); err != nil {
			r.t.Fatal(err)
		}
		out = append(out, sent{h, b[:h.Size]})
		b = b[h.Size:]
	}
	return out
}

// feed gives bytes to the receiver in pieces of n bytes, as the reader does.
func (r *rig) feed(b []byte, n int) error {
	for len(b) > 0 {
		x, y := r.q.In.Space()
		k := copy(x, b[:min(n, len(b))])
		k += copy(y, b[k:min(n, len(b))])
		err := r.q.In.Fed(k)
		r.q.CompleteEarly()
		r.q.EndBatch()
		if err != nil {
			return err
		}
		b = b[k:]
	}
	return nil
}

func (r *rig) mustFeed(b []byte) {
	r.t.Helper()
	if err := r.feed(b, 1<<20); err != nil {
		r.t.Fatal(err)
	}
}

// response is a response capsule.
func (r *rig) response(tag uint32, st nvme.Status) []byte {
	b := make([]byte, pdu.MaxHeader)
	c := nvme.Completion{CID: uint16(tag), Status: st}
	c.Put(pdu.ResponseSpace(b))
	return b[:r.q.recv.PutCapsuleResp(b)]
}

func (r *rig) c2h(d pdu.Data, payload []byte) []byte {
	b := make([]byte, pdu.MaxHeader+len(payload)+pdu.DigestLen)
	d.Len = uint32(len(payload))
	n := d.PutC2H(b, r.q.recv)
	n += copy(b[n:], payload)
	return b[:n+r.q.recv.PutTrailer(b[n:], len(payload), pdu.CRC(0, payload))]
}

func (r *rig) r2t(tag uint32, ttag uint16, off, n uint32) []byte {
	b := make([]byte, pdu.MaxHeader)
	p := pdu.R2T{CID: uint16(tag), Tag: ttag, Offset: off, Len: n}
	return b[:p.Put(b, r.q.recv)]
}

// layouts are what connections may agree on.
func layouts() map[string]pdu.Layout {
	return map[string]pdu.Layout{"plain": {}, "digests": {HeaderDigest: true, DataDigest: true}, "data digest, aligned": {DataDigest: true, Align: 31}}
}

func TestAStreamCutAtEveryByteEndsTheSame(t *testing.T) {
	for name, l := range layouts() {
		script := func(cut int) (got []byte) {
			r := newRig(t, l)
			a, b, w := newRead(0, 3000/512*512), newRead(8192, 512), newWrite(0, pattern(8192, 7))
			b.Vec, b.Buf = [][]byte{b.Buf[:100], b.Buf[100:]}, nil
			r.submit(a, b, w)
			r.take()
			want := pattern(int(a.Len), 1)
			stream := r.c2h(pdu.Data{CID: uint16(a.Tag)}, want[:1000])
			stream = append(stream, r.c2h(pdu.Data{CID: uint16(b.Tag), Last: true, Success: true}, pattern(512, 2))...)
			stream = append(stream, r.r2t(w.Tag, 9, 0, 8192)...)
			stream = append(stream, r.c2h(pdu.Data{CID: uint16(a.Tag), Offset: 1000, Last: true}, want[1000:])...)
			stream = append(stream, r.response(a.Tag, nvme.Success)...)
			if cut > len(stream) {
				return nil
			}
			for _, part := range [][]byte{stream[:cut], stream[cut:]} {
				if err := r.feed(part, 1<<20); err != nil {
					t.Fatalf("%s, cut at %d: %v", name, cut, err)
				}
			}
			for _, p := range r.take() {
				got = append(got, p.b...)
			}
			r.mustFeed(r.response(w.Tag, nvme.Success))
			for _, c := range []*blk.Command{a, b, w} {
				got = append(got, byte(c.Verdict.Class))
			}
			if len(r.sink.done) != 3 || r.n.Inflight() != 0 {
				t.Fatalf("%s, cut at %d: %d completions", name, cut, len(r.sink.done))
			}
			return append(append(append(got, a.Buf...), b.Vec[0]...), b.Vec[1]...)
		}
		want := script(0)
		for cut := 1; ; cut++ {
			got := script(cut)
			if got == nil {
				break
			}
			if !bytes.Equal(got, want) {
				t.Fatalf("%s: cut at %d it ends otherwise", name, cut)
			}
		}
	}
}

func TestWhatTheControllerMustNotSendEndsTheController(t *testing.T) {
	for name, f := range map[string]func(r *rig, rd, wr *blk.Command) []byte{
		"data for a write": func(r *rig, _, w *blk.Command) []byte { return r.c2h(pdu.Data{CID: uint16(w.Tag)}, make([]byte, 512)) },
		"data out of order": func(r *rig, c, _ *blk.Command) []byte {
			return r.c2h(pdu.Data{CID: uint16(c.Tag), Offset: 512}, make([]byte, 512))
		},
		"too much data": func(r *rig, c, _ *blk.Command) []byte { return r.c2h(pdu.Data{CID: uint16(c.Tag)}, make([]byte, 8192)) },
		"data behind the last": func(r *rig, c, _ *blk.Command) []byte {
			return append(r.c2h(pdu.Data{CID: uint16(c.Tag), Last: true}, make([]byte, 512)), r.c2h(pdu.Data{CID: uint16(c.Tag), Offset: 512}, make([]byte, 512))...)
		},
		"success with less":        func(r *rig, c, _ *blk.Command) []byte { return r.response(c.Tag, nvme.Success) },
		"a write that nobody sent": func(r *rig, _, w *blk.Command) []byte { return r.response(w.Tag, nvme.Success) },
		"an answer to nothing":     func(r *rig, c, _ *blk.Command) []byte { return r.response(c.Tag^0x8000, nvme.Success) },
		"an answer twice": func(r *rig, c, _ *blk.Command) []byte {
			return append(r.response(c.Tag, nvme.InternalError), r.response(c.Tag, nvme.InternalError)...)
		},
		"R2T for a read": func(r *rig, c, _ *blk.Command) []byte { return r.r2t(c.Tag, 1, 0, 512) },
		"R2T beyond":     func(r *rig, _, w *blk.Command) []byte { return r.r2t(w.Tag, 1, 0, 64<<10+4) },
		"R2T with a gap": func(r *rig, _, w *blk.Command) []byte { return r.r2t(w.Tag, 1, 512, 512) },
		"R2T while one is open": func(r *rig, _, w *blk.Command) []byte {
			return append(r.r2t(w.Tag, 1, 0, 4096), r.r2t(w.Tag, 2, 4096, 4096)...)
		},
		"ICResp again": func(*rig, *blk.Command, *blk.Command) []byte {
			b := make([]byte, pdu.InitLen)
			(&pdu.ICResp{MaxH2CData: 4096}).Put(b)
			return b
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, pdu.Layout{})
			rd, wr := newRead(0, 4096), newWrite(0, pattern(64<<10, 7))
			r.submit(rd, wr)
			r.take()
			if err := r.feed(f(r, rd, wr), 1<<20); !errors.Is(err, ErrViolation) {
				t.Fatalf("%v", err)
			}
		})
	}
}

func TestATerminateRequestIsTold(t *testing.T) {
	r := newRig(t, pdu.Layout{})
	req := pdu.TermReq{FromController: true, Status: pdu.TransferLimit, Offender: make([]byte, 24)}
	if err := r.feed(req.Append(nil), 7); !errors.Is(err, ErrTerminated) {
		t.Fatalf("%v", err)
	}
}

func TestATagIsNotUsedAgainBeforeItsAnswer(t *testing.T) {
	r := newRig(t, pdu.Layout{})
	open := map[uint32]*blk.Command{}
	for range 2000 {
		for c := newRead(0, 512); r.n.Submit(c, 0); c = newRead(0, 512) {
			if id := c.Tag; open[id] != nil || id == 0 || id >= 0xFFFF {
				t.Fatalf("CID %#x", id)
			}
			open[c.Tag] = c
		}
		if len(open) > 64 {
			t.Fatalf("%d commands on a queue of 64", len(open))
		}
		r.take()
		for id := range open { // one of them
			r.mustFeed(r.c2h(pdu.Data{CID: uint16(id), Last: true, Success: true}, make([]byte, 512)))
			delete(open, id)
			break
		}
	}
}

func TestAWrongDataDigestFailsTheCommandAlone(t *testing.T) {
	r := newRig(t, pdu.Layout{DataDigest: true})
	a, b := newRead(0, 512), newRead(512, 512)
	r.submit(a, b)
	r.take()
	bad := r.c2h(pdu.Data{CID: uint16(a.Tag), Last: true, Success: true}, make([]byte, 512))
	bad[len(bad)-5] ^= 1
	r.mustFeed(append(bad, r.c2h(pdu.Data{CID: uint16(b.Tag), Last: true, Success: true}, make([]byte, 512))...))
	if len(r.sink.done) != 2 || a.Verdict.Class != blk.Retry || b.Verdict.Class != blk.Good {
		t.Errorf("%v, %v", a.Verdict, b.Verdict)
	}
}

func TestNothingIsSentAfterEvidenceAgainstTheIdentity(t *testing.T) {
	r := newRig(t, pdu.Layout{})
	a, w := newRead(0, 512), newWrite(0, pattern(64<<10, 7))
	r.submit(a, w)
	r.take()
	r.mustFeed(append(r.r2t(w.Tag, 1, 0, 64<<10), r.response(a.Tag, nvme.InvalidNamespace)...))
	late := newRead(512, 512)
	r.submit(late)
	if out := r.take(); len(out) != 0 || r.sink.evidence&blk.IdentityChanged == 0 {
		t.Fatalf("%d PDUs sent, evidence %v", len(out), r.sink.evidence)
	}
	r.n.gate.Open(r.n.Gate())
	r.q.Unpark()
	if out := r.take(); len(out) != 3 || out[0].Type != pdu.TypeH2CData || out[2].Type != pdu.TypeCapsuleCmd {
		t.Fatalf("%d PDUs after Resume", len(out))
	}
}

func TestASteadyStateAllocatesNothing(t *testing.T) {
	for name, l := range layouts() {
		r := newRig(t, l)
		r.sink.done = make([]*blk.Command, 0, 64)
		rd, wr, big := newRead(0, 4096), newWrite(0, pattern(4096, 7)), newWrite(8192, pattern(64<<10, 7))
		var stream []byte
		round := func() {
			r.sink.done = r.sink.done[:0]
			r.n.Submit(rd, 0)
			r.n.Submit(wr, 0)
			r.n.Submit(big, 0)
			drain(r.q)
			stream = stream[:4096+3*pdu.MaxHeader]
			n := putAnswers(r.q, stream, rd, wr, big)
			for s := stream[:n]; len(s) > 0; {
				x, y := r.q.In.Space()
				k := copy(x, s)
				k += copy(y, s[k:])
				if err := r.q.In.Fed(k); err != nil {
					t.Fatal(err)
				}
				s = s[k:]
			}
			drain(r.q)
			n = putResponse(r.q, stream, big)
			x, _ := r.q.In.Space()
			_ = r.q.In.Fed(copy(x, stream[:n]))
			r.q.EndBatch()
			if len(r.sink.done) != 3 {
				t.Fatalf("%d of 3 done", len(r.sink.done))
			}
		}
		stream = make([]byte, 4096+3*pdu.MaxHeader)
		round()
		for range 100 { // every tag has what it needs once
			round()
		}
		if n := testing.AllocsPerRun(200, round); n >= 1 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func drain(q *queue) {
	for iov := q.Gather(); len(iov) > 0; iov = q.Gather() {
		n := 0
		for i := range iov {
			n += int(iov[i].Len)
		}
		q.Accept(n)
	}
}

// putAnswers answers a read and a write of 4 KiB, and asks for a large write.
func putAnswers(q *queue, b []byte, rd, wr, big *blk.Command) int {
	d := pdu.Data{CID: uint16(rd.Tag), Len: 4096, Last: true, Success: true}
	n := d.PutC2H(b, q.recv)
	n += copy(b[n:], wr.Buf)
	n += q.recv.PutTrailer(b[n:], 4096, pdu.CRC(0, wr.Buf))
	n += putResponse(q, b[n:], wr)
	p := pdu.R2T{CID: uint16(big.Tag), Len: big.Len}
	return n + p.Put(b[n:], q.recv)
}

func putResponse(q *queue, b []byte, c *blk.Command) int {
	a := nvme.Completion{CID: uint16(c.Tag)}
	a.Put(pdu.ResponseSpace(b))
	return q.recv.PutCapsuleResp(b)
}

func FuzzQueue(f *testing.F) {
	r := newRig(f, pdu.Layout{})
	a, w := newRead(0, 4096), newWrite(0, pattern(64<<10, 7))
	r.submit(a, w)
	for _, b := range [][]byte{r.c2h(pdu.Data{CID: uint16(a.Tag), Last: true, Success: true}, make([]byte, 4096)),
		r.r2t(w.Tag, 1, 0, 64<<10), r.response(w.Tag, nvme.ANAInaccessible), r.response(a.Tag, nvme.Success)} {
		f.Add(b, byte(0), uint16(len(b)))
		f.Add(b, byte(3), uint16(5))
	}
	f.Fuzz(func(t *testing.T, b []byte, kind byte, cut uint16) {
		l := pdu.Layout{HeaderDigest: kind&1 != 0, DataDigest: kind&2 != 0, Align: kind >> 3}
		var outcome [2]string
		for i, n := range []int{len(b), int(cut) + 1} {
			r := newRig(t, l)
			cmds := []*blk.Command{newRead(0, 4096), newWrite(0, pattern(64<<10, 7)), {Op: blk.Trim, Len: 512}, newRead(0, 512)}
			r.submit(cmds...)
			r.take()
			err := r.feed(b, max(n, 1))
			if err == nil {
				drain(r.q)
				r.q.CompleteEarly()
			}
			r.n.shut()
			r.n.lost(ErrViolation)
			if len(r.sink.done)+len(r.sink.lost) != len(cmds) || r.n.Inflight() != 0 {
				t.Fatalf("%d completed, %d lost", len(r.sink.done), len(r.sink.lost))
			}
			outcome[i] = fmt.Sprint(err)
			for _, c := range cmds {
				outcome[i] += fmt.Sprint(c.Verdict, c.Moved)
			}
		}
		if outcome[0] != outcome[1] {
			t.Fatalf("whole: %s\npieces of %d: %s", outcome[0], int(cut)+1, outcome[1])
		}
	})
}

func FuzzGreeting(f *testing.F) {
	b := make([]byte, pdu.InitLen)
	(&pdu.ICResp{MaxH2CData: 4096}).Put(b)
	f.Add(b)
	f.Add((&pdu.TermReq{FromController: true, Status: 1}).Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		host, controller := newPair()
		defer host.Close()
		_, _ = controller.Write(b)
		_ = controller.Close()
		resp, err := greet(host, &pdu.ICReq{MaxR2T: 1})
		if err == nil && (resp.MaxH2CData < 4096 || resp.MaxH2CData%4 != 0) {
			t.Fatalf("%+v", resp)
		}
	})
}
