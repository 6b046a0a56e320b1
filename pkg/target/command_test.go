package target

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
)

// cdb is a command with its operation code, flags, range and length by group.
func cdb(op, flags byte, lba uint64, blocks uint32) func(b []byte) int {
	return func(b []byte) int {
		clear(b[:scsi.CDBLen])
		b[0], b[1] = op, flags
		switch op >> 5 {
		case 0:
			b[1], b[2], b[3], b[4] = byte(lba>>16), byte(lba>>8), byte(lba), byte(blocks)
			return 6
		case 1, 2:
			binary.BigEndian.PutUint32(b[2:], uint32(lba))
			binary.BigEndian.PutUint16(b[7:], uint16(blocks))
			return 10
		case 5:
			binary.BigEndian.PutUint32(b[2:], uint32(lba))
			binary.BigEndian.PutUint32(b[6:], blocks)
			return 12
		}
		binary.BigEndian.PutUint64(b[2:], lba)
		binary.BigEndian.PutUint32(b[10:], blocks)
		if op == scsi.OpCompareAndWrite {
			b[10], b[11], b[12], b[13] = 0, 0, 0, byte(blocks)
		}
		return 16
	}
}

// send sends a command with its data, immediate, and returns its tag.
func (c *client) send(put func(b []byte) int, data []byte) uint32 {
	return c.command(pdu.SCSICommand{Final: true, Write: len(data) > 0, EDTL: uint32(len(data))}, put, data)
}

// stores runs a test over a store in memory and over one with jobs: commands
// must not tell the difference.
func stores(t *testing.T, f func(t *testing.T, r *rig, c *client)) {
	t.Run("memory", func(t *testing.T) {
		r := newRig(t, nil)
		f(t, r, r.session(1, 1))
	})
	t.Run("jobs", func(t *testing.T) {
		b := newBench(t, nil)
		b.Run = nil // at once, but through buffers
		f(t, b.rig, b.session(1, 1))
		if b.Buffers.Held() != 0 {
			t.Errorf("%d bytes of buffers are left", b.Buffers.Held())
		}
	})
}

func TestReadsAndWritesOfEveryLengthOfCDBMoveTheSameBlocks(t *testing.T) {
	stores(t, func(t *testing.T, r *rig, c *client) {
		for i, ops := range [][2]byte{{scsi.OpWrite6, scsi.OpRead6}, {scsi.OpWrite10, scsi.OpRead10},
			{scsi.OpWrite12, scsi.OpRead12}, {scsi.OpWrite16, scsi.OpRead16}} {
			want := block(byte(i+1), 20)
			c.good(c.send(cdb(ops[0], 0, uint64(100*i), 20), want))
			got := c.good(c.command(pdu.SCSICommand{Final: true, Read: true, EDTL: 20 * 512}, cdb(ops[1], 0, uint64(100*i), 20), nil))
			if !bytes.Equal(got, want) || r.first(uint64(100*i)) != byte(i+1) {
				t.Errorf("operation %02x: other bytes", ops[0])
			}
		}
	})
}

func TestVerifyComparesWhatItIsTold(t *testing.T) {
	stores(t, func(t *testing.T, r *rig, c *client) {
		_ = r.ram.WriteAt(append(block(7, 3), block(8, 1)...), 0)
		for _, op := range []byte{scsi.OpVerify10, scsi.OpVerify12, scsi.OpVerify16} {
			c.good(c.send(cdb(op, 0, 0, 4), nil))
			c.good(c.send(cdb(op, 2, 0, 3), block(7, 3)))
			c.good(c.send(cdb(op, 6, 0, 3), block(7, 1)))
			bad := senseMiscompare
			bad.HasInfo, bad.Info = true, 3*512
			c.fails(c.send(cdb(op, 2, 0, 4), block(7, 4)), bad)
			c.fails(c.send(cdb(op, 6, 0, 4), block(7, 1)), bad)
			c.fails(c.send(cdb(op, 2, 0, 4), block(7, 1)), scsi.SenseInvalidCDB) // data is missing
			c.fails(c.send(cdb(op, 0, 2047, 2), nil), scsi.SenseOutOfRange)
		}
	})
}

