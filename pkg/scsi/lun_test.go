package scsi

import "testing"

func TestLUNNumbersAreReadInEveryAddressingMethod(t *testing.T) {
	for _, c := range []struct {
		raw  LUN
		want uint32
		ok   bool
	}{
		{0x0001000000000000, 1, true}, {0x00ff000000000000, 255, true},
		{0x412c000000000000, 300, true}, {0x4100000000000000, 256, true}, {0x7fff000000000000, 16383, true},
		{0xd200010000000000, 256, true}, {0xd2ffffff00000000, 1<<24 - 1, true},
		{0x0100000000000000, 0, false}, // another bus
		{0x0001000200000000, 0, false}, // second level
		{WellKnownReportLUNs, 0, false}, {0x8001000000000000, 0, false}, {0xd200010000000001, 0, false},
	} {
		got, ok := c.raw.Number()
		if got != c.want || ok != c.ok {
			t.Errorf("%#016x: got %d %v, want %d %v", uint64(c.raw), got, ok, c.want, c.ok)
		}
	}
}

func TestEveryLUNNumberComesBackFromItsWireForm(t *testing.T) {
	var b [8]byte
	for n := range uint32(20000) {
		l, err := LUNFromNumber(n)
		if err != nil {
			t.Fatal(err)
		}
		l.Put(b[:])
		if got, ok := LUNFromBytes(b[:]).Number(); !ok || got != n {
			t.Fatalf("%d came back as %d %v", n, got, ok)
		}
	}
}

func TestParseLUNTakesANumberOrTheWholeHexForm(t *testing.T) {
	for s, want := range map[string]LUN{"0": 0, "7": 7 << 48, "300": 0x412c << 48, "0xc101000000000000": WellKnownReportLUNs} {
		if got, err := ParseLUN(s); err != nil || got != want {
			t.Errorf("%s: got %#x %v", s, uint64(got), err)
		}
	}
	for _, s := range []string{"", "-1", "16777216", "0x12", "0xzzzzzzzzzzzzzzzz", "1 "} {
		if l, err := ParseLUN(s); err == nil {
			t.Errorf("%q was taken as %v", s, l)
		}
	}
	if s := WellKnownReportLUNs.String(); s != "0xc101000000000000" {
		t.Error(s)
	}
}
