package iscsi

import (
	"errors"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
)

var layouts = []pdu.Layout{{}, {HeaderDigest: true}, {DataDigest: true}, {HeaderDigest: true, DataDigest: true}}

func TestAReadLandsInItsBufferWhereverTheStreamIsCut(t *testing.T) {
	for _, l := range layouts {
		p := defaultParams()
		p.Layout = l
		want := pattern(512, 3)
		probe := newRig(t, p)
		c := read(0, 512)
		probe.submit(c)
		probe.take()
		whole := len(probe.dataIn(c.Tag, want, 201))
		for cut := 1; cut < whole; cut++ {
			r := newRig(t, p)
			c, d := read(0, 512), read(4096, 512)
			r.submit(c, d)
			r.take()
			stream := append(r.dataIn(c.Tag, want, 201), r.dataIn(d.Tag, want, 4096)...)
			r.mustFeed(stream, cut, 1<<20)
			r.mustBe(blk.Good, c, d)
			equal(t, "the data", c.Buf, want)
			equal(t, "the second", d.Buf, want)
		}
		r := newRig(t, p)
		c = read(0, 512)
		r.submit(c)
		r.take()
		r.mustFeed(r.dataIn(c.Tag, want, 201), 1)
		equal(t, "the data in single bytes", c.Buf, want)
	}
}

func TestALargePayloadIsReceivedStraightIntoTheBuffer(t *testing.T) {
	p := defaultParams()
	p.DataDigest = true
	r := newRig(t, p)
	c := read(0, 1<<20)
	r.submit(c)
	r.take()
	want := pattern(1<<20, 9)
	stream := r.dataIn(c.Tag, want, 256<<10)
	direct := 0
	for len(stream) > 0 {
		a, b := r.m.In.Space()
		k := copy(a, stream)
		if b != nil { // a is the destination itself
			direct += k
		}
		k += copy(b, stream[k:])
		if err := r.m.In.Fed(k); err != nil {
			t.Fatal(err)
		}
		stream = stream[k:]
	}
	r.mustBe(blk.Good, c)
	equal(t, "the data", c.Buf, want)
	if direct < 700<<10 { // the first of four may be copied
		t.Errorf("only %d of %d bytes landed directly", direct, 1<<20)
	}
}

func TestCommandsAreEncodedAsTheUnitWantsThem(t *testing.T) {
	for name, c := range map[string]struct {
		cmd  *blk.Command
		cdb  string
		edtl uint32
		data int
	}{
		"read":         {&blk.Command{Op: blk.Read, Off: 512, Len: 1024}, "\x28\x00\x00\x00\x00\x01\x00\x00\x02\x00", 1024, 0},
		"read FUA":     {&blk.Command{Op: blk.Read, Flags: blk.FUA, Len: 512}, "\x28\x08\x00\x00\x00\x00\x00\x00\x01\x00", 512, 0},
		"far read":     {&blk.Command{Op: blk.Read, Off: 1 << 41, Len: 512}, "\x88\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00", 512, 0},
		"long read":    {&blk.Command{Op: blk.Read, Len: 64 << 20}, "\x88\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00", 64 << 20, 0},
		"write FUA":    {&blk.Command{Op: blk.Write, Flags: blk.FUA, Len: 512}, "\x2a\x08\x00\x00\x00\x00\x00\x00\x01\x00", 512, 512},
		"flush":        {&blk.Command{Op: blk.Flush}, "\x35\x00\x00\x00\x00\x00\x00\x00\x00\x00", 0, 0},
		"trim":         {&blk.Command{Op: blk.Trim, Len: 4096}, "\x42\x00\x00\x00\x00\x00\x00\x00\x18\x00", 24, 24},
		"write-zeroes": {&blk.Command{Op: blk.WriteZeroes, Len: 4096}, "\x93\x08\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x08\x00\x00", 512, 512},
		"no unmap":     {&blk.Command{Op: blk.WriteZeroes, Flags: blk.NoUnmap, Len: 4096}, "\x93\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x08\x00\x00", 512, 512},
	} {
		r := newRig(t, defaultParams())
		cmd := c.cmd
		if cmd.Op == blk.Read || cmd.Op == blk.Write {
			cmd.Buf = make([]byte, cmd.Len)
		}
		r.submit(cmd)
		out := r.take()
		var h pdu.SCSICommand
		if err := h.Decode(out[0].header); err != nil {
			t.Fatal(err)
		}
		if string(h.CDB[:len(c.cdb)]) != c.cdb || h.EDTL != c.edtl || len(out[0].data) != c.data || h.LUN != 1<<48 ||
			h.Read != (c.data == 0 && c.edtl > 0) || h.Write != (c.data > 0) || !h.Final {
			t.Errorf("%s: %+v, %d bytes of data", name, h, len(out[0].data))
		}
	}
}

