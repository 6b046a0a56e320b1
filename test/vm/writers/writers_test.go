package writers

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const size = 64 << 10

// disk is a file in the place of a device.
func disk(t *testing.T, writers int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(path, make([]byte, writers*size), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func begin(t *testing.T, cfg Config, n int) *Load {
	t.Helper()
	l, err := Start(cfg, n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.stop.Store(true) })
	return l
}

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// worked runs a load until each writer has made some progress.
func worked(t *testing.T, l *Load) Result {
	t.Helper()
	for range 5 {
		if err := l.Progress(bounded(t)); err != nil {
			t.Fatal(err)
		}
	}
	r, err := l.Stop(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestAHealthyDeviceVerifies(t *testing.T) {
	for _, how := range []Sync{Fsync, Dsync, NoSync} {
		l := begin(t, Config{Path: disk(t, 4), Size: size, Max: 4, Sync: how, NoReads: how == NoSync}, 4)
		r := worked(t, l)
		if err := l.Verify(bounded(t), ""); err != nil || r.Writes < 20 {
			t.Errorf("sync %d: %v after %d writes", how, err, r.Writes)
		}
	}
}

func TestAHealthyFolderVerifies(t *testing.T) {
	dir := t.TempDir()
	l := begin(t, Config{Dir: dir, Size: size, Max: 3, Block: 8192, Buffered: true}, 2)
	if err := l.Add(1); err != nil {
		t.Fatal(err)
	}
	worked(t, l)
	if err := l.Verify(bounded(t), ""); err != nil {
		t.Fatal(err)
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) != 3 {
		t.Fatalf("%d files, %v", len(all), err)
	}
}

func TestMoreWritersThanAgreedAreRefused(t *testing.T) {
	l := begin(t, Config{Path: disk(t, 1), Size: size, Max: 1}, 1)
	if err := l.Add(1); err == nil {
		t.Fatal("a second writer of at most one")
	}
	worked(t, l)
}

func TestANonsensicalLoadIsRefused(t *testing.T) {
	for _, c := range []Config{
		{}, {Path: "a", Dir: "b", Size: size, Max: 1}, {Path: "a", Size: 511, Max: 1},
		{Path: "a", Size: size, Max: 1, Block: 100}, {Path: "a", Size: size}, {Path: "a", Size: size, Max: maxWriters + 1},
	} {
		if _, err := Start(c, 0); err == nil {
			t.Errorf("%+v: accepted", c)
		}
	}
}

// damage runs a load, changes its device, and returns what Verify says.
func damage(t *testing.T, change func(b []byte, w *writer, block int)) string {
	t.Helper()
	path := disk(t, 1)
	l := begin(t, Config{Path: path, Size: size, Max: 1}, 1)
	worked(t, l)
	w := l.all[0]
	block := 0
	for b := range w.acked {
		if w.acked[b] > w.acked[block] {
			block = b
		}
	}
	disk, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	change(disk[block*4096:(block+1)*4096], w, block)
	if err := os.WriteFile(path, disk, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := l.Verify(bounded(t), ""); err != nil {
		return err.Error()
	}
	return ""
}

func TestVerifyFindsWhatWentWrong(t *testing.T) {
	for want, change := range map[string]func(b []byte, w *writer, block int){
		"lost: holds write 0":   func(b []byte, _ *writer, _ int) { clear(b) },
		"lost: holds write ":    func(b []byte, w *writer, i int) { fill(b, place{0, uint64(i)}, w.acked[i]-1) },
		"torn: sectors from":    func(b []byte, _ *writer, _ int) { clear(b[:sector]) },
		"the last one was":      func(b []byte, w *writer, i int) { fill(b, place{0, uint64(i)}, w.sent[i]+1) },
		"holds writer 7":        func(b []byte, w *writer, i int) { fill(b, place{7, uint64(i)}, w.acked[i]) },
		"holds foreign bytes":   func(b []byte, _ *writer, _ int) { b[0]++ },
		"sector 3 holds writer": func(b []byte, _ *writer, _ int) { b[3*sector+100]++ },
		"sector 0 holds writer": func(b []byte, _ *writer, _ int) { copy(b[:sector], b[sector:]) },
	} {
		if got := damage(t, change); !strings.Contains(got, want) {
			t.Errorf("want %q, got %q", want, got)
		}
	}
}

func TestAWriteWithoutAnswerMayBeThereOrNot(t *testing.T) {
	p := place{1, 2}
	buf := make([]byte, 4096)
	for _, n := range []uint64{4, 5} {
		fill(buf, p, n)
		if err := check(buf, p, 4, 5); err != nil {
			t.Error(err)
		}
	}
	fill(buf[:1024], p, 4)
	if err := check(buf, p, 4, 5); err != nil {
		t.Error("half of it:", err)
	}
	if err := check(buf, p, 5, 5); err == nil {
		t.Error("half of an acknowledged write was accepted")
	}
}

func TestAReadThatIsTooOldEndsTheLoad(t *testing.T) {
	path := disk(t, 1)
	l := begin(t, Config{Path: path, Size: 4096, Max: 1, Sync: NoSync}, 1)
	zero := make([]byte, 4096)
	ctx := bounded(t)
	for l.Err() == nil && ctx.Err() == nil {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = f.WriteAt(zero, 0)
		_ = f.Close()
	}
	if err := l.Err(); err == nil || !strings.Contains(err.Error(), "lost") && !strings.Contains(err.Error(), "torn") {
		t.Fatalf("got %v", err)
	}
}

func TestAStallIsMeasuredWhileItLasts(t *testing.T) {
	l := &Load{base: time.Now().Add(-time.Minute), cfg: Config{Size: size, Block: 4096}}
	w := newWriter(l, 0)
	l.all = []*writer{w}
	w.begun.Store(int64(50 * time.Second))
	if s := l.TakeStall(); !s.Waiting || s.For < 10*time.Second || s.For > 20*time.Second {
		t.Fatalf("got %+v, want one of 10 s that waits", s)
	}
	if s := l.TakeStall(); s.For > 5*time.Second {
		t.Fatalf("got %+v: the time before was taken already", s)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := l.Stop(ctx); err == nil || !strings.Contains(err.Error(), "1 of 1 writers wait") {
		t.Fatalf("got %v", err)
	}
	w.finished(50 * time.Second)
	if s := l.TakeStall(); s.Waiting || s.For == 0 {
		t.Fatalf("got %+v, want one that has ended", s)
	}
}

func TestAnIOErrorIsTheLoadsError(t *testing.T) {
	l := begin(t, Config{Path: "/dev/full", Size: size, Max: 1, NoReads: true, Buffered: true}, 1)
	if err := l.Progress(bounded(t)); err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Fatalf("got %v", err)
	}
}

func FuzzJudge(f *testing.F) {
	buf := make([]byte, 1024)
	fill(buf, place{1, 2}, 3)
	f.Add(buf)
	f.Fuzz(func(t *testing.T, b []byte) {
		b = b[:len(b)/sector*sector]
		if oldest, newest, err := judge(b, place{1, 2}); err == nil && oldest > newest {
			t.Fatalf("oldest %d, newest %d", oldest, newest)
		}
	})
}
