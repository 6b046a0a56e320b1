package scsi

import (
	"bytes"
	"encoding/hex"
	"reflect"
	"slices"
	"testing"
)

func TestRareCommandsAreReadAsTheStandardsSay(t *testing.T) {
	for s, want := range map[string]Command{
		"081234560000":                     {Op: OpRead6, LBA: 0x123456, Blocks: 256},
		"0afffffe0200":                     {Op: OpWrite6, LBA: 0x1ffffe, Blocks: 2}, // the bits of the old LUN field do not count
		"151000001800":                     {Op: OpModeSelect6, Alloc: 24},
		"55100000000000012000":             {Op: OpModeSelect10, Alloc: 288},
		"1b0100000200":                     {Op: OpStartStopUnit, Flags: Immed, Bits: UnitLoEj},
		"1e0000000100":                     {Op: OpPreventAllow, Bits: PreventRemoval},
		"2e120102030400000500":             {Op: OpWriteVerify10, LBA: 0x01020304, Blocks: 5, Flags: DPO, ByteCheck: 1},
		"2f060000000900000100":             {Op: OpVerify10, LBA: 9, Blocks: 1, ByteCheck: 3},
		"34020000000900000000":             {Op: OpPrefetch10, LBA: 9, Flags: Immed},
		"37001d00000000040000":             {Op: OpReadDefectData10, Bits: 0x1d, Alloc: 1024},
		"41080000000900000100":             {Op: OpWriteSame10, LBA: 9, Blocks: 1, Flags: Unmap},
		"a80800000009000100000000":         {Op: OpRead12, LBA: 9, Blocks: 0x10000, Flags: FUA},
		"aa1000000009000100000000":         {Op: OpWrite12, LBA: 9, Blocks: 0x10000, Flags: DPO},
		"ae0000000009000000010000":         {Op: OpWriteVerify12, LBA: 9, Blocks: 1},
		"af0200000009000000010000":         {Op: OpVerify12, LBA: 9, Blocks: 1, ByteCheck: 1},
		"b71800000000000004000000":         {Op: OpReadDefectData12, Bits: 0x18, Alloc: 1024, Extended: true},
		"89080000000000000009000000020000": {Op: OpCompareAndWrite, LBA: 9, Blocks: 2, Flags: FUA},
		"8b080000000000000009000000020000": {Op: OpOrWrite16, LBA: 9, Blocks: 2, Flags: FUA},
		"8f020000000000000009000000020000": {Op: OpVerify16, LBA: 9, Blocks: 2, ByteCheck: 1},
		"90000000000000000009000000020000": {Op: OpPrefetch16, LBA: 9, Blocks: 2},
		"9e120000000000000009000001000000": {Op: OpServiceActionIn16, Action: ActionGetLBAStatus, LBA: 9, Alloc: 256},
		"a30c832a000100000400" + "0000": {Op: OpMaintenanceIn, Action: ActionReportOpcodes, Bits: ReportTimeouts | ReportEither,
			Of: OpWrite10, OfAction: 1, Alloc: 1024},
	} {
		b, err := hex.DecodeString(s)
		if err != nil {
			t.Fatal(s, err)
		}
		if got, bad, ok := DecodeCDB(b); !ok || got != want {
			t.Errorf("%s: %+v %v, want %+v", s, got, bad, want)
		}
	}
}

func TestRareCommandsAreRefusedInTheirFields(t *testing.T) {
	for _, s := range []string{
		"2f200000000900000100",             // VRPROTECT
		"2f040000000900000100",             // BYTCHK 10b
		"ae2000000009000000010000",         // WRPROTECT
		"89200000000000000009000000020000", // WRPROTECT
		"8b200000000000000009000000020000", // ORPROTECT
		"41100000000900000100",             // ANCHOR
		"151100001800",                     // SP
		"150000001800",                     // no PF
		"1e0000000200",                     // PREVENT 10b
		"a30c042a00000000040000" + "00",    // reporting option 100b
		"000000000004",                     // NACA
	} {
		b, err := hex.DecodeString(s)
		if err != nil {
			t.Fatal(s, err)
		}
		if _, bad, ok := DecodeCDB(b); ok || bad != SenseInvalidCDB {
			t.Errorf("%s: %v %v", s, bad, ok)
		}
	}
}

