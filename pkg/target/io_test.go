package target

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
)

func TestAReadComesInBurstsWithTheStatusInTheLast(t *testing.T) {
	r := newRig(t, nil)
	want := pattern(600 * 512)
	_ = r.ram.WriteAt(want, 0)
	c := r.session(1, 1)
	c.readCmd(0, 600)
	var got []byte
	for sn := uint32(0); len(got) < len(want); sn++ {
		h, d := c.read()
		var p pdu.DataIn
		if err := p.Decode(h); err != nil || p.DataSN != sn || int(p.Offset) != len(got) || len(d) > 65536 {
			t.Fatal(p, err)
		}
		got = append(got, d...)
		end := len(got) == len(want)
		if p.HasStatus != end || p.Final != (end || len(got) == 262144) {
			t.Errorf("at %d: %+v", len(got), p)
		}
	}
	if !bytes.Equal(got, want) {
		t.Error("other bytes")
	}
	c.quiet()
}

func TestWritesArriveByEveryRoute(t *testing.T) {
	for name, k := range map[string]struct {
		bytes, immediate, unsolicited int
		keys                          []pdu.Pair
	}{
		"all immediate":                 {4096, 4096, 0, nil},
		"immediate and unsolicited":     {16384, 8192, 8192, nil},
		"immediate, unsolicited, R2T":   {300 * 512, 4096, 4096, nil},
		"R2T only, two bursts":          {600 * 512, 0, 0, []pdu.Pair{{Key: "InitialR2T", Value: "Yes"}, {Key: "ImmediateData", Value: "No"}}},
		"unsolicited without immediate": {8192, 0, 8192, []pdu.Pair{{Key: "ImmediateData", Value: "No"}}},
		"with digests":                  {100 * 512, 512, 0, []pdu.Pair{{Key: "HeaderDigest", Value: "CRC32C"}, {Key: "DataDigest", Value: "CRC32C"}}},
	} {
		r := newRig(t, nil)
		c := r.dial(1)
		c.mustLogin(k.keys...)
		want := pattern(k.bytes)
		itt := c.command(pdu.SCSICommand{Final: k.unsolicited == 0, Write: true, EDTL: uint32(k.bytes)},
			func(b []byte) int { return scsi.PutWrite10(b, 8, uint16(k.bytes/512), 0) }, want[:k.immediate])
		at := k.immediate
		for sn := uint32(0); at < k.immediate+k.unsolicited; sn++ {
			n := min(3000, k.immediate+k.unsolicited-at)
			c.dataOut(itt, pdu.NoTag, sn, uint32(at), at+n == k.immediate+k.unsolicited, want[at:at+n])
			at += n
		}
		for bursts := uint32(0); at < k.bytes; bursts++ {
			p := c.r2t()
			if int(p.Offset) != at || p.Length > 262144 || p.R2TSN != bursts {
				t.Fatalf("%s: %+v at %d", name, p, at)
			}
			for sn, end := uint32(0), at+int(p.Length); at < end; sn++ {
				n := min(50001, end-at)
				c.dataOut(itt, p.TTT, sn, uint32(at), at+n == end, want[at:at+n])
				at += n
			}
		}
		c.good(itt)
		got := make([]byte, k.bytes)
		_ = r.ram.ReadAt(got, 8*512)
		if !bytes.Equal(got, want) {
			t.Errorf("%s: other bytes in the store", name)
		}
		c.c.Gone()
		if r.Buffers.Held() != 0 {
			t.Errorf("%s: %d bytes of buffers are still out", name, r.Buffers.Held())
		}
	}
}

// TestTheStreamMeansTheSameHoweverItIsCut is the machine against itself fed
// whole: the slow twin is one byte at a time.
func TestTheStreamMeansTheSameHoweverItIsCut(t *testing.T) {
	for _, digests := range []string{"None", "CRC32C"} {
		var want []byte
		for _, split := range []int{0, 1, 2, 3, 7, 47, 48, 49, 1000, 5000, 70000} {
			r := newRig(t, nil)
			c := r.dial(1)
			c.split = split
			c.mustLogin(pdu.Pair{Key: "HeaderDigest", Value: digests}, pdu.Pair{Key: "DataDigest", Value: digests})
			data := pattern(200 * 512)
			c.writeCmd(1, data[:4096])
			c.writeCmd(9, data[:8192+512])
			itt := c.command(pdu.SCSICommand{Write: true, EDTL: uint32(len(data))},
				func(b []byte) int { return scsi.PutWrite16(b, 64, 200, 0) }, data[:7000])
			c.dataOut(itt, pdu.NoTag, 0, 7000, true, data[7000:12345])
			c.dataOut(itt, 1, 0, 12345, true, data[12345:])
			c.readCmd(0, 300)
			p := pdu.NOPOut{Immediate: true, ITT: 99, TTT: pdu.NoTag, CmdSN: c.cmdSN, DataLen: 5}
			c.write(c.pdu(p.Put, []byte("hello")))
			c.drain()
			if c.c.Closing() {
				t.Fatalf("split %d: %s", split, c.c.Cause())
			}
			if want == nil {
				want = c.raw
			}
			if !bytes.Equal(c.raw, want) {
				t.Errorf("digests %s: cut every %d bytes it answers otherwise (%d and %d bytes)", digests, split, len(c.raw), len(want))
			}
		}
	}
}

