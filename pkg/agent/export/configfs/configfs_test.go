package configfs

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// tree is the kernel's FS over an ordinary directory.
func tree(t *testing.T) (FS, string) {
	t.Helper()
	dir := t.TempDir()
	k, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return k, dir
}

func TestAttributesAreReadAndWrittenWhole(t *testing.T) {
	k, dir := tree(t)
	if err := os.WriteFile(filepath.Join(dir, "enable"), []byte("0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := k.Read(t.Context(), "enable"); got != "0" || err != nil {
		t.Errorf("read %q, %v", got, err)
	}
	if err := k.Write(t.Context(), "enable", "1"); err != nil {
		t.Fatal(err)
	}
	if got, err := k.Read(t.Context(), "enable"); got[:1] != "1" || err != nil {
		t.Errorf("read %q, %v", got, err)
	}
	if err := k.Write(t.Context(), "other", "1"); !Absent(err) {
		t.Errorf("an attribute was made: %v", err)
	}
	if err := k.Write(t.Context(), "enable", strings.Repeat("x", maxValue+1)); !errors.Is(err, backend.ErrInvalid) {
		t.Errorf("a page and more: %v", err)
	}
}

func TestNamesThatLeadElsewhereSpoilAPath(t *testing.T) {
	k, dir := tree(t)
	for _, n := range []string{"", ".", "..", "../x", "a/b", "/", "a b", "a\n", "\x00", "ü", strings.Repeat("x", maxName+1)} {
		p := Path("").Add("a", n, "b")
		if err := k.Mkdir(t.Context(), p); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("%q: got %v, want ErrInvalid", n, err)
		}
		if err := k.Symlink(t.Context(), p, "x"); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("link to %q: got %v, want ErrInvalid", n, err)
		}
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) > 0 {
		t.Errorf("made %v, %v", all, err)
	}
}

func TestACallThatTheKernelKeepsIsLeftToIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &kernel{pending: map[Path]chan struct{}{}}
		answer := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		first := make(chan error, 1)
		go func() { first <- k.aside(ctx, "x", func(string) error { <-answer; return nil }) }()
		synctest.Wait()
		cancel()
		if err := <-first; !errors.Is(err, backend.ErrBusy) {
			t.Errorf("got %v, want ErrBusy", err)
		}
		began := false
		second := make(chan error, 1)
		go func() { second <- k.aside(t.Context(), "x", func(string) error { began = true; return nil }) }()
		synctest.Wait()
		if began {
			t.Error("a second call began before the first was answered")
		}
		close(answer)
		if err := <-second; err != nil || !began {
			t.Errorf("got %v, began %v", err, began)
		}
	})
}

func TestCallsThatTheKernelKeepsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &kernel{pending: map[Path]chan struct{}{}}
		answer := make(chan struct{})
		for i := range maxPending {
			go func() {
				_ = k.aside(t.Context(), Path("").Add(strings.Repeat("x", i+1)[:1], strings.Repeat("y", 1+i%250), string(rune('a'+i/250))), func(string) error { <-answer; return nil })
			}()
		}
		synctest.Wait()
		if err := k.aside(t.Context(), "one-more", func(string) error { return nil }); !errors.Is(err, backend.ErrBusy) {
			t.Errorf("got %v, want ErrBusy", err)
		}
		close(answer)
		synctest.Wait()
		if len(k.pending) != 0 {
			t.Errorf("%d calls are still pending", len(k.pending))
		}
	})
}

func TestATreeThatMayBeMissingIsNoErrorWhereItIs(t *testing.T) {
	if fs, err := OpenIfThere(filepath.Join(t.TempDir(), "target")); fs != nil || err != nil {
		t.Errorf("got %v, %v", fs, err)
	}
}

func TestATreeThatIsNotThereNamesTheWayOut(t *testing.T) {
	_, err := Open(filepath.Join(t.TempDir(), "target"))
	if !errors.Is(err, backend.ErrUnavailable) || !strings.Contains(err.Error(), "modules") {
		t.Errorf("got %v", err)
	}
}
