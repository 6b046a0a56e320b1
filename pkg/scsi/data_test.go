package scsi

import (
	"bytes"
	"reflect"
	"testing"
	"time"
)

func TestInquiryDataComesBack(t *testing.T) {
	in := Inquiry{Version: 6, TPGS: 1, CmdQueue: true, Vendor: "CSIMPATH", Product: "disk", Revision: "1"}
	b := in.Append(nil)
	got, err := ParseInquiry(b)
	if err != nil || got != in || !got.Present() {
		t.Fatalf("%+v %v", got, err)
	}
	if _, err := ParseInquiry(b[:35]); err == nil {
		t.Error("35 bytes were taken")
	}
	b[0] = 0x7f
	if got, _ := ParseInquiry(b); got.Present() {
		t.Error("a unit with qualifier 3 is there")
	}
	b[8] = 0x07
	if got, _ := ParseInquiry(b); got.Vendor != "?SIMPATH" {
		t.Errorf("control characters stay: %q", got.Vendor)
	}
}

func TestVPDPagesComeBack(t *testing.T) {
	if p, err := ParseSupportedPages(AppendSupportedPages(nil, 0, 0x80, 0x83)); err != nil || !bytes.Equal(p, []byte{0, 0x80, 0x83}) {
		t.Error(p, err)
	}
	if s, err := ParseSerial(AppendSerial(nil, " beef ")); err != nil || s != "beef" {
		t.Error(s, err)
	}
	l := BlockLimits{WriteSameNonZero: true, MaxCompareWrite: 9, OptimalGranule: 8, MaxTransfer: 2048, OptimalTransfer: 64, MaxUnmap: 1 << 20,
		MaxUnmapDescriptors: 1, UnmapGranule: 8, UnmapAlign: 3, HasUnmapAlign: true, MaxWriteSame: 1 << 40}
	if got, err := ParseBlockLimits(l.Append(nil)); err != nil || got != l {
		t.Errorf("%+v %v", got, err)
	}
	if r, err := ParseRotationRate(AppendRotationRate(nil, 7200)); err != nil || r != 7200 {
		t.Error(r, err)
	}
	p := Provisioning{LBPU: true, LBPWS: true, LBPWS10: true, LBPRZ: true, Kind: 2, Anchor: true}
	if got, err := ParseProvisioning(p.Append(nil)); err != nil || got != p {
		t.Errorf("%+v %v", got, err)
	}
	if _, err := ParseSerial(AppendSupportedPages(nil)); err == nil {
		t.Error("page 00h was taken for page 80h")
	}
}

func naa(b byte) []byte { return []byte{0x60, 0, 0, 0, 0, 0, 0, b} }

func TestDeviceIDIsRefusedWhenItIsCut(t *testing.T) {
	b := AppendDeviceID(nil, Designator{CodeSet: 1, Type: DesignNAA, ID: naa(1)}, Designator{CodeSet: 2, Type: DesignT10Vendor, ID: []byte("x")})
	if ds, err := ParseDeviceID(nil, b); err != nil || len(ds) != 2 || !bytes.Equal(ds[0].ID, naa(1)) {
		t.Fatal(ds, err)
	}
	for n := range len(b) {
		if _, err := ParseDeviceID(nil, b[:n]); err == nil {
			t.Errorf("%d of %d bytes were taken", n, len(b))
		}
	}
	b[7] = 200 // the first designator runs past the end
	if _, err := ParseDeviceID(nil, b); err == nil {
		t.Error("a designator beyond the page was taken")
	}
}

func TestCapacitySaturatesInTheShortForm(t *testing.T) {
	c := Capacity{LastLBA: 1 << 32, BlockSize: 512, PhysicalExp: 3, LBPME: true, LBPRZ: true, LowestAligned: 7}
	short, sat, err := ParseCapacity10(c.Append10(nil))
	if err != nil || !sat || short.BlockSize != 512 {
		t.Errorf("%+v %v %v", short, sat, err)
	}
	if got, err := ParseCapacity16(c.Append16(nil)); err != nil || got != c || got.PhysicalBlock() != 4096 || got.Size() != (1<<32+1)*512 {
		t.Errorf("%+v %v", got, err)
	}
	small := Capacity{LastLBA: 99, BlockSize: 4096}
	if got, sat, err := ParseCapacity10(small.Append10(nil)); err != nil || sat || got.Size() != 409600 {
		t.Errorf("%+v %v %v", got, sat, err)
	}
}