func TestAFlippedBitEndsTheConnection(t *testing.T) {
	for at, want := range map[int]error{20: pdu.ErrHeaderDigest, 52 + 100: pdu.ErrDataDigest, 52 + 8192: pdu.ErrDataDigest} {
		r := newRig(t, nil)
		c := r.dial(1)
		c.mustLogin(pdu.Pair{Key: "HeaderDigest", Value: "CRC32C"}, pdu.Pair{Key: "DataDigest", Value: "CRC32C"})
		p := pdu.SCSICommand{Final: true, Write: true, EDTL: 8192, ITT: 1, CmdSN: c.cmdSN, DataLen: 8192}
		scsi.PutWrite16(p.CDB[:], 0, 16, 0)
		b := c.pdu(p.Put, block(7, 16))
		b[at] ^= 1
		c.write(b)
		if !c.c.Closing() || c.c.Cause() != want.Error() {
			t.Errorf("byte %d: %q", at, c.c.Cause())
		}
		if got := make([]byte, 8192); r.ram.ReadAt(got, 0) != nil || !allZero(got) {
			t.Errorf("byte %d: the write was executed", at)
		}
	}
}

func TestTheWindowIsTheDepthAndNothingOutsideItRuns(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Depth = 4 })
	c := r.session(1, 1)
	h, err := r.Hold(Match{Kind: Writes}, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	first := c.cmdSN
	for range 6 {
		c.writeCmd(0, block(1, 1))
	}
	if h.Len() != 4 {
		t.Errorf("%d commands are in, want 4", h.Len())
	}
	h.Release()
	for i := range uint32(4) {
		_, a := c.result(i + 1)
		if a.ExpCmdSN != first+4 || a.MaxCmdSN != first+4+i {
			t.Errorf("answer %d: window %d..%d from %d", i, a.ExpCmdSN, a.MaxCmdSN, first)
		}
	}
	c.quiet()
	c.cmdSN = first // long done
	c.writeCmd(0, block(9, 1))
	c.quiet()
	if c.c.Closing() {
		t.Error(c.c.Cause())
	}
	c.cmdSN = first + 5 // a gap that can never close
	c.writeCmd(0, block(9, 1))
	if !c.c.Closing() {
		t.Error("a gap in CmdSN was accepted")
	}
}

func TestResidualsSayWhatDidNotMove(t *testing.T) {
	r := newRig(t, nil)
	c := r.session(1, 1)
	read := func(edtl uint32, flag bool) uint32 {
		return c.command(pdu.SCSICommand{Final: true, Read: flag, EDTL: edtl}, func(b []byte) int { return scsi.PutRead10(b, 0, 2, 0) }, nil)
	}
	for _, k := range []struct {
		itt  uint32
		data int
		want pdu.Residual
	}{
		{read(1024, true), 1024, pdu.Residual{}},
		{read(2048, true), 1024, pdu.Residual{Underflow: true, Count: 1024}},
		{read(600, true), 600, pdu.Residual{Overflow: true, Count: 424}},
		{read(0, false), 0, pdu.Residual{Overflow: true, Count: 1024}},
	} {
		data, a := c.result(k.itt)
		if len(data) != k.data || a.Residual != k.want || a.Status != 0 {
			t.Errorf("%d bytes, %+v, want %d, %+v", len(data), a.Residual, k.data, k.want)
		}
	}
	itt := c.command(pdu.SCSICommand{Final: true, Write: true, EDTL: 700}, func(b []byte) int { return scsi.PutWrite10(b, 50, 2, 0) }, block(5, 2)[:700])
	if _, a := c.result(itt); a.Residual != (pdu.Residual{Overflow: true, Count: 324}) {
		t.Errorf("%+v", a.Residual)
	}
	got := make([]byte, 1024)
	if _ = r.ram.ReadAt(got, 50*512); got[511] != 5 || got[512] != 0 {
		t.Error("not just the whole blocks were written")
	}
}

