package iscsi

import (
	"errors"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
)

func TestWhatATargetMustNotDoEndsTheSession(t *testing.T) {
	din := func(c *blk.Command, sn, off uint32, n int) func(*rig) []byte {
		return func(r *rig) []byte {
			return r.wire(&pdu.DataIn{ITT: c.Tag, TTT: pdu.NoTag, Window: r.window(false), DataSN: sn, Offset: off}, make([]byte, n))
		}
	}
	ask := func(c *blk.Command, ttt, sn, off, n uint32) func(*rig) []byte {
		return func(r *rig) []byte { return r.r2t(c.Tag, ttt, sn, off, n) }
	}
	rd, wr := read(0, 4096), write(8192, 300<<10) // 64 KiB of it immediate
	const asked = 64 << 10
	var first []byte // the header of the command sent first
	for name, bytes := range map[string]func(*rig) []byte{
		"data beyond the buffer":      din(rd, 0, 0, 4097),
		"data at an offset beyond":    din(rd, 0, 4096, 512),
		"data with a gap":             din(rd, 0, 512, 512),
		"data with a DataSN too high": din(rd, 1, 0, 512),
		"data for a write":            din(wr, 0, 0, 512),
		"R2T for a read":              ask(rd, 1, 0, 0, 512),
		"R2T without a tag":           ask(wr, pdu.NoTag, 0, asked, 512),
		"R2T of nothing":              ask(wr, 1, 0, asked, 0),
		"R2T beyond the buffer":       ask(wr, 1, 0, asked, 300<<10),
		"R2T above MaxBurst":          ask(wr, 1, 0, asked, 256<<10+1),
		"R2T again for the same":      ask(wr, 1, 0, 0, 512),
		"R2TSN too high":              ask(wr, 1, 1, asked, 512),
		"R2T wraps":                   ask(wr, 1, 0, asked, 0xfffffff0),
		"second R2T at once": func(r *rig) []byte {
			return append(r.r2t(wr.Tag, 1, 0, asked, 512), r.r2t(wr.Tag, 2, 1, asked+512, 512)...)
		},
		"a tag that cannot be": func(r *rig) []byte { return r.good(0xfff0) },
		"a response to no tag": func(r *rig) []byte { return r.good(pdu.NoTag) },
		"an oversized segment": func(r *rig) []byte {
			return r.wire(&pdu.NOPIn{ITT: pdu.NoTag, TTT: pdu.NoTag}, make([]byte, r.m.p.MaxRecv+1))
		},
		"a large segment with no text": func(r *rig) []byte { return r.wire(&pdu.NOPIn{ITT: pdu.NoTag, TTT: pdu.NoTag}, make([]byte, 200<<10)) },
		"a login response":             func(r *rig) []byte { return r.wire(&pdu.LoginResponse{}, nil) },
		"a request":                    func(r *rig) []byte { return r.wire(&pdu.NOPOut{}, nil) },
		"an unknown opcode":            func(r *rig) []byte { b := r.good(rd.Tag); b[0] = 0x3e; return b },
		"a rejected command":           func(r *rig) []byte { return r.wire(&pdu.Reject{Reason: 4}, first) },
		"a reject of nothing":          func(r *rig) []byte { return r.wire(&pdu.Reject{Reason: 4}, nil) },
		"an unknown event":             func(r *rig) []byte { return r.wire(&pdu.Async{Event: 17}, nil) },
		"a task answer to a command":   func(r *rig) []byte { return r.wire(&pdu.TMFResponse{ITT: rd.Tag}, nil) },
		"a ping answer to a command":   func(r *rig) []byte { return r.wire(&pdu.NOPIn{ITT: rd.Tag}, nil) },
		"text to a command":            func(r *rig) []byte { return r.wire(&pdu.TextResponse{ITT: rd.Tag}, nil) },
		"data without end": func(r *rig) (b []byte) {
			for i := range uint32(maxEmptyDataIn + 1) {
				b = append(b, din(rd, i, 0, 0)(r)...)
			}
			return b
		},
	} {
		r := newRig(t, defaultParams())
		r.submit(rd, wr)
		first = r.take()[0].header
		if err := r.feed(bytes(r), 1000); !errors.Is(err, ErrViolation) {
			t.Errorf("%s: %v", name, err)
		}
		if len(r.sink[0].done) != 0 {
			t.Errorf("%s: a command completed", name)
		}
	}
}

func TestADamagedDigestEndsTheSessionAndDeliversNothing(t *testing.T) {
	p := defaultParams()
	p.Layout = pdu.Layout{HeaderDigest: true, DataDigest: true}
	for _, n := range []int{512, 32 << 10} {
		for _, at := range []int{30, pdu.HeaderLen, pdu.HeaderLen + pdu.DigestLen, n, n + pdu.HeaderLen + pdu.DigestLen + 1} {
			r := newRig(t, p)
			c := read(0, n)
			r.submit(c)
			r.take()
			b := r.dataIn(c.Tag, pattern(n, 1), n)
			b[at] ^= 4
			if err := r.feed(b, 700); err == nil || len(r.sink[0].done) != 0 {
				t.Errorf("bit flipped in byte %d of %d unseen: %v", at, n, err)
			}
		}
	}
}

