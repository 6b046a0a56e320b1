package device

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestWhatAVolumesTrafficTaughtIsThereForTheNextProcess(t *testing.T) {
	d := &Device{learned: filepath.Join(t.TempDir(), "v.learned")}
	if got := readLearned(d.learned); got != 0 {
		t.Fatalf("%v before anything was learned", got)
	}
	d.learn(500 * time.Microsecond)
	d.learn(time.Millisecond)
	if got := readLearned(d.learned); got != time.Millisecond {
		t.Fatalf("%v", got)
	}
}

func TestADamagedFileOfWhatWasLearnedIsNoAdvice(t *testing.T) {
	path := filepath.Join(t.TempDir(), "v.learned")
	for _, s := range []string{"", "{", `{"version":2,"mergeDeadlineNanoseconds":1000}`,
		`{"version":1,"mergeDeadlineNanoseconds":-5}`, `{"version":1,"mergeDeadlineNanoseconds":100000000000}`} {
		if err := os.WriteFile(path, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := readLearned(path); got != 0 {
			t.Errorf("%s: %v", s, got)
		}
	}
}