func TestNoCommandPassesTheWindowAndANopInOpensIt(t *testing.T) {
	r := newRig(t, defaultParams())
	r.maxC = 2
	r.m.maxCmdSN.Store(2)
	var cmds []*blk.Command
	for i := range 8 {
		cmds = append(cmds, read(i*512, 512))
	}
	r.submit(cmds...)
	r.m.queue(r.m.newControl(ctlPing)) // immediate: takes no CmdSN
	out := r.take()
	if len(out) != 3 || out[0].op != pdu.OpNOPOut {
		t.Fatalf("sent %d PDUs through a window of 2", len(out))
	}
	if r.m.Ready() {
		t.Error("ready although the window is shut")
	}
	r.maxC = 5
	r.mustFeed(r.wire(&pdu.NOPIn{ITT: pdu.NoTag, TTT: pdu.NoTag, Window: r.window(false)}, nil))
	if !r.m.Ready() {
		t.Fatal("not ready after the window opened")
	}
	for i, p := range r.take() {
		var h pdu.SCSICommand
		if err := h.Decode(p.header); err != nil || h.CmdSN != uint32(3+i) || h.ITT != cmds[2+i].Tag || h.ExpStatSN != r.sn {
			t.Errorf("command %d: %+v %v", i, h, err)
		}
	}
	if r.m.tx.cmdSN != 6 {
		t.Errorf("next CmdSN %d, want 6", r.m.tx.cmdSN)
	}
}

func TestAWindowBehindExpCmdSNIsIgnored(t *testing.T) {
	r := newRig(t, defaultParams())
	r.mustFeed(r.wire(&pdu.NOPIn{ITT: pdu.NoTag, TTT: pdu.NoTag, Window: pdu.Window{StatSN: 1, ExpCmdSN: 2000, MaxCmdSN: 1998}}, nil))
	if got := r.m.maxCmdSN.Load(); got != 1000 {
		t.Errorf("MaxCmdSN %d", got)
	}
}

func TestSequenceNumbersWrap(t *testing.T) {
	r := newRig(t, defaultParams())
	r.sn = 0xfffffffe
	r.m.expStatSN.Store(r.sn)
	r.m.tx.cmdSN = 0xfffffffe
	r.maxC = 0xffffffff
	r.m.maxCmdSN.Store(r.maxC)
	for i := range 4 {
		c := read(0, 512)
		r.submit(c)
		if i == 2 {
			if len(r.take()) != 0 {
				t.Fatal("sent beyond the window at the wrap")
			}
			r.maxC = 10
			r.mustFeed(r.wire(&pdu.NOPIn{ITT: pdu.NoTag, TTT: pdu.NoTag, Window: r.window(false)}, nil))
		}
		out := r.take()
		if len(out) != 1 {
			t.Fatalf("command %d: %d PDUs", i, len(out))
		}
		r.mustFeed(r.dataIn(c.Tag, c.Buf, 512))
		if got := r.m.expStatSN.Load(); got != r.sn {
			t.Fatalf("ExpStatSN %#x, want %#x", got, r.sn)
		}
	}
	if len(r.sink[0].done) != 4 || r.sn != 2 {
		t.Errorf("%d done, StatSN %#x", len(r.sink[0].done), r.sn)
	}
}

func TestAPingOfTheTargetIsAnsweredWithItsTagAndLUN(t *testing.T) {
	r := newRig(t, defaultParams())
	r.mustFeed(r.wire(&pdu.NOPIn{LUN: 1 << 48, ITT: pdu.NoTag, TTT: 0x02e40001, Window: r.window(false)}, nil))
	out := r.take()
	want := pdu.NOPOut{Immediate: true, LUN: 1 << 48, ITT: pdu.NoTag, TTT: 0x02e40001, CmdSN: 1, ExpStatSN: 1}
	var got pdu.NOPOut
	if len(out) != 1 || got.Decode(out[0].header) != nil || got != want {
		t.Fatalf("got %+v", got)
	}
	r.mustFeed(r.wire(&pdu.NOPIn{ITT: pdu.NoTag, TTT: pdu.NoTag, Window: r.window(false)}, nil))
	if len(r.take()) != 0 {
		t.Error("answered a NOP-In that wants no answer")
	}
}

