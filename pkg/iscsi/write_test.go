package iscsi

import (
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
)

// r2t asks for data.
func (r *rig) r2t(itt, ttt, sn, off, n uint32) []byte {
	return r.wire(&pdu.R2T{ITT: itt, TTT: ttt, Window: r.window(false), R2TSN: sn, Offset: off, Length: n}, nil)
}

// collect puts the payload of a write together and checks the sequences:
// DataSN from 0 and F on the last of each, no PDU above MaxSend.
func (r *rig) collect(dst []byte, out []sent) (moved int) {
	r.t.Helper()
	next := map[uint32]uint32{}
	final := map[uint32]bool{}
	for _, p := range out {
		off := 0
		switch p.op {
		case pdu.OpSCSICommand:
		case pdu.OpDataOut:
			var d pdu.DataOut
			if err := d.Decode(p.header); err != nil {
				r.t.Fatal(err)
			}
			if d.DataSN != next[d.TTT] || final[d.TTT] || uint32(len(p.data)) > r.m.p.MaxSend {
				r.t.Fatalf("Data-Out %+v, %d bytes; expected DataSN %d", d, len(p.data), next[d.TTT])
			}
			next[d.TTT]++
			final[d.TTT] = d.Final
			off = int(d.Offset)
		default:
			r.t.Fatalf("sent %v", p.op)
		}
		moved += copy(dst[off:], p.data)
	}
	for ttt, f := range final {
		if !f {
			r.t.Fatalf("sequence %#x has no end", ttt)
		}
	}
	return moved
}

func TestUnsolicitedDataStaysWithinFirstBurst(t *testing.T) {
	for name, c := range map[string]struct {
		noImmediate, initialR2T bool
		size, want              int
		final                   bool
	}{
		"both":           {false, false, 128 << 10, 64 << 10, false},
		"immediate only": {false, true, 128 << 10, 8192, true},
		"neither":        {true, true, 128 << 10, 0, true},
		"unsolicited":    {true, false, 128 << 10, 64 << 10, false},
		"small":          {false, false, 4096, 4096, true},
		"small, no":      {true, true, 4096, 0, true},
	} {
		for _, l := range layouts {
			p := defaultParams()
			p.Layout, p.MaxSend = l, 8192
			p.ImmediateData, p.InitialR2T = !c.noImmediate, c.initialR2T
			r := newRig(t, p)
			w := write(0, c.size)
			r.submit(w)
			out := r.take()
			got := make([]byte, c.size)
			if n := r.collect(got, out); n != c.want {
				t.Errorf("%s: %d bytes unasked, want %d", name, n, c.want)
			}
			equal(t, name, got[:c.want], w.Buf[:c.want])
			var h pdu.SCSICommand
			if h.Decode(out[0].header) != nil || h.Final != c.final || h.EDTL != uint32(c.size) {
				t.Errorf("%s: %+v", name, h)
			}
		}
	}
}

func TestDataSNRestartsWithEachR2T(t *testing.T) {
	p := defaultParams()
	p.ImmediateData, p.MaxOutstandingR2T = false, 4
	r := newRig(t, p)
	w := write(0, 1<<20)
	r.submit(w)
	r.take()
	var asks []byte
	for i := range uint32(4) {
		asks = append(asks, r.r2t(w.Tag, 100+i, i, i<<18, 1<<18)...)
	}
	r.mustFeed(asks, 17)
	got := make([]byte, 1<<20)
	if n := r.collect(got, r.take()); n != 1<<20 {
		t.Fatalf("%d bytes", n)
	}
	equal(t, "the data", got, w.Buf)
	r.mustFeed(r.good(w.Tag))
	r.mustBe(blk.Good, w)
}

