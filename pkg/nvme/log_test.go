package nvme

import (
	"reflect"
	"strings"
	"testing"
)

func someANA() ANALog {
	return ANALog{Change: 9, Groups: []ANAGroup{{ID: 1, Change: 8, State: Optimized, NSIDs: []uint32{1, 3}},
		{ID: 7, State: Changing}, {ID: 128, State: PersistentLoss, NSIDs: []uint32{2}}}}
}

func TestTheANALogComesBack(t *testing.T) {
	in := someANA()
	b := in.Append(nil, false)
	got, err := ParseANA(b, 128)
	if err != nil || !reflect.DeepEqual(got, in) || got.Group(7).State != Changing || got.Group(2) != nil {
		t.Errorf("%+v, %v", got, err)
	}
	want := "09000000000000000300000000000000" + "01000000" + "02000000" + "0800000000000000" + "01" + strings.Repeat("00", 15) + "0100000003000000"
	if hexOf(b[:56]) != want {
		t.Errorf("%x, want %s", b[:56], want)
	}
	if len(b) > ANALogLen(3, 3) {
		t.Errorf("a log of %d bytes in %d", len(b), ANALogLen(3, 3))
	}
	in.Groups[0].NSIDs, in.Groups[2].NSIDs = nil, nil
	short := in.Append(nil, true)
	if got, err := ParseANA(short, 128); err != nil || !reflect.DeepEqual(got, in) {
		t.Errorf("without namespaces: %+v, %v", got, err)
	}
	for i := range b {
		if _, err := ParseANA(b[:i], 128); err == nil {
			t.Errorf("%d of %d bytes were taken", i, len(b))
		}
	}
}

