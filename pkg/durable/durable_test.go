package durable

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/faultpoint"
)

// crash is what a fault point throws in tests.
type crash struct{}

func crashing(f func()) {
	defer func() {
		if p := recover(); p != nil && p != any(crash{}) {
			panic(p)
		}
	}()
	f()
}

func TestAWriteThatIsCutShortLeavesTheOldOrTheNewContent(t *testing.T) {
	for _, point := range []string{"durable.write.written", "durable.write.renamed"} {
		path := filepath.Join(t.TempDir(), "f")
		if err := Write(path, []byte("old")); err != nil {
			t.Fatal(err)
		}
		restore := faultpoint.Set(func(name string) {
			if name == point {
				panic(crash{})
			}
		})
		crashing(func() { _ = Write(path, []byte("new")) })
		restore()
		want := map[string]string{"durable.write.written": "old", "durable.write.renamed": "new"}[point]
		if got, err := Read(path, 10); err != nil || string(got) != want {
			t.Errorf("after a crash at %s: %q, %v; want %q", point, got, err, want)
		}
	}
}

func TestAWrittenFileIsItsOwnersOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := Write(path, []byte("x")); err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(path)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v; want 0600", st.Mode(), err)
	}
}

func TestAFileBeyondTheLimitIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := Write(path, []byte("12345")); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path, 5); err != nil {
		t.Error(err)
	}
	if _, err := Read(path, 4); err == nil {
		t.Error("5 bytes were read with a limit of 4")
	}
}

func TestRemovingWhatIsNotThereSucceeds(t *testing.T) {
	if err := Remove(filepath.Join(t.TempDir(), "f")); err != nil {
		t.Error(err)
	}
}

func TestSweepRemovesUnfinishedFilesOnly(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{temporary + "1", "kept"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := Sweep(dir); err != nil {
		t.Fatal(err)
	}
	entries, _ := os.ReadDir(dir)
	if len(entries) != 1 || entries[0].Name() != "kept" {
		t.Errorf("left: %v", entries)
	}
}
