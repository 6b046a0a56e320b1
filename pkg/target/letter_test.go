package target

import (
	"bytes"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
)

func twist(t *testing.T, r *rig, kind Kind, w Twist) *Letters {
	t.Helper()
	l, err := r.SpoilAnswers(Match{Kind: kind, Count: 1}, w)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestALateAnswerComesAfterItsAbort(t *testing.T) {
	r := newRig(t, nil)
	c := r.session(1, 1)
	twist(t, r, Writes, Twist{Delay: time.Minute})
	itt := c.writeCmd(0, block(7, 1))
	c.quiet()
	if r.first(0) != 7 {
		t.Error("not executed at once")
	}
	if got := c.tmf(pdu.TMFAbortTask, itt); got != pdu.TMFNoTask {
		t.Errorf("response %d", got)
	}
	r.Tick(epoch.Add(59 * time.Second))
	c.quiet()
	if at, ok := r.Next(); !ok || !at.Equal(epoch.Add(time.Minute)) {
		t.Error(at, ok)
	}
	r.Tick(epoch.Add(time.Minute))
	c.good(itt)
}

func TestAKeptReadHasTheDataOfItsTime(t *testing.T) {
	r := newRig(t, nil)
	_ = r.ram.WriteAt(block(1, 100), 0)
	c := r.session(1, 1)
	l := twist(t, r, Reads, Twist{Keep: true})
	itt := c.readCmd(0, 100)
	c.good(c.writeCmd(0, block(2, 16)))
	if l.Len() != 1 || r.Buffers.Held() != 0 {
		t.Errorf("%d kept, %d bytes", l.Len(), r.Buffers.Held())
	}
	l.Release()
	if got := c.good(itt); !bytes.Equal(got, block(1, 100)) {
		t.Error("it has newer data")
	}
	c.quiet()
}

func TestAnAnswerOfALostConnectionGoesNowhereOrElsewhere(t *testing.T) {
	r := newRig(t, nil)
	for _, elsewhere := range []bool{false, true} {
		a, b := r.session(1, 1), r.session(2, 2)
		l := twist(t, r, Writes, Twist{Keep: true, Elsewhere: elsewhere})
		itt := a.writeCmd(0, block(7, 1))
		a.c.Gone()
		l.Release()
		if !elsewhere {
			b.quiet()
			continue
		}
		b.good(itt) // for a command that b never sent, or for its own of that tag
	}
}

func TestAnAnswerComesTwice(t *testing.T) {
	r := newRig(t, nil)
	c := r.session(1, 1)
	twist(t, r, Any, Twist{Twice: true})
	itt := c.readCmd(0, 1)
	c.good(itt)
	c.good(itt)
	c.good(c.readCmd(0, 1)) // the fault is over
	c.quiet()
}

func TestBitsAreFlippedWhereTheyAreWanted(t *testing.T) {
	crc := []pdu.Pair{{Key: "HeaderDigest", Value: "CRC32C"}, {Key: "DataDigest", Value: "CRC32C"}}
	flip := Flip{At: 5, Mask: 0x80}
	for name, k := range map[string]struct {
		w            Twist
		header, data bool // what a digest finds
	}{"data": {Twist{Data: flip}, false, false}, "wire": {Twist{Wire: flip}, false, true}, "header": {Twist{Header: Flip{At: 16, Mask: 1}}, true, false}} {
		r := newRig(t, nil)
		_ = r.ram.WriteAt(block(1, 1), 0)
		c := r.dial(1)
		c.mustLogin(crc...)
		twist(t, r, Reads, k.w)
		c.readCmd(0, 1)
		c.drain()
		start := c.layout.DataStart(0)
		data := c.in[start : start+512]
		if got := c.layout.CheckHeader(c.in[:start]) != nil; got != k.header {
			t.Errorf("%s: the header's digest fails: %v", name, got)
		}
		if got := c.layout.CheckTrailer(c.in[start+512:], 512, pdu.CRC(0, data)) != nil; got != k.data {
			t.Errorf("%s: the data's digest fails: %v", name, got)
		}
		if bad := data[5] != 1; bad == k.header {
			t.Errorf("%s: byte 5 is %02x", name, data[5])
		}
	}
}

func TestASpoiltStatusKeepsItsSense(t *testing.T) {
	r := newRig(t, nil)
	c := r.session(1, 1)
	l := twist(t, r, Reads, Twist{Keep: true})
	itt := c.readCmd(1<<30, 1)
	c.quiet()
	r.ClearFaults() // sends what is kept
	c.fails(itt, scsi.SenseOutOfRange)
	if l.Len() != 0 {
		t.Error("kept on")
	}
}

func TestBusyAndFullAndOutOfSpaceAreAnswersLikeOthers(t *testing.T) {
	r := newRig(t, nil)
	c := r.session(1, 1)
	for _, st := range []byte{scsi.StatusBusy, scsi.StatusTaskSetFull, scsi.StatusReservationConflict, scsi.StatusTaskAborted} {
		_ = r.Answer(Match{Count: 1}, st, scsi.Sense{})
		if got := c.status(c.readCmd(0, 1)); got != st {
			t.Errorf("status %02x, want %02x", got, st)
		}
	}
	_ = r.Answer(Match{Kind: Writes, Count: 1}, scsi.StatusCheckCondition, NoSpace)
	c.fails(c.writeCmd(0, block(1, 1)), senseNoSpace)
	c.good(c.readCmd(0, 1))
}
