// Package storetest is the test that every store passes.
package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/agent/store"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// Subject is a store to be tested, empty at first.
type Subject struct {
	// Open opens it. When it is called again, the one before is closed: that is a
	// restart of the agent.
	Open func(t *testing.T) store.Store
	// Leftovers lists what there is of the store's objects where it keeps them.
	Leftovers func(t *testing.T) []string
	// Points are where a verb can be interrupted.
	Points []string
	// Size of the objects, bytes, a multiple of the step; some of them fit.
	Size int64
	// InUse: the store finds out that an object is open for writing.
	InUse bool
	// Steps of the random sequence; 0 is 60.
	Steps int
}

// Run tests a store. Each test gets a fresh subject.
func Run(t *testing.T, fresh func(t *testing.T) Subject) {
	for name, test := range map[string]func(t *testing.T, r *rig){
		"ANewObjectIsBlankAndAllZero":               testBlank,
		"CreatingAgainFindsTheFinishedObject":       testAgain,
		"WhatWasWrittenSurvivesARestart":            testSurvives,
		"LabelsComeBackAsTheyWere":                  testLabels,
		"ADeletedObjectLeavesNothingBehind":         testDelete,
		"ALongerObjectKeepsItsBytes":                testExpand,
		"SizesAreRoundedUpAndBounded":               testSizes,
		"ObjectsAreListedInOrder":                   testOrder,
		"NamesThatAreNoNamesAreRefused":             testNames,
		"WhatIsNotThereIsNotFound":                  testMissing,
		"ACopyIsIndependentOfItsSource":             testCopy,
		"ASnapshotKeepsWhatWas":                     testSnapshot,
		"WhatIsPromisedIsCounted":                   testUsage,
		"AnObjectInUseIsNotDeleted":                 testInUse,
		"ManyAtOnceGetWhatTheyAskedFor":             testAtOnce,
		"AVerbCutShortAnywhereConverges":            testCrashes,
		"RandomVerbsAndRestartsEndWhereAModelSays":  testModel,
		"ACanceledCreationLeavesNothing":            testCanceled,
		"ActivationSucceedsTwiceAndSoDoesItsEnding": testActivate,
	} {
		t.Run(name, func(t *testing.T) {
			sub := fresh(t)
			r := &rig{t: t, sub: sub, s: sub.Open(t)}
			test(t, r)
		})
	}
}

// rig is a subject under test.
type rig struct {
	t   *testing.T
	sub Subject
	s   store.Store
}

func (r *rig) restart() { r.s = r.sub.Open(r.t) }

// Labels are labels of an object for tests; each number makes others.
func Labels(n int) store.Labels {
	return store.Labels{Tenant: "tenant-1", Name: fmt.Sprintf("pvc-%d", n), Identity: fmt.Sprintf("%032x", n+1),
		Created: time.Unix(1_700_000_000+int64(n), 0).UTC()}
}

func (r *rig) spec(name string) store.Spec {
	return store.Spec{Name: name, Size: r.sub.Size, Labels: Labels(1)}
}

func (r *rig) create(s store.Spec) store.Object {
	r.t.Helper()
	o, err := r.s.Create(r.t.Context(), s)
	if err != nil {
		r.t.Fatalf("create %s: %v", s.Name, err)
	}
	return o
}

func (r *rig) delete(name string) {
	r.t.Helper()
	if err := r.s.Delete(r.t.Context(), name); err != nil {
		r.t.Fatalf("delete %s: %v", name, err)
	}
}

func (r *rig) object(name string) store.Object {
	r.t.Helper()
	o, err := r.s.Object(r.t.Context(), name)
	if err != nil {
		r.t.Fatalf("object %s: %v", name, err)
	}
	return o
}

// with opens an object's bytes while f runs.
func (r *rig) with(name string, flag int, f func(*os.File)) {
	r.t.Helper()
	b, err := r.s.Activate(r.t.Context(), name)
	if err != nil {
		r.t.Fatalf("activate %s: %v", name, err)
	}
	file, err := os.OpenFile(b.Path, flag, 0) //nolint:gosec // what the store named
	if err != nil {
		r.t.Fatal(err)
	}
	f(file)
	if err := file.Close(); err != nil {
		r.t.Error(err)
	}
	if err := r.s.Deactivate(r.t.Context(), name); err != nil {
		r.t.Errorf("deactivate %s: %v", name, err)
	}
}

// put writes text at an offset, durably.
func (r *rig) put(name string, off int64, text string) {
	r.t.Helper()
	r.with(name, os.O_RDWR, func(f *os.File) {
		if _, err := f.WriteAt([]byte(text), off); err != nil {
			r.t.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			r.t.Fatal(err)
		}
	})
}

// want reads text at an offset.
func (r *rig) want(name string, off int64, text string) {
	r.t.Helper()
	r.with(name, os.O_RDONLY, func(f *os.File) {
		got := make([]byte, len(text))
		if _, err := f.ReadAt(got, off); err != nil {
			r.t.Fatalf("%s at %d: %v", name, off, err)
		}
		if string(got) != text {
			r.t.Errorf("%s at %d: %q, want %q", name, off, got, text)
		}
	})
}

// zero reads a whole object of size bytes, which are all zero.
func (r *rig) zero(name string, size int64) {
	r.t.Helper()
	r.with(name, os.O_RDONLY, func(f *os.File) {
		var total int64
		buf, zeroes := make([]byte, 1<<20), make([]byte, 1<<20)
		for {
			n, err := f.Read(buf)
			total += int64(n)
			if !bytes.Equal(buf[:n], zeroes[:n]) {
				r.t.Errorf("%s is not all zero before byte %d", name, total)
			}
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				r.t.Fatal(err)
			}
		}
		if total != size {
			r.t.Errorf("%s has %d bytes, want %d", name, total, size)
		}
	})
}

// refused wants an error of a kind.
func (r *rig) refused(what string, err, kind error) {
	r.t.Helper()
	if !errors.Is(err, kind) {
		r.t.Errorf("%s: %v, want %q", what, err, kind)
	}
}

// empty wants nothing to be left of any object.
func (r *rig) empty() {
	r.t.Helper()
	if left := r.sub.Leftovers(r.t); len(left) != 0 {
		r.t.Errorf("left behind: %s", strings.Join(left, ", "))
	}
	objects, err := r.s.Objects(r.t.Context())
	unfinished, err2 := r.s.Unfinished(r.t.Context())
	if err := errors.Join(err, err2); err != nil || len(objects)+len(unfinished) != 0 {
		r.t.Errorf("objects %v, unfinished %v, %v", objects, unfinished, err)
	}
	u, err := r.s.Usage(r.t.Context())
	if err != nil || u.Promised != 0 {
		r.t.Errorf("%d bytes are promised to nobody, %v", u.Promised, err)
	}
}

// copies reports whether the store can make any; if not, it must say so.
func (r *rig) copies(source string) bool {
	r.t.Helper()
	if r.s.Features().Snapshots {
		return true
	}
	s := r.spec("s-copy")
	s.Source = source
	_, err := r.s.Create(r.t.Context(), s)
	r.refused("a copy where there are none", err, backend.ErrUnsupported)
	return false
}
