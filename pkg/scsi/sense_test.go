package scsi

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
)

var update = flag.Bool("update", false, "rewrite golden files")

func TestSenseOfEveryLengthIsRead(t *testing.T) {
	want := Sense{Key: 6, ASC: 0x29, ASCQ: 1, HasInfo: true, Info: 0x12345678}
	for _, form := range [][]byte{want.AppendFixed(nil), want.AppendDescriptor(nil)} {
		for n := range len(form) + 1 {
			s, ok := ParseSense(form[:n:n])
			if ok && s.Key != want.Key || !ok && n > 2 {
				t.Errorf("% x: %v %v", form[:n], s, ok)
			}
			if n == len(form) && s != want {
				t.Errorf("whole % x: %+v", form, s)
			}
		}
	}
}

func TestSenseIsBelievedOnlyAsFarAsItsOwnLength(t *testing.T) {
	b := Sense{Key: 3, ASC: 0x11, ASCQ: 4}.AppendFixed(nil)
	b[7] = 4 // claims to end before ASC
	if s, ok := ParseSense(b); !ok || s != (Sense{Key: 3}) {
		t.Errorf("%+v %v", s, ok)
	}
	for _, code := range []byte{0x00, 0x6f, 0x74, 0x7f} {
		b[0] = code
		if _, ok := ParseSense(b); ok {
			t.Errorf("response code %02xh was taken", code)
		}
	}
}

func TestCheckConditionWithoutSenseIsRetried(t *testing.T) {
	for _, sense := range [][]byte{nil, {}, {0x70}, {0x70, 0}, {0x00, 0, 5}, bytes.Repeat([]byte{0xff}, 300)} {
		if v := Classify(blk.Write, StatusCheckCondition, sense); v.Class != blk.Retry || v.Status != blk.IOError {
			t.Errorf("% x: %+v", sense, v)
		}
	}
}

func TestStatusCodesHaveTheirClass(t *testing.T) {
	for st := range 256 {
		got := Classify(blk.Write, byte(st), nil)
		want := blk.Verdict{Class: blk.OtherPathOnce, Status: blk.IOError}
		switch st {
		case 0x00, 0x04:
			want = blk.Verdict{}
		case 0x02, 0x40:
			want.Class = blk.Retry
		case 0x08, 0x28:
			want.Class = blk.Busy
		case 0x18:
			want = blk.Verdict{Class: blk.TargetError, Status: blk.Conflict, Evidence: blk.Fenced}
		case 0x30:
			want.Class = blk.RetryLater
		}
		if got != want {
			t.Errorf("status %02xh: %+v, want %+v", st, got, want)
		}
	}
}

// golden walks all sense codes, ASC and ASCQ as one number, and joins equal neighbours.
func golden(op blk.Op, deferred bool) []byte {
	var out bytes.Buffer
	for key := range 16 {
		for code := 0; code < 1<<16; {
			v, first := classify(op, key, code>>8, code&0xff, deferred), code
			for code < 1<<16 && classify(op, key, code>>8, code&0xff, deferred) == v {
				code++
			}
			fmt.Fprintf(&out, "%Xh %04Xh-%04Xh: %v, %v, evidence %02x\n", key, first, code-1, v.Class, v.Status, uint16(v.Evidence))
		}
	}
	return out.Bytes()
}

func classify(op blk.Op, key, asc, q int, deferred bool) blk.Verdict {
	s := Sense{Key: byte(key), ASC: byte(asc), ASCQ: byte(q), Deferred: deferred}
	var buf [SenseLen]byte
	return Classify(op, StatusCheckCondition, s.AppendFixed(buf[:0]))
}

