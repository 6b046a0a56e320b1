package nvme

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
)

var update = flag.Bool("update", false, "write the golden files")

// golden lists the verdict of every status; runs of equal ones are one line.
func golden(op blk.Op, final bool) []byte {
	var out bytes.Buffer
	from, last := Status(0), blk.Verdict{}
	line := func(to Status) {
		fmt.Fprintf(&out, "%X/%02X-%X/%02X %v, %v, evidence %03X\n", from.Type(), uint8(from), to.Type(), uint8(to),
			last.Class, last.Status, uint16(last.Evidence))
	}
	for s := range Status(statusCode + 1) {
		v := s
		if final {
			v = s.Final()
		}
		got := Classify(op, v)
		if s > 0 && (got != last || s&0xFF == 0) {
			line(s - 1)
			from = s
		}
		last = got
	}
	line(statusCode)
	return out.Bytes()
}

func TestEveryStatusKeepsItsGoldenVerdict(t *testing.T) {
	for name, got := range map[string][]byte{
		"classify-write.golden":       golden(blk.Write, false),
		"classify-read.golden":        golden(blk.Read, false),
		"classify-write-final.golden": golden(blk.Write, true)} {
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
			t.Errorf("%s differs; look at the change, then go test ./pkg/nvme -run Golden -update", name)
		}
	}
}

func TestVerdictsOfTheStatusTable(t *testing.T) {
	for _, r := range []struct {
		s      Status
		class  blk.PathStatus
		status blk.Status
		ev     blk.Evidence
	}{
		{Success, blk.Good, blk.OK, 0},
		{InvalidOpcode, blk.TargetError, blk.Unsupported, 0},
		{InvalidField, blk.TargetError, blk.Invalid, 0},
		{DataTransferError, blk.Retry, blk.IOError, 0},
		{TransientTransport, blk.Retry, blk.IOError, 0},
		{AbortRequested, blk.Aborted, blk.IOError, 0},
		{AbortedByHost, blk.Aborted, blk.IOError, 0},
		{InvalidNamespace, blk.LUNGone, blk.IOError, blk.IdentityChanged},
		{InternalError, blk.OtherPathOnce, blk.IOError, 0},
		{SQDeleted, blk.RetryLater, blk.IOError, 0},
		{CommandInterrupted, blk.RetryLater, blk.IOError, 0},
		{NamespaceNotReady, blk.RetryLater, blk.IOError, 0},
		{WriteProtected, blk.TargetError, blk.NotPermitted, 0},
		{AccessDenied, blk.TargetError, blk.NotPermitted, 0},
		{ReadOnlyRange, blk.TargetError, blk.NotPermitted, 0},
		{LBAOutOfRange, blk.TargetError, blk.NoSpace, blk.CapacityChanged},
		{CapacityExceeded, blk.TargetError, blk.NoSpace, blk.OutOfSpace},
		{ReservationConflict, blk.TargetError, blk.Conflict, blk.Fenced},
		{PreemptAborted, blk.Retry, blk.Conflict, blk.ReservationChanged},
		{WriteFault, blk.TargetError, blk.IOError, 0},
		{ReadError, blk.TargetError, blk.IOError, 0},
		{GuardCheck, blk.TargetError, blk.IOError, 0},
		{Unwritten, blk.TargetError, blk.IOError, 0},
		{InternalPathError, blk.RetryLater, blk.IOError, 0},
		{ANAPersistentLoss, blk.WrongState, blk.IOError, blk.AccessChanged},
		{ANAInaccessible, blk.WrongState, blk.IOError, blk.AccessChanged},
		{ANATransition, blk.WrongState, blk.IOError, blk.AccessChanged},
		{ControllerPathError, blk.RetryLater, blk.IOError, 0},
		{HostPathError, blk.RetryLater, blk.IOError, 0},
		{0x0C5, blk.OtherPathOnce, blk.IOError, 0},
		{0x7FF, blk.OtherPathOnce, blk.IOError, 0},
	} {
		want := blk.Verdict{Class: r.class, Status: r.status, Evidence: r.ev}
		if got := Classify(blk.Write, r.s); got != want {
			t.Errorf("%v: %+v, want %+v", r.s, got, want)
		}
		if got := Classify(blk.Write, r.s|more); got != want {
			t.Errorf("%v with More: %+v, want %+v", r.s, got, want)
		}
	}
}

