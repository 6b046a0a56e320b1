package nvmetcp

import (
	"bytes"
	"errors"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	"github.com/csi-mpath/csi-mpath/pkg/nvmetcp/pdu"
)

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
