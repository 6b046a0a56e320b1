package scsi

import (
	"bytes"
	"encoding/hex"
	"testing"
)

func TestBuiltCommandsMatchTheStandardsLayout(t *testing.T) {
	for _, c := range []struct {
		name, want string
		put        func(b []byte) int
	}{
		{"TEST UNIT READY", "000000000000", PutTestUnitReady},
		{"INQUIRY", "1200000100" + "00", func(b []byte) int { return PutInquiry(b, 256) }},
		{"INQUIRY 83h", "1201830 0ff00", func(b []byte) int { return PutInquiryVPD(b, 0x83, 255) }},
		{"REPORT LUNS", "a00000000000000020000000", func(b []byte) int { return PutReportLUNs(b, 8192) }},
		{"READ CAPACITY(10)", "25000000000000000000", PutReadCapacity10},
		{"READ CAPACITY(16)", "9e100000000000000000000000200000", func(b []byte) int { return PutReadCapacity16(b, 32) }},
		{"READ(10)", "28000102030400000800", func(b []byte) int { return PutRead10(b, 0x01020304, 8, 0) }},
		{"WRITE(10) FUA", "2a080000000000000100", func(b []byte) int { return PutWrite10(b, 0, 1, FUA) }},
		{"READ(16) FUA DPO", "88180102030405060708000000100000", func(b []byte) int {
			return PutRead16(b, 0x0102030405060708, 16, FUA|DPO)
		}},
		{"WRITE(16)", "8a000000000000000001000100000000", func(b []byte) int { return PutWrite16(b, 1, 1<<16, 0) }},
		{"SYNCHRONIZE CACHE(10)", "35000000000000000000", func(b []byte) int { return PutSyncCache10(b, 0, 0, 0) }},
		{"SYNCHRONIZE CACHE(16)", "91020000000000000000000000000000", func(b []byte) int {
			return PutSyncCache16(b, 0, 0, Immed)
		}},
		{"UNMAP", "42000000000000001800", func(b []byte) int { return PutUnmap(b, 24) }},
		{"WRITE SAME(16)", "93090000000000000000000000080000", func(b []byte) int {
			return PutWriteSame16(b, 0, 8, Unmap|NDOB)
		}},
		{"REPORT TARGET PORT GROUPS", "a32a00000000000004000000", func(b []byte) int { return PutReportTPG(b, 1024, true) }},
		{"MODE SENSE(6)", "1a0808004000", func(b []byte) int { return PutModeSense6(b, ModeCaching, 64) }},
		{"MODE SENSE(10)", "5a080800000000004000", func(b []byte) int { return PutModeSense10(b, ModeCaching, 64) }},
		{"PERSISTENT RESERVE IN", "5e000000000000100000", func(b []byte) int { return PutReserveIn(b, ActionReadKeys, 4096) }},
		{"PERSISTENT RESERVE OUT", "5f050500000000001800", func(b []byte) int {
			return PutReserveOut(b, ActionPreemptAbort, WriteExclusiveRegistrantsOnly)
		}},
	} {
		b := bytes.Repeat([]byte{0xee}, CDBLen)
		n := c.put(b)
		want, err := hex.DecodeString(string(bytes.ReplaceAll([]byte(c.want), []byte(" "), nil)))
		if err != nil {
			t.Fatal(c.name, err)
		}
		if !bytes.Equal(b[:n], want) || !bytes.Equal(b[n:], make([]byte, CDBLen-n)) {
			t.Errorf("%s: % x (%d), want % x and zeroes", c.name, b, n, want)
		}
		if _, bad, ok := DecodeCDB(b[:n]); !ok {
			t.Errorf("%s: our own decoder refuses it: %v", c.name, bad)
		}
	}
}

