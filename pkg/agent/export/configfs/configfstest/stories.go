package configfstest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/csi-mpath/csi-mpath/pkg/agent/export"
	"github.com/csi-mpath/csi-mpath/pkg/agent/export/configfs"
	"github.com/csi-mpath/csi-mpath/pkg/agent/export/loop/looptest"
	"github.com/csi-mpath/csi-mpath/pkg/agent/store"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// Subject is an exporter over a tree.
type Subject struct {
	export.Exporter
	Tree  *Tree
	Loops *looptest.Devices
	// Access is what the n-th initiator has, with secrets.
	Access func(n int) export.Access
	// Waits is what the kernel does not answer before the initiator's requests have
	// ended, when its access is taken away.
	Waits func(identity, initiator string) configfs.Path
	// Strangers makes things of an administrator, in all places where ours are.
	Strangers func(ctx context.Context, t *Tree) error
}

// Volume is an export with some initiators.
func (s *Subject) Volume(n int, access ...int) export.Export {
	v := export.Export{Volume: backend.ID{Pool: "p", Object: fmt.Sprint("v-", n)}, Identity: fmt.Sprintf("%032x", 0xabc0+n), Size: 1 << 30,
		Backing: store.Backing{Path: fmt.Sprint("/srv/v", n)}, Discard: true}
	for _, a := range access {
		v.Access = append(v.Access, s.Access(a))
	}
	return v
}

// Run tells the stories that all exporters over configfs share.
func Run(t *testing.T, subject func(t *testing.T) *Subject) {
	for _, s := range []struct {
		name string
		tell func(t *testing.T, s *Subject)
	}{
		{"WhatIsServedAlreadyIsNotChanged", unchanged},
		{"WhatIsDamagedIsRepaired", repaired},
		{"AfterARebootAllIsAsItWas", rebooted},
		{"WhoIsNotNamedAnyMoreIsGone", revoked},
		{"WhoIsRevokedIsGoneWithoutABacking", putOut},
		{"ARevocationThatTheKernelHasNotFinishedIsBusy", busy},
		{"RemovingLeavesNothingBehind", removed},
		{"AnAdministratorsOwnIsUntouched", strangers},
		{"AFailureAtAnyStepIsMended", mended},
		{"NamesThatAreNoDirectoriesAreRefused", hostile},
		{"SecretsAreInNoError", secrets},
		{"WhatIsServedIsListed", listed},
		{"AFilesGrowthReachesItsDevice", grown},
		{"NoVolumeCanBeQuieted", quiesced},
		{"AnotherBackingReplacesTheFirst", replaced},
	} {
		t.Run(s.name, func(t *testing.T) { s.tell(t, subject(t)) })
	}
}

func (s *Subject) ensure(t *testing.T, v export.Export) (changed bool) {
	t.Helper()
	changed, err := s.Ensure(t.Context(), v)
	if err != nil {
		t.Fatal(err)
	}
	return changed
}

func (s *Subject) remove(t *testing.T, v export.Export) {
	t.Helper()
	if err := s.Remove(t.Context(), v.Volume, v.Identity); err != nil {
		t.Fatal(err)
	}
}

// state is all there is, attributes' values included.
func (s *Subject) state() string {
	var b strings.Builder
	for _, p := range s.Tree.All() {
		value, err := s.Tree.Read(context.Background(), configfs.Path(p))
		fmt.Fprintln(&b, p, value, err != nil)
	}
	return b.String()
}

func unchanged(t *testing.T, s *Subject) {
	if !s.ensure(t, s.Volume(1, 1, 2)) {
		t.Error("the first changed nothing")
	}
	s.Tree.Changes()
	if changed := s.ensure(t, s.Volume(1, 1, 2)); changed || len(s.Tree.Changes()) > 0 {
		t.Errorf("the second changed something (%v): %v", changed, s.Tree.Changes())
	}
}

// repaired removes each link in turn.
func repaired(t *testing.T, s *Subject) {
	s.ensure(t, s.Volume(1, 1, 2))
	want := s.state()
	for _, p := range s.Tree.All() {
		if s.Tree.Unlink(t.Context(), configfs.Path(p)) != nil {
			continue
		}
		if !s.ensure(t, s.Volume(1, 1, 2)) {
			t.Errorf("%s was unlinked, and no change was told", p)
		}
		if got := s.state(); got != want {
			t.Errorf("after the loss of %s:\n%s\nwant\n%s", p, got, want)
		}
	}
}

