package directory

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/csi-mpath/csi-mpath/pkg/agent/store"
	"github.com/csi-mpath/csi-mpath/pkg/agent/store/storetest"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/durable"
	"github.com/csi-mpath/csi-mpath/pkg/faultpoint"
)

// copying is a cloner for file systems without reflinks.
func copying(dst, src *os.File) error {
	_, err := io.Copy(dst, src)
	return err
}

// none is what file systems without reflinks say.
func none(_, _ *os.File) error { return unix.EOPNOTSUPP }

// roomy are marks that a machine with a nearly full disk passes, too.
var roomy = store.Marks{Data: 1, Metadata: 1, Overcommit: 1000}

func subject(clone cloner, prealloc bool) func(t *testing.T) storetest.Subject {
	return func(t *testing.T) storetest.Subject {
		dir := filepath.Join(t.TempDir(), "pool")
		var last *Store
		return storetest.Subject{
			Open: func(t *testing.T) store.Store {
				if last != nil {
					last.Close()
				}
				var err error
				if last, err = open(Config{Path: dir, Preallocate: prealloc, Marks: roomy}, clone); err != nil {
					t.Fatal(err)
				}
				return last
			},
			Leftovers: func(t *testing.T) []string { return leftovers(t, dir) },
			Points:    slices.Concat(Points, durable.Points),
			Size:      4 << 20,
			InUse:     true,
		}
	}
}

func leftovers(t *testing.T, dir string) (out []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != lockName {
			out = append(out, e.Name())
		}
	}
	return out
}

func TestTheContractWithReflinks(t *testing.T) { storetest.Run(t, subject(copying, false)) }

func TestTheContractWithoutReflinks(t *testing.T) { storetest.Run(t, subject(none, false)) }

func TestTheContractWithSpaceTakenAtOnce(t *testing.T) { storetest.Run(t, subject(none, true)) }