func TestEverySenseCodeKeepsItsGoldenVerdict(t *testing.T) {
	for name, got := range map[string][]byte{
		"classify-write.golden":    golden(blk.Write, false),
		"classify-read.golden":     golden(blk.Read, false),
		"classify-deferred.golden": golden(blk.Write, true)} {
		path := filepath.Join("testdata", name)
		if *update {
			if err := os.WriteFile(path, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s differs; look at the change, then go test ./pkg/scsi -run Golden -update", name)
		}
	}
}

func TestVerdictsOfTheErrorTable(t *testing.T) {
	type row struct {
		key, asc, ascq byte
		class          blk.PathStatus
		status         blk.Status
		ev             blk.Evidence
	}
	rows := []row{
		{5, 0x25, 0, blk.LUNGone, blk.IOError, blk.IdentityChanged},
		{5, 0x20, 0, blk.TargetError, blk.Unsupported, 0},
		{5, 0x21, 0, blk.TargetError, blk.NoSpace, blk.CapacityChanged},
		{5, 0x24, 0, blk.TargetError, blk.Invalid, 0},
		{5, 0x27, 0, blk.TargetError, blk.NotPermitted, 0},
		{3, 0x11, 0, blk.TargetError, blk.IOError, 0},
		{3, 0x0c, 2, blk.TargetError, blk.IOError, 0},
		{4, 0x44, 0, blk.OtherPathOnce, blk.IOError, 0},
		{7, 0x27, 7, blk.TargetError, blk.NoSpace, blk.OutOfSpace},
		{7, 0x27, 0, blk.TargetError, blk.NotPermitted, 0},
		{0xb, 0x10, 1, blk.TargetError, blk.IOError, 0},
		{0xb, 0x00, 0, blk.Retry, blk.IOError, 0},
		{1, 0x17, 0, blk.Good, blk.OK, 0},
		{6, 0x29, 0, blk.Retry, blk.IOError, blk.ReservationChanged | blk.AccessChanged},
		{6, 0x29, 1, blk.Retry, blk.IOError, blk.ReservationChanged | blk.AccessChanged | blk.CacheLost},
		{6, 0x29, 4, blk.Retry, blk.IOError, blk.ReservationChanged | blk.AccessChanged},
		{6, 0x2a, 1, blk.Retry, blk.IOError, blk.AccessChanged},
		{6, 0x2a, 3, blk.Retry, blk.IOError, blk.ReservationChanged},
		{6, 0x2a, 6, blk.Retry, blk.IOError, blk.AccessChanged},
		{6, 0x2a, 7, blk.Retry, blk.IOError, blk.AccessChanged},
		{6, 0x2a, 9, blk.Retry, blk.IOError, blk.CapacityChanged},
		{6, 0x2f, 0, blk.Retry, blk.IOError, 0},
		{6, 0x38, 7, blk.Retry, blk.IOError, blk.SpaceLow},
		{6, 0x3f, 3, blk.Retry, blk.IOError, blk.IdentityChanged},
		{6, 0x3f, 0xe, blk.Retry, blk.IOError, blk.IdentityChanged},
		{2, 4, 1, blk.RetryLater, blk.IOError, 0},
		{2, 4, 0xa, blk.RetryLater, blk.IOError, blk.AccessChanged},
		{2, 4, 0xb, blk.WrongState, blk.IOError, blk.AccessChanged},
		{2, 4, 0xc, blk.WrongState, blk.IOError, blk.AccessChanged},
		{2, 4, 0x1b, blk.RetryLater, blk.IOError, 0},
		{2, 4, 0x25, blk.TargetError, blk.IOError, 0},
		{2, 4, 3, blk.OtherPathOnce, blk.IOError, 0},
		{0xe, 0x1d, 0, blk.TargetError, blk.IOError, 0},
	}
	for _, r := range rows {
		for _, form := range [][]byte{Sense{Key: r.key, ASC: r.asc, ASCQ: r.ascq}.AppendFixed(nil),
			Sense{Key: r.key, ASC: r.asc, ASCQ: r.ascq}.AppendDescriptor(nil)} {
			got := Classify(blk.Write, StatusCheckCondition, form)
			if want := (blk.Verdict{Class: r.class, Status: r.status, Evidence: r.ev}); got != want {
				t.Errorf("%Xh/%02Xh/%02Xh: %+v, want %+v", r.key, r.asc, r.ascq, got, want)
			}
		}
	}
}

func TestOnlyPowerOnAndLostWriteBackProveALostCache(t *testing.T) {
	for key := range 16 {
		for asc := range 256 {
			for q := range 256 {
				for _, deferred := range []bool{false, true} {
					lost := classify(blk.Flush, key, asc, q, deferred).Evidence&blk.CacheLost != 0
					want := !deferred && key == 6 && asc == 0x29 && q == 1 || deferred && (key == 3 || key == 4)
					if lost != want {
						t.Fatalf("%Xh/%02Xh/%02Xh deferred %v: cache lost %v", key, asc, q, deferred, lost)
					}
				}
			}
		}
	}
}

func TestClassifyAllocatesNothing(t *testing.T) {
	b := Sense{Key: 6, ASC: 0x29}.AppendDescriptor(nil)
	if n := testing.AllocsPerRun(100, func() { Classify(blk.Read, StatusCheckCondition, b) }); n != 0 {
		t.Fatal(n)
	}
}

func FuzzClassify(f *testing.F) {
	f.Add(byte(2), Sense{Key: 6, ASC: 0x29, HasInfo: true, Info: 7}.AppendDescriptor(nil))
	f.Add(byte(2), Sense{Key: 3, ASC: 0x11}.AppendFixed(nil))
	f.Fuzz(func(t *testing.T, status byte, sense []byte) {
		v := Classify(blk.Write, status, sense)
		if v.Class == blk.Good && v.Status != blk.OK || v.Class > blk.Aborted {
			t.Fatalf("%02x % x: %+v", status, sense, v)
		}
		s, ok := ParseSense(sense)
		if !ok {
			return
		}
		again, ok := ParseSense(s.AppendDescriptor(nil))
		if !ok || again != s {
			t.Fatalf("%+v came back as %+v", s, again)
		}
	})
}
