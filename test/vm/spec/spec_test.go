package spec

import "testing"

func TestAnOutcomeSurvivesTheSerialPort(t *testing.T) {
	for _, o := range []Outcome{{}, {Code: 3}, {Code: 255}, {Why: "mount /proc: no such device"}} {
		if got, ok := ParseOutcome(o.String()); !ok || got != o {
			t.Errorf("%+v came back as %+v, %v", o, got, ok)
		}
	}
}

func TestAnOutcomeThatWasCutShortIsNone(t *testing.T) {
	for _, s := range []string{"", "exit", "exit 0", "exit \n", "exit -1\n", "exit 256\n", "exit 1x\n", "failed x", "done 0\n", "exit 0\nexit 0\n"} {
		if got, ok := ParseOutcome(s); ok {
			t.Errorf("%q: got %+v", s, got)
		}
	}
}

func FuzzOutcome(f *testing.F) {
	f.Add("exit 7\n")
	f.Add("failed \n")
	f.Fuzz(func(t *testing.T, s string) {
		o, ok := ParseOutcome(s)
		if !ok {
			return
		}
		if again, ok := ParseOutcome(o.String()); !ok || again.Code != o.Code {
			t.Fatalf("%q: %+v became %+v, %v", s, o, again, ok)
		}
	})
}