func TestRangesBeyondTheEndAreRefused(t *testing.T) {
	c := newRig(t, nil).session(1, 1)
	c.fails(c.readCmd(2047, 2), scsi.SenseOutOfRange)
	c.fails(c.readCmd(1<<63, 1), scsi.SenseOutOfRange)
	c.fails(c.writeCmd(2048, block(1, 1)), scsi.SenseOutOfRange)
	c.good(c.readCmd(2047, 1))
	c.fails(c.command(pdu.SCSICommand{Final: true}, func(b []byte) int { return scsi.PutSyncCache16(b, 2049, 0, 0) }, nil), scsi.SenseOutOfRange)
}

func TestTrimAndWriteSameChangeJustTheirRange(t *testing.T) {
	r := newRig(t, nil)
	c := r.session(1, 1)
	ones := block(1, 2048)
	_ = r.ram.WriteAt(ones, 0)
	var list [scsi.UnmapOneLen]byte
	scsi.PutUnmapOne(list[:], scsi.Extent{LBA: 10, Blocks: 3})
	out := func(put func(b []byte) int, data []byte) {
		t.Helper()
		c.good(c.command(pdu.SCSICommand{Final: true, Write: len(data) > 0, EDTL: uint32(len(data))}, put, data))
	}
	out(func(b []byte) int { return scsi.PutUnmap(b, scsi.UnmapOneLen) }, list[:])
	out(func(b []byte) int { return scsi.PutWriteSame16(b, 20, 2, scsi.NDOB) }, nil)
	out(func(b []byte) int { return scsi.PutWriteSame16(b, 30, 2, scsi.Unmap) }, block(0, 1))
	out(func(b []byte) int { return scsi.PutWriteSame16(b, 40, 2, 0) }, block(9, 1))
	copy(ones[10*512:], block(0, 3))
	copy(ones[20*512:], block(0, 2))
	copy(ones[30*512:], block(0, 2))
	copy(ones[40*512:], block(9, 2))
	if got := make([]byte, 1<<20); r.ram.ReadAt(got, 0) != nil || !bytes.Equal(got, ones) {
		t.Error("other bytes")
	}
	c.fails(c.command(pdu.SCSICommand{Final: true}, func(b []byte) int { return scsi.PutWriteSame16(b, 0, 0, scsi.NDOB) }, nil), scsi.SenseInvalidCDB)
}

// full is a store without room.
type full8 struct{ *RAM }

func (full8) WriteAt([]byte, uint64) error { return fmt.Errorf("%w: injected", ErrNoSpace) }
func (full8) Flush() error                 { return errors.New("injected") }

func TestAStoresErrorsAreSenses(t *testing.T) {
	c := newRig(t, func(c *Config) { c.LUNs[0].Store = full8{NewRAM(1 << 20)} }).session(1, 1)
	c.fails(c.writeCmd(0, block(1, 1)), senseNoSpace)
	c.fails(c.command(pdu.SCSICommand{Final: true}, func(b []byte) int { return scsi.PutSyncCache10(b, 0, 0, 0) }, nil), senseWriteError)
	c = newRig(t, func(c *Config) { c.LUNs[0].ReadOnly = true }).session(1, 1)
	c.fails(c.writeCmd(0, block(1, 1)), senseProtected)
}

func TestWriteDataOutOfOrderLosesTheCommand(t *testing.T) {
	r := newRig(t, nil)
	for _, bad := range []func(c *client, itt uint32, p pdu.R2T){
		func(c *client, itt uint32, p pdu.R2T) { c.dataOut(itt, p.TTT, 1, p.Offset, true, block(1, 16)) },
		func(c *client, itt uint32, p pdu.R2T) { c.dataOut(itt, p.TTT, 0, p.Offset+512, true, block(1, 15)) },
		func(c *client, itt uint32, p pdu.R2T) { c.dataOut(itt, p.TTT, 0, p.Offset, true, block(1, 1)) },
	} {
		c := r.session(1, 1)
		itt := c.command(pdu.SCSICommand{Final: true, Write: true, EDTL: 8192}, func(b []byte) int { return scsi.PutWrite16(b, 0, 16, 0) }, nil)
		bad(c, itt, c.r2t())
		c.fails(itt, senseDataLost)
		c.dataOut(itt, 1, 1, 0, true, block(1, 1)) // what was on the way is ignored
		c.quiet()
		c.good(c.readCmd(0, 1))
	}
}