func TestWriteAndVerifyWrites(t *testing.T) {
	stores(t, func(t *testing.T, r *rig, c *client) {
		for i, op := range []byte{scsi.OpWriteVerify10, scsi.OpWriteVerify12, scsi.OpWriteVerify16} {
			c.good(c.send(cdb(op, 2, uint64(i), 1), block(byte(i+1), 1)))
			if r.first(uint64(i)) != byte(i+1) {
				t.Errorf("operation %02x: not written", op)
			}
		}
	})
}

// forgetful loses what it is given.
type forgetful struct{ plain }

func (forgetful) WriteAt([]byte, uint64) error { return nil }

func TestWriteAndVerifyTellsAStoreThatForgets(t *testing.T) {
	c := newRig(t, func(c *Config) { c.LUNs[0].Store = forgetful{plain{NewRAM(1 << 20)}} }).session(1, 1)
	bad := senseMiscompare
	bad.HasInfo = true
	c.fails(c.send(cdb(scsi.OpWriteVerify10, 0, 0, 1), block(1, 1)), bad)
}

func TestCompareAndWriteWritesOnlyOverWhatWasExpected(t *testing.T) {
	stores(t, func(t *testing.T, r *rig, c *client) {
		caw := func(old, fresh byte) uint32 {
			return c.send(cdb(scsi.OpCompareAndWrite, 0, 5, 2), append(block(old, 2), block(fresh, 2)...))
		}
		c.good(caw(0, 1))
		c.good(caw(1, 2))
		bad := senseMiscompare
		bad.HasInfo = true
		c.fails(caw(1, 3), bad)
		if r.first(5) != 2 || r.first(6) != 2 || r.first(7) != 0 {
			t.Error("other blocks")
		}
		c.good(c.send(cdb(scsi.OpCompareAndWrite, 0, 5, 0), nil))
		c.fails(c.send(cdb(scsi.OpCompareAndWrite, 0, 5, 1), block(2, 1)), scsi.SenseInvalidCDB)
		c.fails(c.send(cdb(scsi.OpCompareAndWrite, 0, 5, 0), block(2, 1)), scsi.SenseInvalidCDB)
	})
}

func TestNothingComesBetweenCompareAndWrite(t *testing.T) {
	b := newBench(t, nil)
	c := b.session(1, 1)
	caw := c.send(cdb(scsi.OpCompareAndWrite, 0, 0, 1), append(block(0, 1), block(1, 1)...))
	write := c.writeCmd(0, block(2, 1))
	b.has(1)
	b.work(0)
	c.good(caw)
	b.work(0)
	c.good(write)
}

func TestOrWriteSetsBits(t *testing.T) {
	stores(t, func(t *testing.T, r *rig, c *client) {
		_ = r.ram.WriteAt(block(0x0f, 2), 0)
		c.good(c.send(cdb(scsi.OpOrWrite16, 0, 0, 1), block(0xf0, 1)))
		if r.first(0) != 0xff || r.first(1) != 0x0f {
			t.Errorf("%02x %02x", r.first(0), r.first(1))
		}
	})
}

func TestPrefetchMeetsItsConditionInMemory(t *testing.T) {
	c := newRig(t, nil).session(1, 1)
	for _, op := range []byte{scsi.OpPrefetch10, scsi.OpPrefetch16} {
		if st := c.status(c.send(cdb(op, 0, 0, 2048), nil)); st != scsi.StatusConditionMet {
			t.Errorf("status %02x", st)
		}
		c.fails(c.send(cdb(op, 0, 0, 2049), nil), scsi.SenseOutOfRange)
	}
	b := newBench(t, nil)
	b.Run = nil
	if c = b.session(1, 1); c.status(c.send(cdb(scsi.OpPrefetch10, 0, 0, 8), nil)) != scsi.StatusGood {
		t.Error("a store with jobs says that it has everything")
	}
}