func TestANALogsThatMakeNoSenseAreRefused(t *testing.T) {
	for name, l := range map[string]ANALog{
		"group 0":                  {Groups: []ANAGroup{{ID: 0, State: Optimized}}},
		"group above ANAGRPMAX":    {Groups: []ANAGroup{{ID: 129, State: Optimized}}},
		"state 0":                  {Groups: []ANAGroup{{ID: 1}}},
		"state 5":                  {Groups: []ANAGroup{{ID: 1, State: 5}}},
		"a group twice":            {Groups: []ANAGroup{{ID: 1, State: 1}, {ID: 1, State: 2}}},
		"a namespace in two":       {Groups: []ANAGroup{{ID: 1, State: 1, NSIDs: []uint32{4}}, {ID: 2, State: 2, NSIDs: []uint32{4}}}},
		"namespace 0":              {Groups: []ANAGroup{{ID: 1, State: 1, NSIDs: []uint32{0}}}},
		"more groups than we keep": {Groups: make([]ANAGroup, MaxGroups+1)},
	} {
		if got, err := ParseANA(l.Append(nil, false), 128); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
	huge := (&ANALog{Groups: []ANAGroup{{ID: 1, State: 1}}}).Append(nil, false)
	copy(huge[20:], "\xff\xff\xff\xff") // 2^32-1 namespaces
	if _, err := ParseANA(huge, 128); err == nil {
		t.Error("namespaces past the end of the log")
	}
}

func TestEachStateSaysWhetherAndHowItRefuses(t *testing.T) {
	for s, want := range map[AccessState]Status{Optimized: Success, NonOptimized: Success, Inaccessible: 0x302, PersistentLoss: 0x301, Changing: 0x303} {
		if s.Refusal() != want || s.Usable() != (want == Success) || !s.Valid() || s.String() == "reserved" {
			t.Errorf("%v: %v", s, s.Refusal())
		}
	}
	if AccessState(5).Valid() || AccessState(0).Valid() || AccessState(0).Usable() {
		t.Error("a reserved state is valid")
	}
}

func TestB14TheChangedListMayBeTooLongToTell(t *testing.T) {
	if ids, all := ParseChanged(nil, AppendChanged(nil, 5, 3)); all || !reflect.DeepEqual(ids, []uint32{5, 3}) {
		t.Error(ids, all)
	}
	if ids, all := ParseChanged(nil, AppendChanged(nil)); all || len(ids) != 0 {
		t.Error(ids, all)
	}
	if ids, all := ParseChanged(nil, AppendChanged(nil, make([]uint32, MaxListed+1)...)); !all || len(ids) != 0 {
		t.Error(ids, all)
	}
	if _, all := ParseChanged(nil, []byte{0xFF, 0xFF, 0xFF, 0xFF}); !all {
		t.Error("FFFFFFFFh alone is all of them")
	}
	if ids, _ := ParseChanged(nil, []byte{1, 0, 0}); len(ids) != 0 {
		t.Error(ids)
	}
}

func TestLogRequestsComeBack(t *testing.T) {
	for _, in := range []LogRequest{{Page: LogANA, Len: 4}, {Page: LogDiscovery, Len: 1 << 20, Offset: 1 << 40, Retain: true},
		{Page: LogError, Len: 1<<32 - 4, NSID: AllNamespaces, Specific: 0x7F}} {
		c := in.Command()
		if got := ParseLogRequest(&c); got != in {
			t.Errorf("%+v became %+v", in, got)
		}
	}
	c := LogRequest{Len: 5}.Command()
	if c.SGL.Len != 8 || ParseLogRequest(&c).Len != 8 {
		t.Error("not whole dwords")
	}
	c.CDW10, c.CDW11 = 0xFFFF0001, 0xFFFF
	if ParseLogRequest(&c).Len != 0 {
		t.Error("16 GiB are not 0")
	}
}

func TestErrorAndReservationLogsComeBack(t *testing.T) {
	in := []ErrorEntry{{Count: 2, SQID: 1, CID: 9, Status: InvalidField.Final(), Location: 0x1F, LBA: 1 << 40, NSID: 1}, {Count: 1}}
	b := (&ErrorEntry{}).Append(in[1].Append(in[0].Append(nil)))
	if got := ParseErrors(nil, b); !reflect.DeepEqual(got, in) || len(b) != 3*ErrorEntryLen {
		t.Errorf("%+v", got)
	}
	if got := ParseErrors(nil, b[:100]); len(got) != 1 {
		t.Errorf("%+v", got)
	}
	n := ReservationNotice{Count: 3, Kind: 1, Available: 2, NSID: 7}
	if got, err := ParseReservationNotice(n.Append(nil)); err != nil || got != n {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := ParseReservationNotice(n.Append(nil)[:63]); err == nil {
		t.Error("63 bytes were taken")
	}
}

func someRecord() Record {
	return Record{Transport: TransportTCP, Family: FamilyIPv6, Subtype: SubtypeNVM, Requirements: SecureNotRequired, PortID: 1,
		ControllerID: AnyController, AdminQueue: 128, Flags: FlagExplicitPersistent, Service: "4420",
		Subsystem: "nqn.2026-01.io.csi-mpath:v1", Address: "fe80::1%eth0", Security: SecurityTLS13}
}

func TestB21DiscoveryRecordsAreReadHoweverTheyArePadded(t *testing.T) {
	in := someRecord()
	b := in.Append(nil)
	if got := ParseRecords(nil, b); len(got) != 1 || got[0] != in || len(b) != RecordLen || b[511] != 0 {
		t.Fatalf("%+v", got)
	}
	copy(b[512:768], in.Address+strings.Repeat("\x00", 256-len(in.Address)))
	if got := ParseRecords(nil, b); got[0] != in {
		t.Errorf("padded with zeroes: %+v", got[0])
	}
	copy(b[512:768], strings.Repeat("a", 256))
	copy(b[32:64], "none\x00garbage behind the end        ")
	if got := ParseRecords(nil, b); got[0].Address != strings.Repeat("a", 256) || got[0].Service != "none" {
		t.Errorf("a full address: %+v", got[0])
	}
	b[0] = TransportRDMA
	if got := ParseRecords(nil, append(in.Append(nil), b...)); len(got) != 2 || got[1].Transport != TransportRDMA {
		t.Errorf("%+v", got)
	}
	if got := ParseRecords(nil, b[:RecordLen-1]); len(got) != 0 {
		t.Errorf("a record cut short: %+v", got)
	}
}

func TestB21TheDiscoveryHeaderIsBounded(t *testing.T) {
	h := DiscoveryHeader{Generation: 7, Records: 40}
	if got, err := ParseDiscoveryHeader(h.Append(nil)); err != nil || got != h {
		t.Errorf("%+v, %v", got, err)
	}
	h.Records = MaxRecords + 1
	if _, err := ParseDiscoveryHeader(h.Append(nil)); err == nil {
		t.Error("too many records")
	}
	b := DiscoveryHeader{}.Append(nil)
	if b[16] = 1; len(b) != DiscoveryHeaderLen {
		t.Error(len(b))
	}
	if _, err := ParseDiscoveryHeader(b); err == nil {
		t.Error("record format 1")
	}
	if _, err := ParseDiscoveryHeader(b[:17]); err == nil {
		t.Error("17 bytes")
	}
}

func TestCommandLimitsComeBack(t *testing.T) {
	in := CommandLimits{1, 2, 3, 4, 5}
	b := in.Append(nil)
	if got, err := ParseCommandLimits(b); err != nil || got != in || hexOf(b[:16]) != "01020003040000000500000000000000" {
		t.Errorf("%+v, %v, %x", got, err, b[:16])
	}
	if _, err := ParseCommandLimits(b[:15]); err == nil {
		t.Error("15 bytes")
	}
}
