package durable

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestADirectoryOthersMayWriteIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil { //nolint:gosec // that is the point
		t.Fatal(err)
	}
	if err := Own(dir); err == nil || !strings.Contains(err.Error(), dir) {
		t.Fatalf("%v", err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(t.TempDir(), link); err != nil {
		t.Fatal(err)
	}
	if err := Own(link); err == nil {
		t.Fatal("a symbolic link was followed")
	}
	if err := Own(filepath.Join(t.TempDir(), "new", "deep")); err != nil {
		t.Fatal(err)
	}
}

func TestALockHasOneHolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := Lock(path, true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Lock(path, true); !errors.Is(err, ErrLocked) {
		t.Errorf("a second holder: %v", err)
	}
	unlock()
	again, err := Lock(path, true)
	if err != nil {
		t.Fatal(err)
	}
	again()
}

func TestFileNamesAreDifferentAndShort(t *testing.T) {
	seen := map[string]string{}
	for _, n := range []string{"", "a", "A", "a/b", "a-b", "../x", "a.b", strings.Repeat("x", 500), strings.Repeat("x", 499)} {
		f := FileName(n)
		if len(f) > maxReadable+9 || strings.ContainsAny(f, "/.") {
			t.Errorf("%q became %q", n, f)
		}
		if was, twice := seen[f]; twice {
			t.Errorf("%q and %q are both %s", n, was, f)
		}
		seen[f] = n
	}
}

func TestALockThatItsHolderRemovedIsNobodys(t *testing.T) {
	path := filepath.Join(t.TempDir(), "l")
	first, err := Lock(path, true)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan func())
	go func() {
		unlock, err := Lock(path, false) // waits for the first, or comes after its file
		if err != nil {
			t.Error(err)
		}
		got <- unlock
	}()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	first()
	second := <-got
	if _, err := Lock(path, true); !errors.Is(err, ErrLocked) {
		t.Errorf("two have the lock: %v", err)
	}
	second()
}