func TestNonsenseCapacityIsRefused(t *testing.T) {
	for _, c := range []Capacity{{LastLBA: 1, BlockSize: 0}, {LastLBA: 1, BlockSize: 511}, {LastLBA: 1, BlockSize: 768},
		{LastLBA: 1, BlockSize: 1 << 31}, {LastLBA: 1<<64 - 1, BlockSize: 512}, {LastLBA: 1 << 54, BlockSize: 512}} {
		if got, err := ParseCapacity16(c.Append16(nil)); err == nil {
			t.Errorf("%+v was taken, size %d", got, got.Size())
		}
	}
	if _, err := ParseCapacity16(make([]byte, 11)); err == nil {
		t.Error("11 bytes were taken")
	}
}

func TestReportLUNsTakesWhatIsClaimedAndThere(t *testing.T) {
	luns := []LUN{0, 20 << 48, 40 << 48}
	b := AppendReportLUNs(nil, luns...)
	if got, total, err := ParseReportLUNs(nil, b); err != nil || total != len(b) || !reflect.DeepEqual(got, luns) {
		t.Error(got, total, err)
	}
	if got, total, _ := ParseReportLUNs(nil, b[:16]); len(got) != 1 || total != len(b) {
		t.Errorf("cut: %v total %d", got, total)
	}
	b[3] = 16 // more data than claimed
	if got, _, _ := ParseReportLUNs(nil, b); len(got) != 2 {
		t.Error(got)
	}
	b[3] = 7 // not a multiple of 8
	if got, _, err := ParseReportLUNs(nil, b); len(got) != 0 || err != nil {
		t.Error(got, err)
	}
	b[0] = 0xff
	if _, total, _ := ParseReportLUNs(nil, b); total > 8+8*MaxLUNs {
		t.Errorf("asks for %d bytes", total)
	}
}

func TestPortGroupsComeBackWithBothHeaders(t *testing.T) {
	g := PortGroups{Groups: []PortGroup{
		{ID: 1, State: Optimized, Preferred: true, Supported: 0x8f, Status: 1, Ports: []uint16{1, 2}},
		{ID: 513, State: Transitioning, Supported: 0x8f, Ports: []uint16{3}},
	}}
	if got, err := ParseReportTPG(g.Append(nil, false)); err != nil || !reflect.DeepEqual(got, g) {
		t.Errorf("%+v %v", got, err)
	}
	g.TransitionTime = 60 * time.Second
	b := g.Append(nil, true)
	got, err := ParseReportTPG(b)
	if err != nil || !reflect.DeepEqual(got, g) || TPGLen(b) != len(b) {
		t.Errorf("%+v %v", got, err)
	}
	if p := got.Find(513); p == nil || p.State != Transitioning || got.Find(2) != nil {
		t.Error(p)
	}
	for n := range len(b) {
		if _, err := ParseReportTPG(b[:n]); err == nil {
			t.Errorf("%d of %d bytes were taken as whole", n, len(b))
		}
	}
}

func TestCachingPageComesBackInBothForms(t *testing.T) {
	c := Caching{WCE: true, ReadOnly: true, DPOFUA: true, HasPage: true}
	control := append([]byte{ModeControl, 10}, make([]byte, 10)...)
	for _, ten := range []bool{false, true} {
		b := c.Append(nil, ten, control, c.Page())
		if got, err := ParseCaching(b, ten); err != nil || got != c {
			t.Errorf("ten %v: %+v %v", ten, got, err)
		}
		if got, err := ParseCaching(c.Append(nil, ten), ten); err != nil || got.HasPage || got.WCE || !got.ReadOnly {
			t.Errorf("ten %v without the page: %+v %v", ten, got, err)
		}
	}
	b := c.Append(nil, false, c.Page())
	b[3] = 250 // block descriptors beyond the end
	if _, err := ParseCaching(b, false); err == nil {
		t.Error("a descriptor length beyond the data was taken")
	}
}

