package nvme

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

// full is a Controller with every field set to something of its own.
func full() Controller {
	c := Controller{Serial: "SN 1", Model: "csi-mpath", Firmware: "1.0", Subsystem: "nqn.2026-01.io.csi-mpath:v1"}
	for i, f := range controllerFields {
		f.set(&c, 0xA1B2C3D4+uint64(i))
	}
	return c
}

func TestIdentifyControllerComesBack(t *testing.T) {
	in := full()
	b := in.Append(nil)
	got, err := ParseController(b)
	if err != nil || got != in || len(b) != IdentifyLen {
		t.Fatalf("%d bytes, %v:\n%+v\n%+v", len(b), err, got, in)
	}
	if _, err := ParseController(b[:IdentifyLen-1]); err == nil {
		t.Error("4095 bytes were taken")
	}
}

func TestNoTwoFieldsOfAControllerOverlap(t *testing.T) {
	owner := map[int]int{}
	taken := func(off, size, who int) {
		for i := off; i < off+size; i++ {
			if o, ok := owner[i]; ok {
				t.Errorf("byte %d belongs to fields %d and %d", i, o, who)
			}
			owner[i] = who
		}
	}
	for i, f := range controllerFields {
		taken(f.off, f.size, i)
	}
	taken(4, 68, 1000) // serial, model, firmware
	taken(768, 256, 1001)
}

func TestControllerFieldsLieWhereTheStandardSays(t *testing.T) {
	b := make([]byte, IdentifyLen)
	copy(b[4:], "SER  \x00")
	copy(b[24:], "a model\x07\x80   ")
	b[76], b[77], b[78], b[79] = 0x0A, 5, 1, 2
	b[96] = 0x41 // CTRATT: TBKAS, 128-bit host identifiers
	b[320], b[342] = 1, 10
	b[386], b[387] = 0xE8, 3 // CQT 1000 ms
	b[1792], b[1793] = 0x04, 0x01
	c, err := ParseController(b)
	if err != nil || c.Serial != "SER" || c.Model != "a model??" || c.ControllerID != 0x201 {
		t.Errorf("%+v, %v", c, err)
	}
	if !c.ReportsANA() || !c.TrafficKeepsAlive() || c.ANATransitionTime() != 10*time.Second || c.QuiesceTime() != time.Second {
		t.Errorf("%+v", c)
	}
}

func TestB06OnlyWhatFitsTheCapsuleGoesInIt(t *testing.T) {
	for _, c := range []struct {
		units  uint32
		offset uint16
		want   uint32
	}{{4, 0, 0}, {260, 0, 4096}, {516, 0, 8192}, {8196, 0, 128 << 10}, {0, 0, 0}, {3, 0, 0}, {260, 1, 0}, {1<<32 - 1, 0, 1 << 31}} {
		if got := (&Controller{CapsuleUnits: c.units, DataOffset: c.offset}).InCapsuleMax(); got != c.want {
			t.Errorf("IOCCSZ %d, ICDOFF %d: %d bytes, want %d", c.units, c.offset, got, c.want)
		}
	}
}

func TestB09MDTSIsInUnitsOfTheSmallestPage(t *testing.T) {
	for _, c := range []struct {
		mdts, shift uint8
		want        uint32
	}{
		{5, 12, 128 << 10}, {1, 13, 16 << 10}, {1, 12, 8 << 10}, {0, 12, OwnMaxTransfer}, {0, 16, OwnMaxTransfer},
		{10, 12, 4 << 20}, {255, 27, 1 << 31}, {20, 12, 1 << 31}} {
		if got := (&Controller{MDTS: c.mdts}).MaxTransfer(c.shift); got != c.want {
			t.Errorf("MDTS %d, page 2^%d: %d, want %d", c.mdts, c.shift, got, c.want)
		}
	}
}