func TestDecoderReadsWhatTheBuildersWrote(t *testing.T) {
	var b [CDBLen]byte
	check := func(want Command) {
		t.Helper()
		got, bad, ok := DecodeCDB(b[:])
		if !ok || got != want {
			t.Errorf("got %+v %v %v, want %+v", got, bad, ok, want)
		}
	}
	PutRead16(b[:], 1<<40, 1<<20, FUA|DPO)
	check(Command{Op: OpRead16, LBA: 1 << 40, Blocks: 1 << 20, Flags: FUA | DPO})
	PutWrite10(b[:], 1<<31, 65535, DPO)
	check(Command{Op: OpWrite10, LBA: 1 << 31, Blocks: 65535, Flags: DPO})
	PutWriteSame16(b[:], 9, 10, Unmap|NDOB)
	check(Command{Op: OpWriteSame16, LBA: 9, Blocks: 10, Flags: Unmap | NDOB})
	PutSyncCache16(b[:], 5, 6, Immed)
	check(Command{Op: OpSyncCache16, LBA: 5, Blocks: 6, Flags: Immed})
	PutInquiryVPD(b[:], 0xB0, 64)
	check(Command{Op: OpInquiry, EVPD: true, Page: 0xB0, Alloc: 64})
	PutUnmap(b[:], 24)
	check(Command{Op: OpUnmap, Alloc: 24})
	PutReportTPG(b[:], 77, true)
	check(Command{Op: OpMaintenanceIn, Action: ActionReportTPG, Alloc: 77, Extended: true})
	PutModeSense10(b[:], ModeCaching, 300)
	check(Command{Op: OpModeSense10, Page: ModeCaching, Alloc: 300})
	PutReserveOut(b[:], ActionReserve, WriteExclusive)
	check(Command{Op: OpPersistentReserveOut, Action: ActionReserve, Type: WriteExclusive, Alloc: 24})
	PutReadCapacity16(b[:], 32)
	check(Command{Op: OpServiceActionIn16, Action: ActionReadCapacity16, Alloc: 32})
}

func TestDecoderRefusesProtectionAndUnknownCommands(t *testing.T) {
	for s, want := range map[string]Sense{
		"": SenseInvalidCDB, "2800": SenseInvalidCDB, "ff": SenseInvalidOpcode, "7f000000": SenseInvalidOpcode,
		"28200000000000000100":             SenseInvalidCDB, // RDPROTECT
		"93200000000000000000000000010000": SenseInvalidCDB, // WRPROTECT
		"9e110000000000000000000000200000": SenseInvalidCDB, // service action
		"120083000000":                     SenseInvalidCDB, // page without EVPD
		"42010000000000001800":             SenseInvalidCDB, // ANCHOR
		"040000000000":                     SenseInvalidOpcode,
	} {
		b, _ := hex.DecodeString(s)
		if _, got, ok := DecodeCDB(b); ok || got != want {
			t.Errorf("%s: %v %v, want %v", s, got, ok, want)
		}
	}
}

func TestBuildersAllocateNothing(t *testing.T) {
	var b [CDBLen]byte
	var p [UnmapOneLen]byte
	if n := testing.AllocsPerRun(100, func() {
		PutRead16(b[:], 1, 2, FUA)
		PutWriteSame16(b[:], 1, 2, Unmap)
		PutUnmapOne(p[:], Extent{1, 2})
		if _, _, ok := DecodeCDB(b[:]); !ok {
			t.Fatal("refused")
		}
	}); n != 0 {
		t.Fatal(n)
	}
}

func TestUnmapListIsReadAsFarAsItIsWhole(t *testing.T) {
	var p [UnmapOneLen]byte
	PutUnmapOne(p[:], Extent{1 << 33, 77})
	for n := range len(p) + 1 {
		got, err := ParseUnmap(nil, p[:n])
		switch {
		case n == len(p) && (err != nil || len(got) != 1 || got[0] != Extent{1 << 33, 77}):
			t.Errorf("whole list: %v %v", got, err)
		case n < len(p) && len(got) != 0:
			t.Errorf("%d bytes: %v", n, got)
		case (n > 0 && n < 8) != (err != nil):
			t.Errorf("%d bytes: error %v", n, err)
		}
	}
}

func FuzzDecodeCDB(f *testing.F) {
	f.Add([]byte{0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0}, []byte{0, 22, 0, 16})
	f.Fuzz(func(t *testing.T, cdb, param []byte) {
		c, bad, ok := DecodeCDB(cdb)
		if ok == (bad != Sense{}) {
			t.Fatalf("%x: ok %v with sense %v (%+v)", cdb, ok, bad, c)
		}
		ext, _ := ParseUnmap(nil, param)
		if len(ext)*16 > len(param) {
			t.Fatalf("%d extents of %d bytes", len(ext), len(param))
		}
	})
}