// B-26: DNR=1 is final for the command, but not for what one path says of itself.
func TestB26DoNotRetryIsFinalExceptForPaths(t *testing.T) {
	for s := range Status(statusCode + 1) {
		plain, final := Classify(blk.Write, s), Classify(blk.Write, s.Final())
		switch {
		case s.Type() == 3 || ofPath(s) || plain.Class == blk.LUNGone || plain.Class == blk.Aborted || s == Success:
			if final != plain {
				t.Errorf("%v: %+v with DNR, %+v without", s, final, plain)
			}
		case final.Class != blk.TargetError || final.Evidence != plain.Evidence || final.Status != plain.Status:
			t.Errorf("%v: %+v with DNR, %+v without", s, final, plain)
		}
	}
}

// B-26: CRD=2 with CRDT2=10 waits one second.
func TestB26ARetryWaitsAsLongAsTheControllerSays(t *testing.T) {
	c := Controller{RetryDelays: [3]uint16{1, 10, 65535}}
	for _, r := range []struct {
		s    Status
		want uint16
	}{{CommandInterrupted, 0}, {CommandInterrupted.After(1), 1}, {CommandInterrupted.After(2), 10},
		{CommandInterrupted.After(3), 65535}, {CommandInterrupted.After(2).Final(), 0}} {
		got := c.Classify(blk.Read, r.s)
		if got.After != r.want {
			t.Errorf("%v: after %d, want %d", r.s, got.After, r.want)
		}
		if got.After = 0; got != Classify(blk.Read, r.s) {
			t.Errorf("%v: %+v", r.s, got)
		}
	}
}

// B-23: a conflict is the same on all paths, whatever DNR says.
func TestB23AReservationConflictIsFinal(t *testing.T) {
	for _, s := range []Status{0x083, ReservationConflict.Final(), ReservationConflict.After(1)} {
		for _, op := range []blk.Op{blk.Read, blk.Write, blk.Flush, blk.Trim, blk.WriteZeroes} {
			if v := Classify(op, s); v != (blk.Verdict{Class: blk.TargetError, Status: blk.Conflict, Evidence: blk.Fenced}) {
				t.Errorf("%v %v: %+v", op, s, v)
			}
		}
	}
}

func TestAReadBeyondTheEndIsInvalidAndAWriteHasNoSpace(t *testing.T) {
	if v := Classify(blk.Read, LBAOutOfRange.Final()); v.Status != blk.Invalid || v.Evidence != blk.CapacityChanged {
		t.Errorf("%+v", v)
	}
}

func TestStatusesAreErrors(t *testing.T) {
	err := fmt.Errorf("connect: %w", AuthRequired.Final())
	if !errors.Is(err, AuthRequired) || errors.Is(err, InvalidHost) || Success.Err() != nil || ReadError.Err() == nil {
		t.Error(err)
	}
	if got := (CommandInterrupted | more).After(2).Final().Error(); got != "nvme status 0/21h command interrupted, retry after CRDT2, do not retry" {
		t.Error(got)
	}
	if got := Status(0x7C1).Error(); got != "nvme status 7/C1h unknown" {
		t.Error(got)
	}
}

func TestClassifyAllocatesNothing(t *testing.T) {
	var verdict blk.Verdict
	if n := testing.AllocsPerRun(100, func() { verdict = Classify(blk.Read, ANAInaccessible.Final()) }); n != 0 {
		t.Fatal(n, verdict)
	}
}