func rebooted(t *testing.T, s *Subject) {
	s.ensure(t, s.Volume(1, 1, 2))
	s.ensure(t, s.Volume(2, 3))
	want := s.state()
	s.Tree.Forget()
	s.ensure(t, s.Volume(2, 3))
	s.ensure(t, s.Volume(1, 1, 2))
	if got := s.state(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// revoked: the one that stays keeps all it has.
func revoked(t *testing.T, s *Subject) {
	s.ensure(t, s.Volume(1, 2))
	want := s.state()
	s.ensure(t, s.Volume(1, 1, 2))
	s.Tree.Changes()
	if !s.ensure(t, s.Volume(1, 2)) || s.state() != want {
		t.Errorf("got\n%s\nwant\n%s", s.state(), want)
	}
	goes, stays := s.Target(s.Volume(1).Identity, s.Access(1).Initiator), s.Target(s.Volume(1).Identity, s.Access(2).Initiator)
	for _, c := range s.Tree.Changes() {
		if strings.Contains(c, s.Access(2).Initiator) || goes != stays && strings.Contains(c, stays+"/") {
			t.Errorf("who stays was disturbed: %s", c)
		}
	}
}

// putOut: after Revoke all is as Ensure would have made it.
func putOut(t *testing.T, s *Subject) {
	v := s.Volume(1, 1, 2)
	s.ensure(t, v)
	stay := []string{s.Access(2).Initiator}
	for range 2 {
		if err := s.Revoke(t.Context(), v.Volume, v.Identity, stay); err != nil {
			t.Fatal(err)
		}
	}
	if all := strings.Join(s.Tree.All(), "\n"); strings.Contains(all, s.Access(1).Initiator) {
		t.Error("the initiator is still there:\n", all)
	}
	if s.ensure(t, s.Volume(1, 2)) {
		t.Error("there was more to do")
	}
	if err := s.Revoke(t.Context(), v.Volume, s.Volume(2).Identity, stay); err != nil {
		t.Error("of what is not served:", err)
	}
}

func busy(t *testing.T, s *Subject) {
	synctest.Test(t, func(t *testing.T) {
		v := s.Volume(1, 1, 2)
		s.ensure(t, v)
		release := s.Tree.Hold(s.Waits(v.Identity, s.Access(1).Initiator))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan error, 1)
		go func() {
			_, err := s.Ensure(ctx, s.Volume(1, 2))
			done <- err
		}()
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatal("returned while requests were in flight:", err)
		default:
		}
		cancel()
		if err := <-done; !errors.Is(err, backend.ErrBusy) {
			t.Errorf("got %v, want ErrBusy", err)
		}
		release()
		s.ensure(t, s.Volume(1, 2))
		if all := strings.Join(s.Tree.All(), "\n"); strings.Contains(all, s.Access(1).Initiator) {
			t.Error("the initiator is still there:\n", all)
		}
	})
}

func removed(t *testing.T, s *Subject) {
	empty := s.state()
	for i := range 2 {
		s.ensure(t, s.Volume(i, 1, 2))
	}
	for i := range 2 {
		s.remove(t, s.Volume(i))
		s.remove(t, s.Volume(i))
	}
	s.ensure(t, s.Volume(3, 1))
	if !s.ensure(t, s.Volume(3)) {
		t.Error("nobody is let in, and no change was told")
	}
	if got := s.state(); got != empty {
		t.Errorf("left:\n%s\nwant\n%s", got, empty)
	}
	if left := s.Loops.Marks(); len(left) > 0 {
		t.Error("loop devices left:", left)
	}
}

