package nvme

import (
	"reflect"
	"testing"
)

func TestReservationCommandsComeBack(t *testing.T) {
	for _, in := range []ReserveCommand{
		{Op: OpReserveRegister, Action: ActionRegister, Persist: PersistOn},
		{Op: OpReserveRegister, Action: ActionReplace, Ignore: true},
		{Op: OpReserveAcquire, Action: ActionPreemptAbort, Type: WriteExclusiveRegistrantsOnly, Ignore: true},
		{Op: OpReserveRelease, Action: ActionRelease, Type: ExclusiveAllRegistrants},
		{Op: OpReserveRelease, Action: ActionClear},
	} {
		c := in.Command(1)
		got, st := ParseReserve(&c)
		if st != Success || got != in {
			t.Errorf("%+v became %+v, %v", in, got, st)
		}
		b := in.AppendKeys(nil, 1, 2)
		cur, other, err := in.ParseKeys(b)
		if err != nil || cur != 1 || len(b) != in.KeysLen() || other != 2 && in.Op != OpReserveRelease {
			t.Errorf("%+v: %d bytes, %d, %d, %v", in, len(b), cur, other, err)
		}
		if _, _, err := in.ParseKeys(b[:len(b)-1]); err == nil {
			t.Error("short keys were taken")
		}
	}
}

func TestReservationCommandsThatMakeNoSenseAreRefused(t *testing.T) {
	for _, in := range []ReserveCommand{
		{Op: OpReserveRegister, Action: 3}, {Op: OpReserveRegister, Persist: 1},
		{Op: OpReserveAcquire, Action: 3, Type: 1}, {Op: OpReserveAcquire, Type: 0}, {Op: OpReserveAcquire, Type: 7},
		{Op: OpReserveRelease, Action: 2, Type: 1}, {Op: OpReserveRelease, Type: 0},
	} {
		c := in.Command(1)
		if _, st := ParseReserve(&c); st != InvalidField.Final() {
			t.Errorf("%+v: %v", in, st)
		}
	}
}

func TestReservationReportsComeBack(t *testing.T) {
	for _, ext := range []bool{false, true} {
		in := ReservationStatus{Generation: 9, Type: WriteExclusiveRegistrantsOnly, Persist: true, Registrants: []Registrant{
			{ControllerID: 1, Holds: true, Key: 0x1122334455667788, HostID: [16]byte{1, 7: 2}}, {ControllerID: 0xFFFF, Key: 3}}}
		if ext {
			in.Registrants[0].HostID[15] = 9
		}
		b := in.Append(nil, ext)
		got, total, err := ParseReservationStatus(b, ext)
		if err != nil || total != len(b) || total != ReservationStatusLen(2, ext) || !reflect.DeepEqual(got, in) {
			t.Errorf("extended %v: %+v, %d of %d, %v", ext, got, total, len(b), err)
		}
		if got, total, err := ParseReservationStatus(b[:len(b)-1], ext); err != nil || len(got.Registrants) != 1 || total != len(b) {
			t.Errorf("cut: %+v, %d, %v", got, total, err)
		}
		if _, _, err := ParseReservationStatus(b[:20], ext); err == nil {
			t.Error("20 bytes were taken")
		}
		b[4] = 7
		if _, _, err := ParseReservationStatus(b, ext); err == nil {
			t.Error("type 7 was taken")
		}
	}
}

// B-23: hosts with 128-bit identifiers ask for the extended form.
func TestB23AReportAsksForLongHostIdentifiers(t *testing.T) {
	c := ReserveReport(1, 4096, true)
	if !c.ReportExtended() || c.ReportLen() != 4096 {
		t.Errorf("%+v", c)
	}
	if c = ReserveReport(1, 64, false); c.ReportExtended() || c.ReportLen() != 64 {
		t.Errorf("%+v", c)
	}
	if c.CDW10 = 1<<32 - 1; c.ReportLen() != 0 {
		t.Error("16 GiB are not 0")
	}
}

func TestReservationTypesSayWhoMayDoWhat(t *testing.T) {
	for ty, want := range map[ReserveType][4]bool{ // valid, registrants write, all hold, reads conflict
		NoReservation: {}, WriteExclusive: {true, false, false, false}, ExclusiveAccess: {true, false, false, true},
		WriteExclusiveRegistrantsOnly: {true, true, false, false}, ExclusiveRegistrantsOnly: {true, true, false, true},
		WriteExclusiveAllRegistrants: {true, true, true, false}, ExclusiveAllRegistrants: {true, true, true, true}, 7: {},
	} {
		if got := [4]bool{ty.Valid(), ty.Registrants(), ty.AllRegistrants(), ty.ReadsConflict()}; got != want {
			t.Errorf("type %d: %v, want %v", ty, got, want)
		}
	}
}
