package keeper

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/agent/export"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// answersAfterTheDrain reports whether Unpublish returned only when nothing of the
// node could land any more (I9).
func answersAfterTheDrain(t *testing.T, careless bool) (after bool) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, true)
		r.iscsi.careless = careless
		v := r.create("v")
		c := r.publish(to(v.ID, "n"))
		release := r.iscsi.hold(c.Initiator)
		done := make(chan bool, 1)
		go func() {
			if err := r.b.Unpublish(t.Context(), v.ID, "n"); err != nil {
				t.Error(err)
			}
			done <- !r.iscsi.writable(v.Identity, c.Initiator)
		}()
		synctest.Wait()
		select {
		case after = <-done:
			release()
			return
		default:
		}
		if p := r.publications(); len(p) != 1 || !p[0].Revoking {
			t.Errorf("while it drains: %+v", p)
		}
		release()
		after = <-done
	})
	return after
}

func TestUnpublishAnswersAfterTheDrain(t *testing.T) {
	if !answersAfterTheDrain(t, false) {
		t.Error("Unpublish returned while a write of the node could still land")
	}
}

func TestAnExporterThatAnswersBeforeItsDrainIsFound(t *testing.T) {
	if answersAfterTheDrain(t, true) {
		t.Error("the guard is off, and the test does not see it")
	}
}

func TestAnUnpublishThatCannotDrainStaysARevocation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, true)
		v := r.create("v")
		c := r.publish(to(v.ID, "n"))
		release := r.iscsi.hold(c.Initiator)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := r.b.Unpublish(ctx, v.ID, "n"); !errors.Is(err, backend.ErrBusy) {
			t.Errorf("got %v, want ErrBusy", err)
		}
		if _, err := r.b.Publish(t.Context(), to(v.ID, "n")); !errors.Is(err, backend.ErrBusy) {
			t.Errorf("published again: %v, want ErrBusy", err)
		}
		if _, err := r.b.Publish(t.Context(), to(v.ID, "other")); !errors.Is(err, backend.ErrInUse) {
			t.Errorf("published to another: %v, want ErrInUse", err)
		}
		if err := r.b.DeleteVolume(t.Context(), v.ID); !errors.Is(err, backend.ErrInUse) {
			t.Errorf("deleted: %v, want ErrInUse", err)
		}
		release()
		time.Sleep(2 * reconcileEvery) // the bubble's: the reconciler goes on
		if p := r.publications(); len(p) != 0 {
			t.Errorf("left: %+v", p)
		}
	})
}

func TestARevocationGoesOnAfterARestart(t *testing.T) {
	r := newRig(t, true)
	v := r.create("v")
	c := r.publish(to(v.ID, "n"))
	release := r.iscsi.hold(c.Initiator)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	rec, err := r.k.journal.get(v.ID)
	if err != nil {
		t.Fatal(err)
	}
	next, _ := rec.revoke("n")
	if err := r.k.journal.write(next); err != nil {
		t.Fatal(err)
	}
	if _, err := r.iscsi.Ensure(ctx, export.Export{Volume: v.ID, Identity: v.Identity}); !errors.Is(err, backend.ErrBusy) {
		t.Fatal(err)
	}
	release()
	r.reopen()
	if p := r.publications(); len(p) != 0 || len(r.iscsi.serving()) != 0 {
		t.Errorf("left: %+v, %v", p, r.iscsi.serving())
	}
}

// epochs of two publications of one node.
func epochs(t *testing.T, random io.Reader) (first, second backend.Connection) {
	r := newRig(t, true)
	if random != nil {
		r.k.random = random
	}
	v := r.create("v")
	first = r.publish(to(v.ID, "n"))
	if again := r.publish(to(v.ID, "n")); again.Epoch != first.Epoch || again.Initiator != first.Initiator {
		t.Errorf("the same publication: %s, then %s", first.Initiator, again.Initiator)
	}
	r.unpublish(v.ID, "n")
	return first, r.publish(to(v.ID, "n"))
}

func TestAnEpochIsNeverUsedAgain(t *testing.T) {
	a, b := epochs(t, nil)
	if a.Epoch == b.Epoch || a.Initiator == b.Initiator {
		t.Errorf("two publications as %s and %s", a.Initiator, b.Initiator)
	}
}

func TestEpochsWithoutRandomnessAreFound(t *testing.T) {
	if a, b := epochs(t, stuck{}); a.Epoch != b.Epoch {
		t.Error("the guard is off, and the test does not see it")
	}
}

