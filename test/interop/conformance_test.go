//go:build interop

package interop

import (
	"bufio"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/target"
)

// never are the tests of iscsi-test-cu (by their name, or by their suite's) that
// never run against the embedded target, and why.
var never = map[string]string{
	"ExtendedCopy":         "EXTENDED COPY is not offered: nobody copies between units here",
	"ReceiveCopyResults":   "as EXTENDED COPY",
	"Sanitize":             "SANITIZE is not offered: it destroys a unit, and needs a background operation",
	"Reserve6":             "RESERVE(6) and RELEASE(6) are obsolete since SPC-3; persistent reservations are there",
	"WriteAtomic16":        "WRITE ATOMIC is SBC-4; the target claims SBC-3",
	"PreventAllow":         "for removable media: the command is taken, the medium is fixed",
	"StartStopUnit.Simple": "for removable media: the commands are taken, but not to eject",
	"ReportSupportedOpcodes.OneCommand": "the suite asks for reporting option 010b where INVALID FIELD IN CDB is due, " +
		"expects just that, and then takes it for a command that is missing; pkg/target tests it",
	"WriteSame10.ZeroBlocks": "a length of zero is refused, as VPD page B0h says (WSNZ)",
	"WriteSame16.ZeroBlocks": "a length of zero is refused, as VPD page B0h says (WSNZ)",
}

// conformance is one run of iscsi-test-cu.
type conformance struct {
	lun   func(t *testing.T) target.LUN
	paths int
	only  string // suite; all if empty
	// skips and failures, by test or suite, with their reason; besides never.
	skips, failures map[string]string
}

const (
	wantsPhysical = "wants physical blocks larger than logical ones: the run on a unit of 512e has them"
	wantsPaths    = "wants two paths: other runs have them"
	wantsThin     = "wants a thin unit: other runs have them"
	wantsReadOnly = "wants a unit that is write-protected: a run of its own has it"
)

var runs = map[string]conformance{
	"RAM": {
		// The unit is as long as one transfer: the suite takes MAXIMUM WRITE SAME
		// LENGTH for a length it may read at once.
		lun:   func(*testing.T) target.LUN { return target.LUN{Store: target.NewRAM(4 * mib)} },
		paths: 2,
		skips: map[string]string{"ReadOnly": wantsReadOnly, "CompareAndWrite.InvalidDataOutSize": wantsPhysical,
			"WriteSame10.InvalidDataOutSize": wantsPhysical, "WriteSame16.InvalidDataOutSize": wantsPhysical,
			"WriteSame10.UnmapUnaligned": wantsPhysical, "WriteSame16.UnmapUnaligned": wantsPhysical},
	},
	"file": {
		lun:   func(t *testing.T) target.LUN { return target.LUN{Store: diskFile(t, 4*mib, target.Options{})} },
		paths: 2,
		skips: map[string]string{"ReadOnly": wantsReadOnly, "CompareAndWrite.InvalidDataOutSize": wantsPhysical,
			"WriteSame10.InvalidDataOutSize": wantsPhysical, "WriteSame16.InvalidDataOutSize": wantsPhysical,
			"WriteSame10.UnmapUnaligned": wantsPhysical, "WriteSame16.UnmapUnaligned": wantsPhysical},
	},
	"RAM, 4096-byte blocks": {
		lun: func(*testing.T) target.LUN {
			return target.LUN{Store: target.NewRAM(40 * mib), Device: target.Device{BlockSize: 4096}}
		},
		paths: 1,
		skips: map[string]string{"ReadOnly": wantsReadOnly, "CompareAndWrite.InvalidDataOutSize": wantsPhysical,
			"WriteSame10.InvalidDataOutSize": wantsPhysical, "WriteSame16.InvalidDataOutSize": wantsPhysical,
			"WriteSame10.UnmapUnaligned": wantsPhysical, "WriteSame16.UnmapUnaligned": wantsPhysical,
			"MultipathIO": wantsPaths},
		failures: map[string]string{"ExtendedCopy.Simple": "prepares itself with a WRITE(16) of 2048 blocks, here 8 MiB, " +
			"whatever MAXIMUM TRANSFER LENGTH says; the copy it is about is not offered anyway"},
	},
	"RAM, 512e": {
		lun: func(*testing.T) target.LUN {
			return target.LUN{Store: target.NewRAM(4 * mib), Device: target.Device{PhysicalExp: 3}}
		},
		paths: 1,
		skips: map[string]string{"ReadOnly": wantsReadOnly, "MultipathIO": wantsPaths},
		failures: map[string]string{"GetLBAStatus.UnmapSingle": "asks for the status from LBA i+1 on and wants an answer that " +
			"begins at i+8; SBC-3 5.4.2 wants it to begin at the LBA asked for"},
	},
	"file, thick": {
		lun: func(t *testing.T) target.LUN {
			return target.LUN{Store: diskFile(t, 4*mib, target.Options{}), Thick: true}
		},
		paths: 1,
		skips: map[string]string{"ReadOnly": wantsReadOnly, "MultipathIO": wantsPaths, "Unmap": wantsThin,
			"CompareAndWrite.InvalidDataOutSize": wantsThin, "GetLBAStatus.UnmapSingle": wantsThin, "Inquiry.BlockLimits": wantsThin,
			"WriteSame10.InvalidDataOutSize": wantsThin, "WriteSame16.InvalidDataOutSize": wantsThin,
			"WriteSame10.Unmap": wantsThin, "WriteSame16.Unmap": wantsThin,
			"WriteSame10.UnmapUnaligned": wantsThin, "WriteSame16.UnmapUnaligned": wantsThin,
			"WriteSame10.UnmapUntilEnd": wantsThin, "WriteSame16.UnmapUntilEnd": wantsThin},
	},
	"read-only": {
		lun:   func(*testing.T) target.LUN { return target.LUN{Store: target.NewRAM(4 * mib), ReadOnly: true} },
		paths: 1, only: "ReadOnly",
	},
}