func someNamespace() Namespace {
	return Namespace{Size: 1 << 20, Capacity: 1 << 20, Used: 9, Features: FeatureThin | FeatureOptimal, BlockShift: 12,
		Shared: true, Reservations: ReserveAll, Deallocate: DeallocateZeroes | DeallocatedZero, AtomicPower: 3, Boundary: 8,
		WriteGranule: 1, DeallocateGranule: 15, OptimalWrite: 31, Group: 7, WriteProtected: true,
		NGUID: [16]byte{1, 15: 2}, EUI64: [8]byte{3, 7: 4}}
}

func TestIdentifyNamespaceComesBack(t *testing.T) {
	in := someNamespace()
	b := in.Append(nil)
	got, err := ParseNamespace(b)
	if err != nil || got != in || len(b) != IdentifyLen {
		t.Fatalf("%d bytes, %v:\n%+v\n%+v", len(b), err, got, in)
	}
	if got.BlockSize() != 4096 || got.Bytes() != 4<<30 {
		t.Error(got.BlockSize(), got.Bytes())
	}
	if _, err := ParseNamespace(b[:4000]); err == nil {
		t.Error("a short one was taken")
	}
}

func TestNamespacesThatCannotBeADiskAreRefused(t *testing.T) {
	for name, change := range map[string]func(b []byte){
		"no blocks":            func(b []byte) { copy(b, make([]byte, 8)) },
		"2^63 bytes":           func(b []byte) { b[6] = 8 },
		"blocks of 256 bytes":  func(b []byte) { b[130] = 8 },
		"blocks of 2 MiB":      func(b []byte) { b[130] = 21 },
		"format 1 of 1":        func(b []byte) { b[26] = 1 },
		"format 63 of 64 is 0": func(b []byte) { b[25], b[26] = 63, 0x6F },
	} {
		n := someNamespace()
		b := n.Append(nil)
		change(b)
		if got, err := ParseNamespace(b); err == nil || ErrNoNamespace(err) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestTheFormatInUseIsTheOneThatCounts(t *testing.T) {
	n := someNamespace()
	b := n.Append(nil)
	b[25], b[26] = 20, 0x21 // format 17: bits 6:5 count above 16 formats
	b[128+4*17+2], b[128+4*17] = 9, 8
	got, err := ParseNamespace(b)
	if err != nil || got.BlockSize() != 512 || got.Metadata != 8 {
		t.Errorf("%+v, %v", got, err)
	}
	b[25] = 16
	if got, err := ParseNamespace(b); err == nil && got.BlockSize() == 512 {
		t.Error("bits 6:5 counted with 16 formats")
	}
}

func TestAnInactiveNamespaceIsNone(t *testing.T) {
	if _, err := ParseNamespace(make([]byte, IdentifyLen)); !ErrNoNamespace(err) {
		t.Error(err)
	}
	if !ErrNoNamespace(InvalidNamespace.Final()) || ErrNoNamespace(ReadError) {
		t.Error("status")
	}
}

func TestActiveListsComeBackAndMustRise(t *testing.T) {
	if got, err := ParseActive(nil, AppendActive(nil, 1, 7, 0xFFFFFFFD)); err != nil || !reflect.DeepEqual(got, []uint32{1, 7, 0xFFFFFFFD}) {
		t.Error(got, err)
	}
	if got, err := ParseActive(nil, AppendActive(nil)); err != nil || len(got) != 0 {
		t.Error(got, err)
	}
	all := make([]uint32, MaxListed+1)
	for i := range all {
		all[i] = uint32(i + 1)
	}
	if got, err := ParseActive(nil, AppendActive(nil, all...)); err != nil || len(got) != MaxListed {
		t.Error(len(got), err)
	}
	for _, bad := range [][]uint32{{2, 2}, {2, 1}, {0xFFFFFFFF}, {0xFFFFFFFE}} {
		if got, err := ParseActive(nil, AppendActive(nil, bad...)); err == nil {
			t.Error(got)
		}
	}
}

func TestB16IdentifiersAreReadStrictly(t *testing.T) {
	uuid := strings.Repeat("\x11", 16)
	for _, c := range []struct {
		name, list string
		want       Identity
		ok         bool
	}{
		{"zero NGUID is none", "\x02\x10\x00\x00" + strings.Repeat("\x00", 16), Identity{}, true},
		{"zero UUID is none", "\x03\x10\x00\x00" + strings.Repeat("\x00", 16), Identity{}, true},
		{"command set first", "\x04\x01\x00\x00\x00\x03\x10\x00\x00" + uuid, Identity{UUID: "11111111-1111-1111-1111-111111111111"}, true},
		{"EUI64 alone", "\x01\x08\x00\x00ABCDEFGH", Identity{EUI64: "4142434445464748"}, true},
		{"UUID of 15 bytes", "\x03\x0F\x00\x00" + uuid, Identity{}, false},
		{"EUI64 of 16 bytes", "\x01\x10\x00\x00" + uuid, Identity{}, false},
		{"NGUID of 8 bytes", "\x02\x08\x00\x00ABCDEFGH", Identity{}, false},
		{"past the end", "\x03\x10\x00\x00\x11", Identity{}, false},
		{"a later type is skipped", "\x09\x02\x00\x00xx\x01\x08\x00\x00ABCDEFGH", Identity{EUI64: "4142434445464748"}, true},
		{"twice the same", strings.Repeat("\x01\x08\x00\x00ABCDEFGH", 2), Identity{EUI64: "4142434445464748"}, true},
		{"twice, different", "\x01\x08\x00\x00ABCDEFGH\x01\x08\x00\x00ABCDEFGX", Identity{}, false},
		{"nothing", "", Identity{}, true},
	} {
		d, err := ParseDescriptors([]byte(c.list))
		if (err == nil) != c.ok || d.Identity != c.want {
			t.Errorf("%s: %+v, %v", c.name, d, err)
		}
	}
	d := Descriptors{Identity: Identity{NGUID: strings.Repeat("02", 16)}}
	n := Namespace{NGUID: [16]byte{9}}
	if d.Identify(&n) == nil {
		t.Error("Identify Namespace contradicts the descriptors unseen")
	}
	d = Descriptors{}
	if err := d.Identify(&n); err != nil || d.NGUID != "09"+strings.Repeat("00", 15) || d.EUI64 != "" || d.None() {
		t.Error("where CNS 03h fails, CNS 00h is enough: ", d, err)
	}
}

func TestDescriptorsComeBack(t *testing.T) {
	in := Descriptors{Identity{"01234567-89ab-cdef-0123-456789abcdef", strings.Repeat("ab", 16), "0011223344556677"}, 0}
	b := in.Append(nil)
	if got, err := ParseDescriptors(b); err != nil || got != in || len(b) != IdentifyLen {
		t.Errorf("%+v, %v", got, err)
	}
	if want := "03100000" + "0123456789abcdef0123456789abcdef" + "02100000"; hexOf(b[:24]) != want {
		t.Errorf("%x", b[:24])
	}
}

func TestAWwidMatchesInTheFormsPeopleWrite(t *testing.T) {
	i := Identity{"01234567-89ab-cdef-0123-456789abcdef", strings.Repeat("ab", 16), "0011223344556677"}
	for _, w := range []string{"uuid.01234567-89ab-cdef-0123-456789abcdef", "0123456789ABCDEF0123456789ABCDEF", "eui." + i.NGUID,
		"eui.0011223344556677", "0x" + i.NGUID, "nguid." + i.NGUID, " uuid.0123456789abcdef0123456789abcdef "} {
		if !i.Matches(w) {
			t.Errorf("%q does not match", w)
		}
	}
	for _, w := range []string{"", "uuid.", "eui.", "uuid." + i.NGUID, "nguid.0011223344556677", "naa." + i.NGUID, "01234567"} {
		if i.Matches(w) {
			t.Errorf("%q matches", w)
		}
	}
	if i.String() != "uuid."+i.UUID || (Identity{EUI64: "00"}).String() != "eui.00" || (Identity{}).String() != "unidentified" {
		t.Error(i.String())
	}
}

func someProfile() Profile {
	return Profile{Subsystem: "nqn.2026-01.io.csi-mpath:v1", NSID: 1, Caps: ParseCaps(0),
		Controller: Controller{MDTS: 5, ONCS: ONCSDataset | ONCSWriteZeroes, VolatileCache: 1, AtomicPower: 1},
		Namespace:  someNamespace(), ID: Identity{UUID: "u", EUI64: "e"}}
}

func TestB16AnythingElseInTheIdentityIsAnotherVolume(t *testing.T) {
	p := someProfile()
	for name, change := range map[string]func(q *Profile){
		"":           func(q *Profile) { q.Namespace.Size++; q.ControllerID = 9 },
		"subsystem":  func(q *Profile) { q.Subsystem = "nqn.other" },
		"number":     func(q *Profile) { q.NSID = 2 },
		"u}":         func(q *Profile) { q.ID.UUID = "" },
		"EUI-64 x":   func(q *Profile) { q.ID.EUI64 = "x" },
		"NGUID new":  func(q *Profile) { q.ID.NGUID = "new" },
		"block size": func(q *Profile) { q.Namespace.BlockShift = 9 },
	} {
		q := p
		change(&q)
		if err := p.SameVolume(&q); (err == nil) != (name == "") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestLimitsAreThoseOfControllerAndNamespaceTogether(t *testing.T) {
	p := someProfile()
	l := p.Limits()
	if l.BlockSize != 4096 || l.PhysicalBlock != 8192 || l.Size != 4<<30 || l.MaxTransfer != 128<<10 || !l.FUA || !l.WriteCache ||
		!l.ReadOnly || l.OptimalIO != 128<<10 || l.UnmapGranule != 64<<10 || !l.ZeroUnmaps {
		t.Errorf("%+v", l)
	}
	if l.MaxZero != 128<<10 || l.MaxUnmap != (1<<32-1)*4096 {
		t.Errorf("zero %d, unmap %d", l.MaxZero, l.MaxUnmap)
	}
	p.CommandLimits = CommandLimits{WriteZeroesSize: 8, RangeBlocks: 100, DatasetBlocks: 50}
	if l = p.Limits(); l.MaxZero != 1<<20 || l.MaxUnmap != 50*4096 {
		t.Errorf("zero %d, unmap %d", l.MaxZero, l.MaxUnmap)
	}
	p.MDTS, p.CommandLimits, p.CacheOff, p.ONCS = 0, CommandLimits{}, true, ONCSWriteZeroes
	if l = p.Limits(); l.MaxTransfer != OwnMaxTransfer || l.MaxZero != unreportedWriteZeroes || l.MaxUnmap != 0 || l.WriteCache {
		t.Errorf("%+v", l)
	}
	p.MDTS, p.Namespace.BlockShift, p.ONCS = 255, 9, 0
	if l = p.Limits(); l.MaxTransfer != MaxBlocks*512 || l.MaxZero != 0 {
		t.Errorf("%+v: NLB has 16 bits", l)
	}
}

func TestNamespacesWeCannotServeAreRefused(t *testing.T) {
	p := someProfile()
	if err := p.Check(); err != nil {
		t.Error(err)
	}
	for _, change := range []func(p *Profile){func(p *Profile) { p.CommandSet = 2 }, func(p *Profile) { p.Namespace.Metadata = 8 },
		func(p *Profile) { p.Namespace = Namespace{} }} {
		q := p
		if change(&q); q.Check() == nil {
			t.Errorf("%+v", q)
		}
	}
}
