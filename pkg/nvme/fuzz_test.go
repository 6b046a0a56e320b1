package nvme

import (
	"reflect"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
)

func FuzzCommand(f *testing.F) {
	f.Add(entry(Read(1, 2, 3, FUA)))
	f.Add(entry(ConnectCommand{QueueID: 1}.Command()))
	f.Add(entry(SetProperty(RegCC, 1)))
	f.Add(entry(ReserveCommand{Op: OpReserveAcquire, Type: 1}.Command(1)))
	f.Fuzz(func(t *testing.T, b []byte) {
		var c, d Command
		if err := c.Decode(b); err != nil {
			if len(b) >= CommandLen {
				t.Fatal(err)
			}
			return
		}
		if err := d.Decode(entry(c)); err != nil || c != d {
			t.Fatalf("%+v became %+v, %v", c, d, err)
		}
		if c.Blocks() < 1 || c.Blocks() > MaxBlocks || c.Ranges() < 1 || c.Ranges() > MaxRanges {
			t.Fatalf("%+v", c)
		}
		if p, st := ParseProperty(&c); st == Success && p.Size != 4 && p.Size != 8 {
			t.Fatalf("%+v", p)
		}
		if r, st := ParseReserve(&c); st == Success && c.Opcode == OpReserveAcquire && !r.Type.Valid() {
			t.Fatalf("%+v", r)
		}
		if r := ParseLogRequest(&c); r.Len%4 != 0 {
			t.Fatalf("%+v", r)
		}
		c.Check()
		ParseConnect(&c)
		ParseAuth(&c)
	})
}

func FuzzCompletion(f *testing.F) {
	b := make([]byte, CompletionLen)
	(&Completion{Status: ReadError.Final()}).Put(b)
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		var c, d Completion
		if c.Decode(b) != nil {
			return
		}
		again := make([]byte, CompletionLen)
		c.Put(again)
		if err := d.Decode(again); err != nil || c != d {
			t.Fatalf("%+v became %+v, %v", c, d, err)
		}
		for _, op := range []blk.Op{blk.Read, blk.Write, blk.Flush, blk.Trim, blk.WriteZeroes} {
			v := Classify(op, c.Status)
			if (v.Class == blk.Good) != (v.Status == blk.OK) || (v.Class == blk.Good) != c.Status.OK() || v.Class == blk.PathLost {
				t.Fatalf("%v: %+v", c.Status, v)
			}
		}
		_ = c.Status.String()
		if caps := ParseCaps(c.Result); ParseCaps(caps.Value()) != caps {
			t.Fatalf("%+v", caps)
		}
		if e := ParseEvent(c.Result); ParseEvent(e.Value()) != e {
			t.Fatalf("%+v", e)
		}
	})
}

func FuzzConnectData(f *testing.F) {
	b, _ := (&ConnectData{Subsystem: "nqn.a", Host: "nqn.b"}).Append(nil)
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		var c, d ConnectData
		if c.Decode(b) != nil {
			return
		}
		again, err := c.Append(nil)
		if err != nil || d.Decode(again) != nil || c != d {
			t.Fatalf("%+v became %+v, %v", c, d, err)
		}
	})
}

// page makes an Identify structure of fewer bytes, so that the fuzzer need not
// find 4096 of them.
func page(b []byte) []byte { return append(b, make([]byte, max(0, IdentifyLen-len(b)))...) }

func FuzzIdentify(f *testing.F) {
	n, c := someNamespace(), full()
	f.Add(n.Append(nil)[:132])
	f.Add(c.Append(nil)[:1804])
	f.Fuzz(func(t *testing.T, b []byte) {
		b = page(b)
		if c, err := ParseController(b); err == nil {
			again, err := ParseController(c.Append(nil))
			if err != nil || c != again {
				t.Fatalf("%+v became %+v, %v", c, again, err)
			}
			c.MaxTransfer(12)
			c.InCapsuleMax()
		}
		n, err := ParseNamespace(b)
		if err != nil {
			return
		}
		again, err := ParseNamespace(n.Append(nil))
		if err != nil || n != again {
			t.Fatalf("%+v became %+v, %v", n, again, err)
		}
		p := Profile{Namespace: n, Caps: ParseCaps(0), Controller: Controller{ONCS: 0xFF, MDTS: b[77]}}
		if l := p.Limits(); p.Check() == nil && (l.MaxTransfer == 0 || l.Size == 0 || l.MaxTransfer%l.BlockSize != 0 && l.MaxTransfer > l.BlockSize) {
			t.Fatalf("%+v of %+v", l, p)
		}
	})
}