func strangers(t *testing.T, s *Subject) {
	if err := s.Strangers(t.Context(), s.Tree); err != nil {
		t.Fatal(err)
	}
	want := s.state()
	s.Tree.Changes()
	v := s.Volume(1, 1, 2)
	s.ensure(t, v)
	if all, err := s.Exported(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("listed %v, %v; want only ours", all, err)
	}
	s.remove(t, v)
	if got := s.state(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// mended lets each change of an Ensure and of a Remove fail.
func mended(t *testing.T, s *Subject) {
	empty := s.state()
	s.ensure(t, s.Volume(1, 1, 2))
	full := s.state()
	for n := 0; ; n++ {
		s.remove(t, s.Volume(1))
		s.Tree.FailAfter(n)
		if _, err := s.Ensure(t.Context(), s.Volume(1, 1, 2)); err == nil {
			break
		} else if !errors.Is(err, syscall.EIO) {
			t.Fatal(err)
		}
		s.ensure(t, s.Volume(1, 1, 2))
		if got := s.state(); got != full {
			t.Fatalf("after change %d failed:\n%s\nwant\n%s", n, got, full)
		}
	}
	s.Tree.FailAfter(-1)
	for n := 0; ; n++ {
		s.ensure(t, s.Volume(1, 1, 2))
		s.Tree.FailAfter(n)
		if err := s.Remove(t.Context(), s.Volume(1).Volume, s.Volume(1).Identity); err == nil {
			break
		}
		s.remove(t, s.Volume(1))
		if got := s.state(); got != empty {
			t.Fatalf("after change %d failed:\n%s\nwant\n%s", n, got, empty)
		}
	}
}

func hostile(t *testing.T, s *Subject) {
	empty := s.state()
	for _, name := range []string{"", ".", "..", "../../core", "a/b", "a\x00", "a b", "a\nb", "\x00", strings.Repeat("x", 300), "ä"} {
		v := s.Volume(1, 1)
		v.Access[0].Initiator = name
		if _, err := s.Ensure(t.Context(), v); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("initiator %q: got %v, want ErrInvalid", name, err)
		}
		s.remove(t, v)
		v = s.Volume(1, 1)
		v.Identity = name
		if _, err := s.Ensure(t.Context(), v); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("identity %q: got %v, want ErrInvalid", name, err)
		}
		if err := s.Remove(t.Context(), v.Volume, name); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("removal of %q: got %v, want ErrInvalid", name, err)
		}
	}
	if got := s.state(); got != empty {
		t.Errorf("left:\n%s", got)
	}
}

func secrets(t *testing.T, s *Subject) {
	v := s.Volume(1, 1)
	a := v.Access[0].Auth
	hidden := []string{string(a.CHAP.Secret), string(a.CHAP.MutualSecret), string(a.DHCHAP.Host), string(a.DHCHAP.Controller)}
	for n := 0; ; n++ {
		s.Tree.FailAfter(n)
		_, err := s.Ensure(t.Context(), v)
		if err == nil {
			break
		}
		if slices.ContainsFunc(hidden, func(h string) bool { return h != "" && strings.Contains(err.Error(), h) }) {
			t.Error("a secret is in:", err)
		}
		s.remove(t, v)
	}
}

func listed(t *testing.T, s *Subject) {
	s.ensure(t, s.Volume(1, 1, 2))
	s.ensure(t, s.Volume(2, 3))
	all, err := s.Exported(t.Context())
	if err != nil || len(all) != 2 {
		t.Fatal(all, err)
	}
	slices.SortFunc(all, func(a, b export.Exported) int { return strings.Compare(a.Identity, b.Identity) })
	slices.Sort(all[0].Initiators)
	want := []string{s.Access(1).Initiator, s.Access(2).Initiator}
	if all[0].Identity != s.Volume(1).Identity || !slices.Equal(all[0].Initiators, want) || all[1].Identity != s.Volume(2).Identity {
		t.Errorf("listed %+v", all)
	}
}

func grown(t *testing.T, s *Subject) {
	v := s.Volume(1, 1, 2)
	s.ensure(t, v)
	if err := s.Resize(t.Context(), v); err != nil || s.Loops.Resized() != 1 {
		t.Errorf("%d loop devices resized, %v", s.Loops.Resized(), err)
	}
	v.Backing.Block = true
	if err := s.Resize(t.Context(), v); err != nil || s.Loops.Resized() != 1 {
		t.Errorf("of a block device: %d loop devices resized, %v", s.Loops.Resized(), err)
	}
}

func quiesced(t *testing.T, s *Subject) {
	v := s.Volume(1, 1)
	for _, what := range []string{"not served", "served"} {
		if _, err := s.Quiesce(t.Context(), v.Identity); !errors.Is(err, backend.ErrUnsupported) {
			t.Errorf("a volume that is %s: %v, want ErrUnsupported", what, err)
		}
		s.ensure(t, v)
	}
}

func replaced(t *testing.T, s *Subject) {
	v := s.Volume(1, 1, 2)
	v.Backing.Block = true
	s.ensure(t, v)
	before := s.state()
	v.Backing.Path = "/dev/another"
	if !s.ensure(t, v) {
		t.Error("nothing changed")
	}
	if want := strings.ReplaceAll(before, "/srv/v1", "/dev/another"); s.state() != want {
		t.Errorf("got\n%s\nwant\n%s", s.state(), want)
	}
}