func (c *client) lbaStatus(lba uint64, alloc uint32) []scsi.LBAStatus {
	c.t.Helper()
	data, _ := c.ask(alloc, func(b []byte) int {
		cdb(scsi.OpServiceActionIn16, scsi.ActionGetLBAStatus, lba, alloc)(b)
		return 16
	})
	list, err := scsi.ParseLBAStatus(nil, data)
	if err != nil {
		c.t.Fatal(err)
	}
	return list
}

func TestHolesAreToldAsTheyAre(t *testing.T) {
	r := newRig(t, nil)
	c := r.session(1, 1)
	all := []scsi.LBAStatus{{LBA: 0, Blocks: 2048, Hole: true}}
	if got := c.lbaStatus(0, 512); !slices.Equal(got, all) {
		t.Errorf("empty: %v", got)
	}
	c.good(c.writeCmd(17, block(1, 1))) // maps the page of blocks 16..23
	c.good(c.writeCmd(1024, block(1, 8)))
	want := []scsi.LBAStatus{{LBA: 0, Blocks: 16, Hole: true}, {LBA: 16, Blocks: 8}, {LBA: 24, Blocks: 1000, Hole: true},
		{LBA: 1024, Blocks: 8}, {LBA: 1032, Blocks: 1016, Hole: true}}
	if got := c.lbaStatus(0, 512); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := c.lbaStatus(17, 24); !slices.Equal(got, []scsi.LBAStatus{{LBA: 17, Blocks: 7}}) {
		t.Errorf("from the middle: %v", got)
	}
	c.good(c.send(func(b []byte) int { return scsi.PutWriteSame16(b, 16, 8, scsi.Unmap|scsi.NDOB) }, nil))
	c.good(c.send(func(b []byte) int { return scsi.PutWriteSame16(b, 1025, 7, scsi.Unmap|scsi.NDOB) }, nil)) // not a whole page
	want = []scsi.LBAStatus{{LBA: 0, Blocks: 1024, Hole: true}, {LBA: 1024, Blocks: 8}, {LBA: 1032, Blocks: 1016, Hole: true}}
	if got := c.lbaStatus(0, 512); !slices.Equal(got, want) {
		t.Errorf("after a trim: %v", got)
	}
	c.fails(c.command(pdu.SCSICommand{Final: true, Read: true, EDTL: 24}, func(b []byte) int {
		return cdb(scsi.OpServiceActionIn16, scsi.ActionGetLBAStatus, 2048, 24)(b)
	}, nil), scsi.SenseOutOfRange)
}

func TestAThinStoreRunsOutOfSpaceAndGetsItBack(t *testing.T) {
	r := newRig(t, nil)
	r.ram.SetSpace(2 * ramPage)
	c := r.session(1, 1)
	c.good(c.writeCmd(0, block(1, 16)))
	c.fails(c.writeCmd(16, block(1, 1)), senseNoSpace)
	c.good(c.writeCmd(3, block(2, 1))) // where there is something already
	c.good(c.send(func(b []byte) int { return scsi.PutWriteSame16(b, 0, 8, scsi.Unmap|scsi.NDOB) }, nil))
	c.good(c.writeCmd(16, block(1, 8)))
	if r.ram.Used() != 2*ramPage {
		t.Errorf("%d bytes used", r.ram.Used())
	}
}

func TestWriteSameWantsExactlyOneBlock(t *testing.T) {
	stores(t, func(t *testing.T, r *rig, c *client) {
		c.good(c.send(cdb(scsi.OpWriteSame10, 0, 3, 2), block(7, 1)))
		if r.first(3) != 7 || r.first(4) != 7 || r.first(5) != 0 {
			t.Error("other blocks")
		}
		c.fails(c.send(cdb(scsi.OpWriteSame10, 0, 3, 2), block(7, 2)), scsi.SenseInvalidCDB)
		c.fails(c.send(cdb(scsi.OpWriteSame16, 0, 3, 2), nil), scsi.SenseInvalidCDB)
	})
}

