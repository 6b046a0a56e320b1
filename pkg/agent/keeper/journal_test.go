package keeper

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/durable"
)

func TestTheJournalIsItsOwnersOnly(t *testing.T) {
	r := newRig(t, true)
	p := to(r.create("v").ID, "n")
	p.Auth.CHAP = backend.CHAP{User: "u", Secret: "0123456789abcdef"}
	r.publish(p)
	if err := r.b.Fence(t.Context(), "m"); err != nil {
		t.Fatal(err)
	}
	secrets := 0
	err := filepath.WalkDir(r.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == r.dir {
			return err
		}
		i, err := d.Info()
		if err != nil || i.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: mode %v, %v", path, i.Mode(), err)
		}
		if b, err := os.ReadFile(path); err == nil && strings.Contains(string(b), "0123456789abcdef") {
			secrets++
		}
		return nil
	})
	if err != nil || secrets != 1 {
		t.Errorf("%v, the secret is in %d files, want 1", err, secrets)
	}
}

func TestASecretSurvivesARestart(t *testing.T) {
	r := newRig(t, true)
	v := r.create("v")
	p := to(v.ID, "n")
	p.Auth.CHAP = backend.CHAP{User: "u", Secret: "0123456789abcdef"}
	r.publish(p)
	before := r.iscsi.serving()[v.Identity]
	r.iscsi.forget()
	r.reopen()
	after := r.iscsi.serving()[v.Identity]
	if len(after.Access) != 1 || after.Access[0] != before.Access[0] || after.Size != before.Size || after.Backing != before.Backing {
		t.Error("what is served after the restart is not what was served before")
	}
}

// damage writes nonsense over a file.
func damage(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Stat(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(`{"version":1,`), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestAVolumeWhoseRecordCannotBeReadIsRefusedAndOthersWork(t *testing.T) {
	r := newRig(t, true)
	bad, good := r.create("bad"), r.create("good")
	c := r.publish(to(bad.ID, "n"))
	r.publish(to(good.ID, "m"))
	damage(t, r.recordPath(bad.ID))
	r.reopen()
	ctx := t.Context()
	_, errPublish := r.b.Publish(ctx, to(bad.ID, "n"))
	_, errExpand := r.b.ExpandVolume(ctx, bad.ID, backend.Size{Required: 8 * mib})
	_, errSnapshot := r.b.CreateSnapshot(ctx, backend.CreateSnapshot{Name: "s", Of: bad.ID})
	for what, err := range map[string]error{"Publish": errPublish, "Unpublish": r.b.Unpublish(ctx, bad.ID, "n"), "Fence": r.b.Fence(ctx, "x"),
		"DeleteVolume": r.b.DeleteVolume(ctx, bad.ID), "ExpandVolume": errExpand, "CreateSnapshot": errSnapshot} {
		if err == nil || !strings.Contains(err.Error(), r.recordPath(bad.ID)) {
			t.Errorf("%s: %v; want an error that names the file", what, err)
		}
	}
	if !r.iscsi.writable(bad.Identity, c.Initiator) {
		t.Error("what was served of it was touched")
	}
	r.publish(to(good.ID, "m"))
	r.unpublish(good.ID, "")
	if err := r.b.DeleteVolume(ctx, good.ID); err != nil {
		t.Error(err)
	}
	if orphans, err := r.k.Orphans(ctx); err != nil || len(orphans) == 0 || r.k.Stats().Unreadable != 1 {
		t.Errorf("orphans %v, %v; stats %+v", orphans, err, r.k.Stats())
	}
}

func TestAFenceMarkThatCannotBeReadIsAFence(t *testing.T) {
	r := newRig(t, true)
	v := r.create("v")
	if err := r.b.Fence(t.Context(), "n"); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(r.dir, "fences", fence{"t", "n"}.file()+suffix)
	damage(t, path)
	r.reopen()
	if _, err := r.b.Publish(t.Context(), to(v.ID, "n")); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v", err)
	}
	if _, err := r.b.Fenced(t.Context()); err == nil {
		t.Error("the list of fenced nodes is complete, it says")
	}
	r.publish(to(v.ID, "m"))
	r.unpublish(v.ID, "")
	if err := r.b.Unfence(t.Context(), "n"); err != nil {
		t.Fatal(err)
	}
	r.publish(to(v.ID, "n"))
}

func TestAFileThatIsNoRecordIsReported(t *testing.T) {
	r := newRig(t, true)
	stray := filepath.Join(r.dir, "volumes", "notes.txt")
	if err := os.WriteFile(stray, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r.reopen()
	orphans, err := r.k.Orphans(t.Context())
	if err != nil || len(orphans) != 1 || orphans[0].Kind != OrphanFile || !strings.Contains(orphans[0].Name, stray) {
		t.Errorf("got %+v, %v", orphans, err)
	}
}

func TestAStateDirectoryHasOneKeeper(t *testing.T) {
	r := newRig(t, true)
	if k, err := Open(t.Context(), r.config()); !errors.Is(err, durable.ErrLocked) {
		t.Errorf("a second keeper: %v, %v", k, err)
	}
}

func TestAPublicationThatCannotBeWrittenDownIsNotServed(t *testing.T) {
	r := newRig(t, true)
	v := r.create("v")
	dir := r.k.journal.volumes
	r.k.journal.volumes = filepath.Join(dir, "missing")
	if _, err := r.b.Publish(t.Context(), to(v.ID, "n")); err == nil {
		t.Error("it was published")
	}
	if len(r.iscsi.serving()) != 0 || len(r.publications()) != 0 {
		t.Errorf("served: %v, publications: %v", r.iscsi.serving(), r.publications())
	}
	r.k.journal.volumes = dir
	r.publish(to(v.ID, "n"))
}

func TestARecordOfAVolumeThatVanishedIsReportedAndCanBeEnded(t *testing.T) {
	r := newRig(t, true)
	v := r.create("v")
	r.publish(to(v.ID, "n"))
	if err := r.store.Delete(t.Context(), v.ID.Object); err != nil { // behind our back
		t.Fatal(err)
	}
	orphans, err := r.k.Orphans(t.Context())
	if err != nil || len(orphans) != 1 || orphans[0].Kind != OrphanRecord {
		t.Errorf("got %+v, %v", orphans, err)
	}
	if _, err := r.b.CreateVolume(context.Background(), backend.CreateVolume{Name: "v", Pool: pool0}); !errors.Is(err, backend.ErrInUse) {
		t.Errorf("a new one in its place: %v", err)
	}
	r.unpublish(v.ID, "n")
	if w := r.create("v"); w.Identity == v.Identity || len(r.iscsi.serving()) != 0 {
		t.Errorf("identity %s again, served: %v", w.Identity, r.iscsi.serving())
	}
}