func TestCommandSupportHasTheStandardsLayout(t *testing.T) {
	list := []CommandUsage{
		{Usage: []byte{OpTestUnitReady, 0, 0, 0, 0, 7}},
		{Usage: []byte{OpPersistentReserveIn, 1, 0, 0, 0, 0, 0, 0xff, 0xff, 7}, Action: 1, HasAction: true},
	}
	for got, want := range map[string]string{
		string(AppendAllCommands(nil, list, false)):    "00000010" + "0000000000000006" + "5e0000010001000a",
		string(AppendAllCommands(nil, list[:1], true)): "00000014" + "0000000000020006" + "000a00000000000000000000",
		string(AppendOneCommand(nil, &list[1], false)): "0003000a" + "5e010000000000ffff07",
		string(AppendOneCommand(nil, &list[0], true)):  "00830006" + "000000000007" + "000a00000000000000000000",
		string(AppendOneCommand(nil, nil, true)):       "00010000",
	} {
		if h := hex.EncodeToString([]byte(got)); h != want {
			t.Errorf("%s, want %s", h, want)
		}
	}
}

func TestLBAStatusComesBack(t *testing.T) {
	want := []LBAStatus{{LBA: 1 << 40, Blocks: 8, Hole: true}, {LBA: 1<<40 + 8, Blocks: 1 << 30}}
	b := AppendLBAStatus(nil, want...)
	if hex.EncodeToString(b[:24]) != "0000002400000000"+"0000010000000000"+"0000000801000000" {
		t.Errorf("% x", b)
	}
	if got, err := ParseLBAStatus(nil, b); err != nil || !slices.Equal(got, want) {
		t.Error(got, err)
	}
	if got, err := ParseLBAStatus(nil, b[:39]); err != nil || len(got) != 1 {
		t.Error("cut:", got, err)
	}
	if _, err := ParseLBAStatus(nil, b[:7]); err == nil {
		t.Error("7 bytes were taken")
	}
}

func TestModeSelectListGivesItsPages(t *testing.T) {
	caching, control := (&Caching{WCE: true}).Page(), (&Control{SWP: true, DescriptorSense: true, Reordering: true, BusyTimeout: 0x1234}).Page()
	if hex.EncodeToString(control) != "0a0a04100800000012340000" {
		t.Errorf("% x", control)
	}
	for _, ten := range []bool{false, true} {
		b := (&Caching{}).Append(nil, ten, caching, control)
		got, err := ParseModeSelect(nil, b, ten)
		if err != nil || !reflect.DeepEqual(got, [][]byte{caching, control}) {
			t.Error(ten, got, err)
		}
		for n := 1; n < len(b); n++ {
			got, err := ParseModeSelect(nil, b[:n], ten)
			whole := n == len(b)-len(control) || n == len(b)-len(control)-len(caching)
			if whole != (err == nil) {
				t.Errorf("%v, %d bytes: %d pages, %v", ten, n, len(got), err)
			}
		}
	}
	if _, err := ParseModeSelect(nil, []byte{0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 2, 0}, false); err == nil {
		t.Error("a block descriptor was taken")
	}
	if _, err := ParseModeSelect(nil, []byte{0, 0, 0, 0, 0x48, 0, 1}, false); err == nil {
		t.Error("a cut subpage was taken")
	}
}

func FuzzParameterLists(f *testing.F) {
	f.Add((&Caching{}).Append(nil, true, (&Control{}).Page()))
	f.Add(AppendLBAStatus(nil, LBAStatus{LBA: 1, Blocks: 2}))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, ten := range []bool{false, true} {
			pages, err := ParseModeSelect(nil, b, ten)
			if err == nil && len(b) > 8 && !bytes.HasSuffix(b, bytes.Join(pages, nil)) {
				t.Fatalf("% x of % x", pages, b)
			}
		}
		if got, _ := ParseLBAStatus(nil, b); len(got)*16 > len(b) {
			t.Fatalf("%d descriptors of %d bytes", len(got), len(b))
		}
	})
}