func TestReservationsAreRead(t *testing.T) {
	var p [ReserveParamLen]byte
	PutReserveParam(p[:], 1, 2, true)
	if k, s, aptpl, err := ParseReserveParam(p[:]); err != nil || k != 1 || s != 2 || !aptpl {
		t.Error(k, s, aptpl, err)
	}
	if gen, ks, err := ParseKeys(nil, AppendKeys(nil, 7, 1, 1<<63)); err != nil || gen != 7 || !reflect.DeepEqual(ks, []uint64{1, 1 << 63}) {
		t.Error(gen, ks, err)
	}
	for _, want := range []Reservation{{Generation: 3}, {3, true, 99, ExclusiveAllRegistrants}} {
		if r, err := ParseReservation(want.Append(nil)); err != nil || r != want {
			t.Error(r, err)
		}
	}
	full := AppendFullStatus(nil, Reservation{Held: true, Key: 5, Type: WriteExclusive}, 2, "iqn.a", [6]byte{0x80, 5: 1})
	if len(full) != 24+4+24 || full[7] != 5 || full[12] != 1 || full[13] != 1 || full[19] != 2 || string(full[28:51]) != "iqn.a,i,0x800000000001\x00" {
		t.Errorf("%q", full)
	}
	keys := []byte{0, 0, 0, 9, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2}
	if gen, ks, err := ParseKeys(nil, keys); err != nil || gen != 9 || !reflect.DeepEqual(ks, []uint64{1, 2}) {
		t.Error(gen, ks, err)
	}
	held := append([]byte{0, 0, 0, 9, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 1}, 0, 0, 0, 0, 0, 5, 0, 0)
	if r, err := ParseReservation(held); err != nil || r != (Reservation{9, true, 1, WriteExclusiveRegistrantsOnly}) {
		t.Error(r, err)
	}
	if r, err := ParseReservation([]byte{0, 0, 0, 9, 0, 0, 0, 0}); err != nil || r.Held {
		t.Error(r, err)
	}
}

func FuzzParsers(f *testing.F) {
	g := PortGroups{Groups: []PortGroup{{ID: 1, Ports: []uint16{1}}}}
	c := Caching{WCE: true}
	l := BlockLimits{MaxUnmap: 1}
	f.Add(g.Append(nil, true))
	f.Add(c.Append(nil, false, c.Page()))
	f.Add(l.Append(nil))
	f.Add(AppendReportLUNs(nil, 1, 2))
	f.Add([]byte{0, 0, 0, 0, 0x40, 0, 0}) // a subpage header cut short
	f.Add(AppendDeviceID(nil, Designator{Type: DesignNAA, ID: naa(1)}))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = ParseInquiry(b)
		_, _ = ParseSupportedPages(b)
		_, _ = ParseSerial(b)
		_, _ = ParseBlockLimits(b)
		_, _ = ParseRotationRate(b)
		_, _ = ParseProvisioning(b)
		_, _ = ParseCaching(b, false)
		_, _ = ParseCaching(b, true)
		_, _, _ = ParseKeys(nil, b)
		_, _ = ParseReservation(b)
		if c, err := ParseCapacity16(b); err == nil && c.Size() == 0 {
			t.Fatalf("size 0 of %+v", c)
		}
		if luns, _, _ := ParseReportLUNs(nil, b); len(luns)*8 > len(b) {
			t.Fatalf("%d LUNs of %d bytes", len(luns), len(b))
		}
		if tpg, err := ParseReportTPG(b); err == nil {
			if again, err := ParseReportTPG(tpg.Append(nil, true)); err != nil || len(again.Groups) != len(tpg.Groups) {
				t.Fatalf("%+v came back as %+v (%v)", tpg, again, err)
			}
		}
		var p Profile
		if ds, err := ParseDeviceID(nil, b); err == nil {
			p.SetDeviceID(ds)
			_ = p.Identity().String()
		}
	})
}