// verdict is what the suite said of one test.
type verdict struct{ skipped, failed bool }

var (
	suiteLine = regexp.MustCompile(`^Suite: (\S+)`)
	testLine  = regexp.MustCompile(`^  Test: (\S+) \.\.\.`)
)

// verdicts reads the suite's output. Its messages come between a test's name
// and its "passed" or "FAILED"; "[FAILED]" in a message may be what the test
// wanted.
func verdicts(out string) (all map[string]verdict, order []string) {
	all = map[string]verdict{}
	suite, test := "", ""
	for lines := bufio.NewScanner(strings.NewReader(out)); lines.Scan(); {
		l := lines.Text()
		if m := suiteLine.FindStringSubmatch(l); m != nil {
			suite, test = m[1], ""
		}
		if m := testLine.FindStringSubmatch(l); m != nil {
			test = suite + "." + m[1]
			order = append(order, test)
			l = strings.TrimPrefix(l, m[0])
		}
		v := all[test]
		v.skipped = v.skipped || strings.Contains(l, "[SKIPPED]")
		v.failed = v.failed || strings.TrimSpace(l) == "FAILED"
		all[test] = v
	}
	delete(all, "")
	return all, order
}

// reason finds a test, or its suite, in one of the lists.
func reason(test string, lists ...map[string]string) bool {
	suite, _, _ := strings.Cut(test, ".")
	return slices.ContainsFunc(lists, func(l map[string]string) bool { return l[test] != "" || l[suite] != "" })
}

func TestTheConformanceSuitesFailuresAndSkipsAreThoseWithAReason(t *testing.T) {
	for name, r := range runs {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // the suite mostly waits
			r.run(t)
		})
	}
}

func (r *conformance) run(t *testing.T) {
	_, urls := serve(t, target.Config{LUNs: []target.LUN{r.lun(t)}})
	which := "ALL"
	if r.only != "" {
		which += "." + r.only
	}
	// Its exit code is 1 when a test failed; which one decides below.
	out, _ := foreign(t, nil, "iscsi-test-cu", append([]string{"-d", "-v", "-t", which}, urls[:r.paths]...)...)
	all, order := verdicts(out)
	if want := 200; r.only == "" && len(all) < want || len(all) == 0 || len(order) != len(all) || !strings.Contains(out, "Run Summary") {
		t.Fatalf("%d tests ran, want at least %d\n%s", len(all), want, out)
	}
	passed := 0
	for _, test := range order {
		switch v := all[test]; {
		case v.failed && !reason(test, r.failures):
			t.Errorf("%s failed", test)
		case v.skipped && !v.failed && !reason(test, r.skips, never):
			t.Errorf("%s was skipped", test)
		case !v.failed && !v.skipped:
			passed++
		}
	}
	for test := range maps.Keys(r.failures) {
		if !all[test].failed {
			t.Errorf("%s passes: take it off the list", test)
		}
	}
	t.Logf("%d of %d tests passed, %d are listed", passed, len(all), len(all)-passed)
	if t.Failed() {
		t.Log(out)
	}
}

// TestWhatOneRunSkipsAnotherDoes holds that what a run skips for its unit's sake, another
// run does.
func TestWhatOneRunSkipsAnotherDoes(t *testing.T) {
	for name, r := range runs {
		for test, why := range r.skips {
			done := false
			for _, o := range runs {
				done = done || !reason(test, o.skips) && !reason(test, o.failures) && (o.only == "" || o.only == test)
			}
			if !done {
				t.Errorf("%s: no run does %s (%s)", name, test, why)
			}
		}
	}
}