func TestAFloodOfPingsIsAViolation(t *testing.T) {
	r := newRig(t, defaultParams())
	var flood []byte
	for range maxPings + 1 {
		flood = append(flood, r.wire(&pdu.NOPIn{ITT: pdu.NoTag, TTT: 1, Window: r.window(false)}, nil)...)
	}
	if err := r.feed(flood); !errors.Is(err, ErrViolation) {
		t.Fatal(err)
	}
}

func TestACommandCompletesOnlyWithAStatus(t *testing.T) {
	r := newRig(t, defaultParams())
	c := read(0, 1024)
	r.submit(c)
	r.take()
	r.mustFeed(r.wire(&pdu.DataIn{Final: true, ITT: c.Tag, TTT: pdu.NoTag, Window: r.window(false)}, c.Buf))
	r.mustBe(blk.Good) // nothing yet
	r.mustFeed(r.check(c.Tag, scsi.Sense{Key: scsi.KeyMedium, ASC: 0x11}))
	r.mustBe(blk.TargetError, c)
}

func TestEvidenceComesBeforeTheCompletion(t *testing.T) {
	r := newRig(t, defaultParams())
	c := read(0, 512)
	r.submit(c)
	r.take()
	r.mustFeed(r.check(c.Tag, scsi.Sense{Key: scsi.KeyUnitAttention, ASC: 0x2a, ASCQ: 0x09}))
	r.mustBe(blk.Retry, c)
	if r.sink[0].evidence&blk.CapacityChanged == 0 || r.sink[0].seenAt != 0 || r.sink[0].batches != 1 {
		t.Errorf("%+v", r.sink[0])
	}
}

func TestSenseOfAnyLengthIsTaken(t *testing.T) {
	full := scsi.Sense{Key: scsi.KeyMedium, ASC: 0x11}.AppendFixed(nil)
	for name, data := range map[string][]byte{"none": nil, "one byte": {0}, "empty": {0, 18}, "cut": append([]byte{0, 96}, full...),
		"with data behind": append(append([]byte{0, 18}, full...), "response data"...)} {
		for _, code := range []byte{0x70, 0x71, 0x72, 0x73, 0x00} {
			r := newRig(t, defaultParams())
			c := read(0, 512)
			r.submit(c)
			r.take()
			if len(data) > 2 {
				data[2] = code
				data[3] = []byte{0, scsi.KeyMedium}[code>>1&1] // where descriptor sense has the key
			}
			r.mustFeed(r.wire(&pdu.SCSIResponse{ITT: c.Tag, Status: scsi.StatusCheckCondition, Window: r.window(true)}, data))
			if len(r.sink[0].done) != 1 || c.Verdict.Class == blk.Good {
				t.Errorf("%s: %v", name, c.Verdict)
			}
		}
	}
}

func TestShortDataIsNeverASuccess(t *testing.T) {
	under := func(n uint32) pdu.Residual { return pdu.Residual{Underflow: true, Count: n} }
	for name, c := range map[string]struct {
		got  int
		res  pdu.Residual
		want blk.PathStatus
		end  bool // of the session
	}{
		"whole":             {4096, pdu.Residual{}, blk.Good, false},
		"half, said so":     {2048, under(2048), blk.OtherPathOnce, false},
		"none, said so":     {0, under(4096), blk.OtherPathOnce, false},
		"U without a count": {4096, pdu.Residual{Underflow: true}, blk.Good, false},
		"overflow":          {4096, pdu.Residual{Overflow: true, Count: 512}, blk.OtherPathOnce, false},
		"half, not said":    {2048, pdu.Residual{}, blk.Good, true},
		"absurd residual":   {2048, under(8192), blk.Good, true},
	} {
		for _, inData := range []bool{false, true} {
			r := newRig(t, defaultParams())
			cmd := read(0, 4096)
			r.submit(cmd)
			r.take()
			d := pdu.DataIn{Final: true, ITT: cmd.Tag, TTT: pdu.NoTag, HasStatus: inData, Window: r.window(inData)}
			if inData {
				d.Residual = c.res
			}
			err := r.feed(r.wire(&d, cmd.Buf[:c.got]))
			if !inData && err == nil {
				err = r.feed(r.wire(&pdu.SCSIResponse{ITT: cmd.Tag, Residual: c.res, Window: r.window(true)}, nil))
			}
			if c.end {
				if !errors.Is(err, ErrViolation) || len(r.sink[0].done) != 0 {
					t.Errorf("%s: %v, completed %d", name, err, len(r.sink[0].done))
				}
				continue
			}
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			r.mustBe(c.want, cmd)
		}
	}
}