func TestAStoppedUnitRefusesItsMediumUntilItIsStarted(t *testing.T) {
	r := newRig(t, nil)
	c, d := r.session(1, 1), r.session(2, 2)
	startStop := func(bits byte) func(b []byte) int {
		return func(b []byte) int { clear(b[:16]); b[0], b[4] = scsi.OpStartStopUnit, bits; return 6 }
	}
	c.good(c.send(startStop(0), nil))
	d.fails(d.readCmd(0, 1), senseStopped)
	d.fails(d.send(scsi.PutTestUnitReady, nil), senseStopped)
	d.ask(255, func(b []byte) int { return scsi.PutInquiry(b, 255) })
	c.good(c.send(startStop(scsi.UnitStart), nil))
	d.good(d.readCmd(0, 1))
	c.fails(c.send(startStop(scsi.UnitLoEj), nil), scsi.SenseInvalidCDB)
	c.good(c.send(func(b []byte) int { clear(b[:16]); b[0], b[4] = scsi.OpPreventAllow, 1; return 6 }, nil))
}

func TestThereAreNoDefects(t *testing.T) {
	c := newRig(t, nil).session(1, 1)
	ten, _ := c.ask(64, func(b []byte) int { clear(b[:16]); b[0], b[2], b[8] = scsi.OpReadDefectData10, 0x1d, 64; return 10 })
	twelve, _ := c.ask(64, func(b []byte) int { clear(b[:16]); b[0], b[1], b[9] = scsi.OpReadDefectData12, 0x18, 64; return 12 })
	if !bytes.Equal(ten, []byte{0, 0x1d, 0, 0}) || !bytes.Equal(twelve, []byte{0, 0x18, 0, 0, 0, 0, 0, 0}) {
		t.Errorf("% x, % x", ten, twelve)
	}
}

// FuzzCommands gives any command to a unit in memory and to one with jobs, and
// wants the same answers and the same bytes.
func FuzzCommands(f *testing.F) {
	for _, u := range commands {
		b := make([]byte, 16)
		copy(b, u.Usage)
		b[len(u.Usage)-1] = 0
		f.Add(b, []byte("data"), uint16(512))
	}
	f.Fuzz(func(t *testing.T, command, data []byte, edtl uint16) {
		if len(command) == 0 || len(command) > scsi.CDBLen || len(data) > 16384 {
			return
		}
		memory, beside := newRig(t, nil), newBench(t, nil)
		beside.Run = nil
		var answers [2][]byte
		for i, r := range []*rig{memory, beside.rig} {
			_ = r.ram.WriteAt(pattern(1<<20), 0)
			c := r.session(1, 1)
			put := func(b []byte) int { clear(b[:16]); return copy(b, command) }
			p := pdu.SCSICommand{Final: true, Read: len(data) == 0, Write: len(data) > 0, EDTL: uint32(max(int(edtl), len(data)))}
			itt := c.command(p, put, data)
			for c.drain(); len(c.in) > 0; {
				if op, _ := pdu.Op(c.in); op != pdu.OpR2T {
					break
				}
				w := c.r2t()
				c.dataOut(itt, w.TTT, 0, w.Offset, true, make([]byte, w.Length))
				c.drain()
			}
			got, a := c.result(itt)
			answers[i] = append(got, a.Status)
			if c.c.Gone(); r.Buffers.Held() != 0 || r.Conns() != 0 {
				t.Fatalf("% x: %d bytes of buffers", command, r.Buffers.Held())
			}
		}
		one, two := make([]byte, 1<<20), make([]byte, 1<<20)
		_, _ = memory.ram.ReadAt(one, 0), beside.ram.ReadAt(two, 0)
		if !bytes.Equal(answers[0], answers[1]) && !differs(command[0]) || !bytes.Equal(one, two) {
			t.Fatalf("% x: % .64x, with jobs % .64x, equal bytes %v", command, answers[0], answers[1], bytes.Equal(one, two))
		}
	})
}

// differs are commands whose answers depend on where the store is.
func differs(op byte) bool {
	switch op {
	case scsi.OpInquiry, scsi.OpPrefetch10, scsi.OpPrefetch16, scsi.OpServiceActionIn16:
		return true
	}
	return false
}