func TestCommandsThatBreakTheRulesEndTheConnection(t *testing.T) {
	put := func(b []byte) int { return scsi.PutWrite16(b, 0, 64, 0) }
	for name, f := range map[string]func(c *client){
		"data with a read": func(c *client) { c.command(pdu.SCSICommand{Final: true, Read: true, EDTL: 512}, put, block(1, 1)) },
		"beyond FirstBurstLength": func(c *client) {
			c.command(pdu.SCSICommand{Final: true, Write: true, EDTL: 64 * 512}, put, block(1, 64))
		},
		"beyond EDTL":        func(c *client) { c.command(pdu.SCSICommand{Final: true, Write: true, EDTL: 100}, put, block(1, 1)) },
		"a login in between": func(c *client) { p := pdu.LoginRequest{}; c.write(c.pdu(p.Put, nil)) },
		"an endless segment": func(c *client) { p := pdu.NOPOut{DataLen: 1 << 20}; c.write(c.pdu(p.Put, nil)) },
	} {
		c := newRig(t, nil).session(1, 1)
		if f(c); !c.c.Closing() || c.c.Cause() == "" {
			t.Errorf("%s: still open", name)
		}
	}
}

func TestAPingComesBackAndOursIsCounted(t *testing.T) {
	r := newRig(t, nil)
	c := r.session(1, 1)
	p := pdu.NOPOut{Immediate: true, ITT: 5, TTT: pdu.NoTag, CmdSN: c.cmdSN, DataLen: 4}
	c.write(c.pdu(p.Put, []byte("ping")))
	h, data := c.read()
	if op, _ := pdu.Op(h); op != pdu.OpNOPIn || string(data) != "ping" {
		t.Errorf("%v %q", op, data)
	}
	r.Ping(1)
	h, _ = c.read()
	var in pdu.NOPIn
	if err := in.Decode(h); err != nil || in.TTT == pdu.NoTag || in.ITT != pdu.NoTag {
		t.Fatal(in, err)
	}
	answer := pdu.NOPOut{Immediate: true, ITT: pdu.NoTag, TTT: in.TTT, CmdSN: c.cmdSN}
	c.write(c.pdu(answer.Put, nil))
	c.quiet()
	if r.Pongs(1) != 1 {
		t.Error(r.Pongs(1))
	}
}

func TestLogoutEndsTheSession(t *testing.T) {
	r := newRig(t, nil)
	c := r.session(1, 1)
	p := pdu.LogoutRequest{Immediate: true, ITT: 3, CmdSN: c.cmdSN}
	c.write(c.pdu(p.Put, nil))
	h, _ := c.read()
	var a pdu.LogoutResponse
	if err := a.Decode(h); err != nil || a.Response != pdu.LogoutDone || !c.c.Closing() || len(r.sessions) != 0 {
		t.Errorf("%+v %v, %d sessions", a, err, len(r.sessions))
	}
}

func TestSmallIOAllocatesNothing(t *testing.T) {
	r := newRig(t, nil)
	c := r.session(1, 1)
	var b Batch
	turn := func(p pdu.SCSICommand, data []byte) func() {
		wire := c.pdu(p.Put, data)
		return func() {
			wire[24], wire[25], wire[26], wire[27] = byte(c.cmdSN>>24), byte(c.cmdSN>>16), byte(c.cmdSN>>8), byte(c.cmdSN)
			c.cmdSN++
			c.c.Input(epoch, wire)
			c.m.Dirty()
			if !c.c.Take(&b) {
				t.Fatal("no answer")
			}
			b.Vectors()
			b.Reset()
		}
	}
	read := pdu.SCSICommand{Final: true, Read: true, EDTL: 4096, ITT: 1}
	scsi.PutRead16(read.CDB[:], 0, 8, 0)
	write := pdu.SCSICommand{Final: true, Write: true, EDTL: 4096, ITT: 1, DataLen: 4096}
	scsi.PutWrite16(write.CDB[:], 0, 8, 0)
	big := read
	big.EDTL = 65536
	scsi.PutRead16(big.CDB[:], 0, 128, 0)
	for name, f := range map[string]func(){"4k read": turn(read, nil), "4k write": turn(write, block(1, 8)), "64k read": turn(big, nil)} {
		f()
		f()
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