func TestAPublicationIsWrittenDownBeforeAnythingIsServed(t *testing.T) {
	r := newRig(t, true)
	v := r.create("v")
	r.iscsi.refusing(errors.New("no"))
	if _, err := r.b.Publish(t.Context(), to(v.ID, "n")); err == nil {
		t.Fatal("it was published")
	}
	first := r.publications()
	if len(first) != 1 {
		t.Fatalf("written down: %+v", first)
	}
	r.iscsi.refusing(nil)
	if c := r.publish(to(v.ID, "n")); c.Epoch != first[0].Epoch {
		t.Errorf("the retry has epoch %s, the first %s", c.Epoch, first[0].Epoch)
	}
}

func TestWhatNoExporterCanServeIsTakenBack(t *testing.T) {
	r := newRig(t, true)
	v := r.create("v")
	r.publish(shared(v.ID, "other"))
	r.iscsi.refusing(backend.ErrInvalid)
	if _, err := r.b.Publish(t.Context(), shared(v.ID, "n")); !errors.Is(err, backend.ErrInvalid) {
		t.Fatalf("got %v", err)
	}
	r.iscsi.refusing(nil)
	r.unpublish(v.ID, "other")
	if p := r.publications(); len(p) > 1 || (len(p) == 1 && !p[0].Revoking) {
		t.Errorf("left: %+v", p)
	}
}

func TestClonedMachinesAreNotTakenForEachOther(t *testing.T) {
	r := newRig(t, true)
	a, b := r.create("a"), r.create("b")
	p := to(a.ID, "n")
	r.publish(p)
	for what, ask := range map[string]backend.Publish{"volume": {Volume: b.ID}, "same volume": {Volume: a.ID, Shared: true}} {
		ask.Node, ask.Transport, ask.Initiator = "twin", p.Transport, p.Initiator
		if _, err := r.b.Publish(t.Context(), ask); !errors.Is(err, backend.ErrConflict) && !errors.Is(err, backend.ErrInUse) {
			t.Errorf("%s: got %v", what, err)
		}
	}
	r.unpublish(a.ID, "n")
	twin := to(b.ID, "twin")
	twin.Initiator = p.Initiator
	r.publish(twin)
}

func TestTheClaimOfANameEndsWithItsLastPublication(t *testing.T) {
	r := newRig(t, true)
	a, b := r.create("a"), r.create("b")
	r.publish(to(a.ID, "n"))
	r.publish(to(b.ID, "n"))
	r.unpublish(a.ID, "n")
	twin := to(a.ID, "twin")
	twin.Initiator = to(a.ID, "n").Initiator
	if _, err := r.b.Publish(t.Context(), twin); !errors.Is(err, backend.ErrConflict) {
		t.Errorf("got %v, want ErrConflict", err)
	}
	r.unpublish(b.ID, "n")
	r.publish(twin)
}

func TestAVolumeHasOneTransportAtATime(t *testing.T) {
	r := newRig(t, true)
	v := r.create("v")
	r.publish(shared(v.ID, "a"))
	p := backend.Publish{Volume: v.ID, Node: "b", Transport: backend.NVMe, Initiator: "nqn.2025-01.io.csi-mpath:node:b", Shared: true}
	var use *backend.InUse
	if _, err := r.b.Publish(t.Context(), p); !errors.As(err, &use) || use.Node != "a" {
		t.Errorf("got %v", err)
	}
	r.unpublish(v.ID, "")
	c := r.publish(p)
	if c.NSID != export.NSID || c.HostID != c.Epoch || len(r.iscsi.serving()) != 0 {
		t.Errorf("got %+v, served over iSCSI: %v", c, r.iscsi.serving())
	}
}

func TestAFencedNodeGetsNothing(t *testing.T) {
	r := newRig(t, true)
	v := r.create("v")
	c := r.publish(to(v.ID, "n"))
	if err := r.b.Fence(t.Context(), "n"); err != nil {
		t.Fatal(err)
	}
	if r.iscsi.writable(v.Identity, c.Initiator) {
		t.Error("it can still write")
	}
	for range 2 {
		if _, err := r.b.Publish(t.Context(), to(v.ID, "n")); !errors.Is(err, backend.ErrFenced) {
			t.Errorf("published: %v, want ErrFenced", err)
		}
		r.reopen() // the mark is durable
	}
	clear(r.k.journal.fences) // the guard is off
	r.publish(to(v.ID, "n"))
}

func TestAFenceWaitsForAPublicationThatIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, true)
		v := r.create("v")
		c := r.publish(shared(v.ID, "gone"))
		release := r.iscsi.hold(c.Initiator)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := r.b.Unpublish(ctx, v.ID, "gone"); !errors.Is(err, backend.ErrBusy) {
			t.Fatal(err)
		}
		published, fenced := make(chan error, 1), make(chan error, 1)
		go func() { _, err := r.b.Publish(t.Context(), shared(v.ID, "n")); published <- err }()
		synctest.Wait() // it waits for the drain of the other
		go func() { fenced <- r.b.Fence(t.Context(), "n") }()
		synctest.Wait()
		release()
		<-published
		if err := <-fenced; err != nil {
			t.Error(err)
		}
		if p := r.publications(); len(p) != 0 {
			t.Errorf("left after the fence: %+v", p)
		}
	})
}

func TestUnpublishWithoutAJournalEndsWhatIsServed(t *testing.T) {
	r := newRig(t, true)
	v := r.create("v")
	r.publish(to(v.ID, "n"))
	r.k.Close()
	r.dir = t.TempDir() // the journal is lost, the kernel serves on
	r.open()
	orphans, err := r.k.Orphans(t.Context())
	if err != nil || len(orphans) != 1 || orphans[0].Kind != OrphanExport {
		t.Errorf("orphans: %+v, %v", orphans, err)
	}
	r.unpublish(v.ID, "n")
	if len(r.iscsi.serving()) != 0 {
		t.Errorf("still served: %v", r.iscsi.serving())
	}
}

func TestAPoolThatIsNotConfiguredAnyMoreDoesNotCountAsRevoked(t *testing.T) {
	r := newRig(t, true)
	v := r.create("v")
	r.publish(to(v.ID, "n"))
	delete(r.k.pools, v.ID.Pool)
	for what, err := range map[string]error{
		"Unpublish":    r.b.Unpublish(t.Context(), v.ID, "n"),
		"Fence":        r.b.Fence(t.Context(), "n"),
		"DeleteVolume": r.b.DeleteVolume(t.Context(), v.ID),
	} {
		if !errors.Is(err, backend.ErrUnavailable) {
			t.Errorf("%s: %v, want ErrUnavailable", what, err)
		}
	}
}

func TestWhatAPoolHasThatIsNotConfiguredAnyMoreIsNotTakenForRemoved(t *testing.T) {
	r := newRig(t, true)
	v := r.create("v")
	s, err := r.b.CreateSnapshot(t.Context(), backend.CreateSnapshot{Name: "s", Of: v.ID})
	if err != nil {
		t.Fatal(err)
	}
	was := r.k.pools[v.ID.Pool]
	delete(r.k.pools, v.ID.Pool)
	for what, err := range map[string]error{
		"DeleteVolume":   r.b.DeleteVolume(t.Context(), v.ID),
		"DeleteSnapshot": r.b.DeleteSnapshot(t.Context(), s.ID),
	} {
		if !errors.Is(err, backend.ErrNoPool) || !strings.Contains(err.Error(), v.ID.Pool) {
			t.Errorf("%s: %v, want ErrNoPool that names the pool", what, err)
		}
	}
	if err := r.b.DeleteVolume(t.Context(), backend.ID{Pool: v.ID.Pool, Object: "nobodys"}); err != nil {
		t.Errorf("what we cannot have made: %v", err)
	}
	r.k.pools[v.ID.Pool] = was
	for _, err := range []error{r.b.DeleteSnapshot(t.Context(), s.ID), r.b.DeleteVolume(t.Context(), v.ID)} {
		if err != nil {
			t.Errorf("with the pool again: %v", err)
		}
	}
}

func TestAStartDoesNotWaitLongForWhatDoesNotDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, true)
		v := r.create("v")
		c := r.publish(to(v.ID, "n"))
		release := r.iscsi.hold(c.Initiator)
		defer release()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := r.b.Unpublish(ctx, v.ID, "n"); !errors.Is(err, backend.ErrBusy) {
			t.Fatal(err)
		}
		begun := time.Now()
		r.reopen()
		if took := time.Since(begun); took > drainTimeout {
			t.Errorf("it took %v", took)
		}
		if p := r.publications(); len(p) != 1 || !p[0].Revoking {
			t.Errorf("got %+v", p)
		}
	})
}