func FuzzLists(f *testing.F) {
	d := Descriptors{Identity{"01234567-89ab-cdef-0123-456789abcdef", "", "0011223344556677"}, 0}
	f.Add(d.Append(nil)[:64])
	f.Add(AppendActive(nil, 1, 2, 9)[:16])
	f.Fuzz(func(t *testing.T, b []byte) {
		if d, err := ParseDescriptors(b); err == nil {
			again, err := ParseDescriptors(d.Append(nil))
			if err != nil || d != again {
				t.Fatalf("%+v became %+v, %v", d, again, err)
			}
			if d.Matches(d.String()) == d.None() {
				t.Fatalf("%+v does not match itself", d)
			}
		}
		if ids, err := ParseActive(nil, b); err == nil {
			again, err := ParseActive(nil, AppendActive(nil, ids...))
			if err != nil || !reflect.DeepEqual(ids, again) {
				t.Fatalf("%v became %v, %v", ids, again, err)
			}
		}
		ids, all := ParseChanged(nil, b)
		if again, also := ParseChanged(nil, AppendChanged(nil, ids...)); !all && (also || !reflect.DeepEqual(ids, again)) {
			t.Fatalf("%v became %v, %v", ids, again, also)
		}
	})
}

func FuzzANALog(f *testing.F) {
	l := someANA()
	f.Add(l.Append(nil, false), uint32(128))
	f.Add(l.Append(nil, true), uint32(7))
	f.Fuzz(func(t *testing.T, b []byte, most uint32) {
		l, err := ParseANA(b, most)
		if err != nil {
			return
		}
		for _, g := range l.Groups {
			if g.ID == 0 || g.ID > most || !g.State.Valid() || l.Group(g.ID) == nil {
				t.Fatalf("%+v", g)
			}
		}
		if again, err := ParseANA(l.Append(nil, false), most); err != nil || !reflect.DeepEqual(l, again) {
			t.Fatalf("%+v became %+v, %v", l, again, err)
		}
	})
}

func FuzzLogs(f *testing.F) {
	r := someRecord()
	f.Add(DiscoveryHeader{1, 2}.Append(nil)[:18])
	f.Add(r.Append(nil))
	f.Add((&ErrorEntry{Count: 1}).Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, err := ParseDiscoveryHeader(b); err == nil && h.Records > MaxRecords {
			t.Fatalf("%+v", h)
		}
		for _, r := range ParseRecords(nil, b) {
			again := ParseRecords(nil, r.Append(nil))
			if len(again) != 1 || again[0].Address != r.Address || again[0].Service != r.Service {
				t.Fatalf("%+v became %+v", r, again)
			}
		}
		for _, e := range ParseErrors(nil, b) {
			if again := ParseErrors(nil, e.Append(nil)); len(again) != 1 || again[0] != e {
				t.Fatalf("%+v became %+v", e, again)
			}
		}
		if n, err := ParseReservationNotice(b); err == nil {
			if again, err := ParseReservationNotice(n.Append(nil)); err != nil || again != n {
				t.Fatalf("%+v became %+v", n, again)
			}
		}
		if l, err := ParseCommandLimits(b); err == nil {
			if again, err := ParseCommandLimits(l.Append(nil)); err != nil || again != l {
				t.Fatalf("%+v became %+v", l, again)
			}
		}
	})
}

func FuzzReservations(f *testing.F) {
	s := ReservationStatus{Type: 1, Registrants: []Registrant{{ControllerID: 1, Holds: true, Key: 2}}}
	f.Add(s.Append(nil, true), true)
	f.Add(s.Append(nil, false), false)
	f.Fuzz(func(t *testing.T, b []byte, ext bool) {
		s, total, err := ParseReservationStatus(b, ext)
		if err != nil {
			return
		}
		if len(s.Registrants) > MaxRegistrants || len(s.Registrants)*24 > len(b) {
			t.Fatalf("%d registrants in %d bytes", len(s.Registrants), len(b))
		}
		again, n, err := ParseReservationStatus(s.Append(nil, ext), ext)
		if err != nil || n > total || !reflect.DeepEqual(s, again) {
			t.Fatalf("%+v became %+v, %v", s, again, err)
		}
		_, _, _ = ReserveCommand{Op: OpReserveRegister}.ParseKeys(b)
		_, _ = ParseRanges(nil, b, 4)
	})
}