func opened(t *testing.T, clone cloner) *Store {
	t.Helper()
	s, err := open(Config{Path: filepath.Join(t.TempDir(), "pool"), Marks: roomy}, clone)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func made(t *testing.T, s *Store, name string) {
	t.Helper()
	if _, err := s.Create(t.Context(), store.Spec{Name: name, Size: step, Labels: storetest.Labels(1)}); err != nil {
		t.Fatal(err)
	}
}

func TestASecondAgentIsRefused(t *testing.T) {
	s := opened(t, none)
	if _, err := Open(Config{Path: s.dir}); err == nil || !strings.Contains(err.Error(), "another agent") {
		t.Errorf("%v", err)
	}
}

func TestADirectoryThatIsNoCleanPathIsRefused(t *testing.T) {
	for _, p := range []string{"", "pool", "/tmp/../etc", "/tmp/"} {
		if _, err := Open(Config{Path: p}); err == nil {
			t.Errorf("%q was opened", p)
		}
	}
}

func TestADamagedRecordIsNamedAndHidesNoOther(t *testing.T) {
	s := opened(t, none)
	made(t, s, "v-1")
	made(t, s, "v-2")
	if err := os.WriteFile(filepath.Join(s.dir, "v-1.json"), []byte(`{"version":1`), 0o600); err != nil {
		t.Fatal(err)
	}
	objects, err := s.Objects(t.Context())
	if err == nil || !strings.Contains(err.Error(), "v-1.json") || len(objects) != 1 || objects[0].Name != "v-2" {
		t.Errorf("%v, %v", objects, err)
	}
	if err := s.Delete(t.Context(), "v-1"); err == nil {
		t.Error("an object of which nothing is known was deleted")
	}
}

func TestAFileWithoutARecordIsLeftAlone(t *testing.T) {
	s := opened(t, none)
	stray := filepath.Join(s.dir, "v-1.img")
	if err := os.WriteFile(stray, []byte("somebody's"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(t.Context(), store.Spec{Name: "v-1", Size: step, Labels: storetest.Labels(1)}); err == nil || !strings.Contains(err.Error(), stray) {
		t.Errorf("create: %v", err)
	}
	if err := s.Delete(t.Context(), "v-1"); err == nil {
		t.Error("it was deleted")
	}
	if b, err := os.ReadFile(stray); err != nil || string(b) != "somebody's" {
		t.Errorf("%q, %v", b, err)
	}
}

func TestALinkInTheDirectoryIsNotFollowed(t *testing.T) {
	s := opened(t, copying)
	made(t, s, "v-1")
	outside := filepath.Join(t.TempDir(), "victim")
	if err := os.WriteFile(outside, make([]byte, step), 0o600); err != nil {
		t.Fatal(err)
	}
	img := filepath.Join(s.dir, "v-1.img")
	if err := errors.Join(os.Remove(img), os.Symlink(outside, img)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Object(t.Context(), "v-1"); err == nil {
		t.Error("a link passed as an object's bytes")
	}
	if err := s.copyFrom(os.Stderr, "v-1"); !errors.Is(err, unix.ELOOP) {
		t.Errorf("a copy through a link: %v", err)
	}
}

func TestBytesThatWentAwayAreAnError(t *testing.T) {
	s := opened(t, none)
	made(t, s, "v-1")
	if err := os.Truncate(filepath.Join(s.dir, "v-1.img"), 4096); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Object(t.Context(), "v-1"); err == nil {
		t.Error("a file that was cut passed")
	}
	if err := os.Remove(filepath.Join(s.dir, "v-1.img")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Objects(t.Context()); err == nil {
		t.Error("a file that is gone passed")
	}
}

func TestAFullDiskLeavesNothingBehind(t *testing.T) {
	full := func(_, src *os.File) error {
		if st, err := src.Stat(); err == nil && st.Size() == step {
			return unix.ENOSPC
		}
		return nil
	}
	s := opened(t, full)
	made(t, s, "v-1")
	_, err := s.Create(t.Context(), store.Spec{Name: "v-2", Source: "v-1", Labels: storetest.Labels(2)})
	if !errors.Is(err, backend.ErrNoSpace) {
		t.Errorf("%v", err)
	}
	if left := leftovers(t, s.dir); len(left) != 2 {
		t.Errorf("left: %v", left)
	}
	if u, err := s.Usage(t.Context()); err != nil || u.Promised != step {
		t.Errorf("%+v, %v", u, err)
	}
}

func TestAFullDiskDoesNotKeepItsVolumesFromBeingServed(t *testing.T) {
	answer := error(nil)
	s := opened(t, func(_, _ *os.File) error { return answer })
	made(t, s, "v-1")
	s.Close()
	answer = unix.ENOSPC
	again, err := open(Config{Path: s.dir, Marks: roomy}, s.clone)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if _, err := again.Activate(t.Context(), "v-1"); err != nil || !again.Features().Snapshots {
		t.Errorf("%v, %+v", err, again.Features())
	}
	answer = unix.EOPNOTSUPP // as it turns out
	_, err = again.Create(t.Context(), store.Spec{Name: "s-1", Source: "v-1", Labels: storetest.Labels(2)})
	if !errors.Is(err, backend.ErrUnsupported) || len(leftovers(t, s.dir)) != 2 {
		t.Errorf("%v; left: %v", err, leftovers(t, s.dir))
	}
}

func TestAnExpansionThatFailsIsNotCounted(t *testing.T) {
	s := opened(t, none)
	made(t, s, "v-1")
	path := filepath.Join(s.dir, "v-1.json")
	restore := faultpoint.Set(func(name string) {
		if name == "directory.expand.grown" { // now the record cannot be written
			if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o700)); err != nil {
				t.Error(err)
			}
		}
	})
	defer restore()
	if _, err := s.Expand(t.Context(), "v-1", 8*step); err == nil {
		t.Error("it succeeded")
	}
	if u, err := s.Usage(t.Context()); err != nil || u.Promised != step {
		t.Errorf("%d bytes are promised, %v; want %d", u.Promised, err, step)
	}
}

func TestANewVersionOfARecordIsRefused(t *testing.T) {
	if _, err := decode([]byte(`{"version":2}`), "v-1"); err == nil || !strings.Contains(err.Error(), "version") {
		t.Errorf("%v", err)
	}
}

func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"version":1,"name":"v-1","phase":"ready","sizeBytes":1048576,"labels":{"tenant":"t","name":"n","identity":"00000000000000000000000000000001","createdUnix":1}}`))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decode(b, "v-1")
		if err == nil && (r.Name != "v-1" || r.Size <= 0 || r.Labels.read().Check() != nil) {
			t.Errorf("%+v", r)
		}
	})
}