func TestStaleAnswersAreDroppedAndCounted(t *testing.T) {
	r := newRig(t, defaultParams())
	a := read(0, 512)
	r.submit(a)
	r.take()
	old := a.Tag
	r.mustFeed(r.dataIn(old, a.Buf, 512))
	b := read(0, 64<<10)
	r.submit(b)
	r.take()
	if b.Tag == old || b.Tag&0xffff != old&0xffff {
		t.Fatalf("tags %#x then %#x: the test wants the same tag, another generation", old, b.Tag)
	}
	// Stale data of any size is skipped, however it is cut.
	r.mustFeed(append(r.dataIn(old, make([]byte, 200<<10), 100<<10), r.good(old)...), 7777)
	r.mustFeed(r.r2t(old, 1, 0, 0, 512))
	if n := r.m.Tasks.Stale.Load(); n != 4 {
		t.Errorf("%d stale, want 4", n)
	}
	want := pattern(64<<10, 5)
	r.mustFeed(r.dataIn(b.Tag, want, 8192))
	r.mustBe(blk.Good, a, b)
	equal(t, "the data", b.Buf, want)
}

func TestAnAdditionalHeaderIsSkipped(t *testing.T) {
	r := newRig(t, defaultParams())
	c := read(0, 512)
	r.submit(c)
	r.take()
	b := r.dataIn(c.Tag, pattern(512, 1), 512)
	b[4] = 255
	b = append(append(append([]byte(nil), b[:48]...), make([]byte, 1020)...), b[48:]...)
	r.mustFeed(b, 100)
	r.mustBe(blk.Good, c)
}

func TestAsynchronousEventsReachTheUnit(t *testing.T) {
	r := newRig(t, defaultParams(), 4, 4)
	s := scsi.Sense{Key: scsi.KeyUnitAttention, ASC: 0x3f, ASCQ: 0x0e}.AppendFixed([]byte{0, scsi.SenseLen})
	r.mustFeed(r.wire(&pdu.Async{LUN: 2 << 48, Event: pdu.AsyncSCSI, Window: r.window(true)}, s))
	if r.sink[0].evidence != 0 || r.sink[1].evidence&blk.IdentityChanged == 0 {
		t.Errorf("evidence %v and %v", r.sink[0].evidence, r.sink[1].evidence)
	}
	if err := r.feed(r.wire(&pdu.Async{Event: pdu.AsyncDropAll, Window: r.window(true)}, nil)); !errors.Is(err, ErrLogoutRequested) {
		t.Error(err)
	}
}

func TestALogoutRequestClosesTheUnitsToNewCommands(t *testing.T) {
	for _, event := range []uint8{pdu.AsyncLogout, pdu.AsyncRenegotiate} {
		r := newRig(t, defaultParams())
		c := read(0, 512)
		r.submit(c)
		r.take()
		r.mustFeed(r.wire(&pdu.Async{Event: event, Param3: 5, Window: r.window(true)}, nil))
		if r.luns[0].Submit(read(0, 512), 0) {
			t.Error("took a new command")
		}
		r.mustFeed(r.dataIn(c.Tag, c.Buf, 512))
		r.mustBe(blk.Good, c)
		if r.m.leaving.Load() == 0 {
			t.Error("the session goes on for ever")
		}
	}
}

func TestAUnitWhoseIdentityIsInQuestionSendsNothingUntilResume(t *testing.T) {
	p := defaultParams()
	p.ImmediateData = false
	r := newRig(t, p, 8, 8)
	probe, wr, other := read(0, 512), write(4096, 128<<10), read(0, 512)
	r.submit(probe, wr)
	r.take()
	r.mustFeed(append(r.r2t(wr.Tag, 1, 0, 0, 128<<10), r.check(probe.Tag, scsi.Sense{Key: scsi.KeyUnitAttention, ASC: 0x3f, ASCQ: 0x0e})...))
	late := read(512, 512)
	r.submit(late)
	r.luns[1].Submit(other, 0)
	for _, q := range r.take() {
		var h pdu.SCSICommand
		if h.Decode(q.header) != nil || h.LUN != 2<<48 {
			t.Fatalf("sent %v to the unit in question", q.op)
		}
	}
	r.luns[0].gate.Open(r.luns[0].Gate()) // Resume, without its kick
	r.m.Unpark()
	if !r.m.Ready() {
		t.Fatal("nothing to send after Resume")
	}
	if out := r.take(); len(out) != 3 || out[0].op != pdu.OpDataOut || out[2].op != pdu.OpSCSICommand {
		t.Fatalf("%d PDUs after Resume", len(out))
	}
	r.luns[0].gate.Doubt()
	r.submit(read(1024, 512))
	r.take()
	r.m.lose(*r.m.luns.Load(), errTest)
	if got := r.sink[0].lost[0]; len(got) != 3 || got[0] != wr || got[1] != late || got[2].Sent {
		t.Fatalf("%d lost", len(got))
	}
}