func TestR2TsOfOddLengthArePaddedEach(t *testing.T) {
	for _, l := range layouts {
		p := defaultParams()
		p.Layout, p.ImmediateData = l, false
		r := newRig(t, p)
		w := write(0, 4096)
		r.submit(w)
		r.take()
		got := make([]byte, 4096)
		for i, c := range [][2]uint32{{0, 1001}, {1001, 3}, {1004, 3092}} {
			r.mustFeed(r.r2t(w.Tag, uint32(i), uint32(i), c[0], c[1]))
			if n := r.collect(got, r.take()); n != int(c[1]) {
				t.Fatalf("%d bytes for %v", n, c)
			}
		}
		equal(t, "the data", got, w.Buf)
	}
}

func TestAWriteCalledGoodBeforeItWasAskedForEndsTheSession(t *testing.T) {
	p := defaultParams()
	p.ImmediateData = false
	r := newRig(t, p)
	w := write(0, 4096)
	r.submit(w)
	r.take()
	if err := r.feed(r.good(w.Tag)); err == nil || len(r.sink[0].done) != 0 {
		t.Fatalf("%v, %d done", err, len(r.sink[0].done))
	}
}

// The response comes while the sender still has payload of the command in its
// batch: the buffer must not be given back.
func TestAnEarlyResponseWaitsUntilThePayloadHasLeft(t *testing.T) {
	r := newRig(t, defaultParams())
	w := write(0, 64<<10)
	r.submit(w)
	iov := r.m.Gather()
	whole := bytesOf(iov)
	r.m.Accept(1000) // the socket took a part
	r.mustFeed(r.good(w.Tag))
	r.mustBe(blk.Good) // nothing yet
	rest := bytesOf(r.m.Gather())
	if len(rest) != len(whole)-1000 {
		t.Fatalf("%d bytes left of %d", len(rest), len(whole))
	}
	r.m.Accept(len(rest))
	if !r.m.WantsReader() {
		t.Error("nobody wakes the reader")
	}
	r.mustFeed(r.wire(&pdu.NOPIn{ITT: pdu.NoTag, TTT: pdu.NoTag, Window: r.window(false)}, nil))
	r.mustBe(blk.Good, w)
	if !r.m.Tasks.Idle() {
		t.Error("the tag is still out")
	}
}

func TestAnErrorInTheMiddleDropsTheDataNotYetStarted(t *testing.T) {
	p := defaultParams()
	p.ImmediateData, p.MaxOutstandingR2T = false, 4
	r := newRig(t, p)
	w := write(0, 512<<10)
	r.submit(w)
	r.take()
	r.mustFeed(append(r.r2t(w.Tag, 1, 0, 0, 256<<10), r.r2t(w.Tag, 2, 1, 256<<10, 256<<10)...))
	r.mustFeed(r.check(w.Tag, scsi.Sense{Key: scsi.KeyMedium, ASC: 0x0c}))
	r.mustBe(blk.Good) // the jobs still refer to it
	if out := r.take(); len(out) != 0 {
		t.Errorf("%d PDUs sent for a command that has ended", len(out))
	}
	r.m.CompleteEarly()
	r.mustBe(blk.TargetError, w)
}

func TestALargePayloadGoesByReferenceAndASmallOneIsCopied(t *testing.T) {
	r := newRig(t, defaultParams())
	small, large := write(0, 4096), write(8192, 64<<10)
	r.submit(small, large)
	iov := r.m.Gather()
	if len(iov) != 2 || iov[1].Base != &large.Buf[0] {
		t.Fatalf("%d iovecs", len(iov))
	}
	if small.Tx.Load() != 0 || large.Tx.Load() != 1 {
		t.Errorf("references: small %d, large %d", small.Tx.Load(), large.Tx.Load())
	}
	r.m.Accept(len(bytesOf(iov)) - 1)
	if large.Tx.Load() != 1 {
		t.Error("given up one byte too early")
	}
	r.m.Accept(1)
	if large.Tx.Load() != 0 {
		t.Error("still referenced after it was sent")
	}
}
