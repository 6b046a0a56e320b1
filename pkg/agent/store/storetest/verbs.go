package storetest

import (
	"context"
	"fmt"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/agent/store"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

func testBlank(t *testing.T, r *rig) {
	o := r.create(r.spec("v-1"))
	if o.Content == backend.ContentWritten {
		t.Error("a new object is said to be written")
	}
	if o.Size != r.sub.Size || o.ReadOnly {
		t.Errorf("%+v", o)
	}
	r.zero("v-1", o.Size)
	r.put("v-1", 4096, "something")
	if c := r.object("v-1").Content; c == backend.ContentBlank {
		t.Error("a written object is said to be blank")
	}
}

func testAgain(t *testing.T, r *rig) {
	first := r.create(r.spec("v-1"))
	other := r.spec("v-1")
	other.Size, other.Labels = 2*r.sub.Size, Labels(2)
	if again := r.create(other); again.Size != first.Size || again.Labels.Identity != first.Labels.Identity {
		t.Errorf("the finished object became %+v", again)
	}
}

func testSurvives(t *testing.T, r *rig) {
	r.create(r.spec("v-1"))
	r.put("v-1", 8192, "kept")
	r.restart()
	r.want("v-1", 8192, "kept")
	if o := r.object("v-1"); !reflect.DeepEqual(o.Labels, Labels(1)) {
		t.Errorf("labels: %+v", o.Labels)
	}
}

// full are labels as large as they may be.
func full() store.Labels {
	l := store.Labels{Tenant: strings.Repeat("t", backend.MaxObject), Name: strings.Repeat("ü\"", 42) + "/\n", Identity: strings.Repeat("f", 32),
		Source: backend.ID{Pool: strings.Repeat("p", backend.MaxPool), Object: strings.Repeat("o", backend.MaxObject)}, SourceSnapshot: true,
		Created: time.Unix(math.MaxInt32, 0).UTC(), Generation: math.MaxInt64, Tunables: map[string]string{}}
	for i := range backend.MaxTunables {
		l.Tunables[fmt.Sprintf("key%02d", i)] = strings.Repeat("ä", 5) + "\x01"
	}
	return l
}

func testLabels(t *testing.T, r *rig) {
	s := r.spec("v-1")
	s.Labels = full()
	r.create(s)
	r.restart()
	if o := r.object("v-1"); !reflect.DeepEqual(o.Labels, full()) {
		t.Errorf("labels became %+v", o.Labels)
	}
	o, err := r.s.Label(t.Context(), "v-1", Labels(7))
	if err != nil || !reflect.DeepEqual(o.Labels, Labels(7)) {
		t.Errorf("labels replaced: %+v, %v", o.Labels, err)
	}
	r.restart()
	if o := r.object("v-1"); !reflect.DeepEqual(o.Labels, Labels(7)) {
		t.Errorf("labels became %+v", o.Labels)
	}
	_, err = r.s.Label(t.Context(), "v-2", Labels(7))
	r.refused("labels of nothing", err, backend.ErrNotFound)
	bad := Labels(7)
	bad.Identity = "../x"
	_, err = r.s.Label(t.Context(), "v-1", bad)
	r.refused("a bad label", err, backend.ErrInvalid)
}

func testDelete(_ *testing.T, r *rig) {
	o := r.create(r.spec("v-1"))
	r.put("v-1", 0, "secret of the first")
	r.delete("v-1")
	r.empty()
	r.delete("v-1")
	r.create(r.spec("v-1"))
	r.zero("v-1", o.Size)
	r.delete("v-1")
	r.restart()
	r.empty()
}

func testExpand(t *testing.T, r *rig) {
	r.create(r.spec("v-1"))
	r.put("v-1", r.sub.Size-4, "last")
	longer := r.sub.Size + r.s.Features().Step
	for _, size := range []int64{longer, longer, r.sub.Size, 1} {
		o, err := r.s.Expand(t.Context(), "v-1", size)
		if err != nil || o.Size != longer {
			t.Fatalf("expanded to %d: %+v, %v", size, o, err)
		}
	}
	r.want("v-1", r.sub.Size-4, "last\x00\x00\x00\x00")
	r.restart()
	if o := r.object("v-1"); o.Size != longer {
		t.Errorf("%d bytes after a restart, want %d", o.Size, longer)
	}
	_, err := r.s.Expand(t.Context(), "v-2", longer)
	r.refused("expanding nothing", err, backend.ErrNotFound)
}

func testSizes(t *testing.T, r *rig) {
	f := r.s.Features()
	s := r.spec("v-1")
	s.Size = r.sub.Size - 1
	if o := r.create(s); o.Size%f.Step != 0 || o.Size < s.Size || o.Size >= s.Size+f.Step {
		t.Errorf("%d bytes became %d, with a step of %d", s.Size, o.Size, f.Step)
	}
	for _, size := range []int64{math.MinInt64, -1, 0, f.Max + 1, math.MaxInt64} {
		s := r.spec("v-2")
		s.Size = size
		_, err := r.s.Create(t.Context(), s)
		if err == nil {
			t.Errorf("an object of %d bytes was made", size)
		}
	}
	_, err := r.s.Expand(t.Context(), "v-1", math.MaxInt64)
	r.refused("expanding beyond all bounds", err, backend.ErrRange)
	r.delete("v-1")
	r.empty()
}

func testOrder(t *testing.T, r *rig) {
	names := []string{"v-3", "v-1", "v-2", "s-9"}
	for _, n := range names {
		r.create(r.spec(n))
	}
	slices.Sort(names)
	objects, err := r.s.Objects(t.Context())
	var got []string
	for _, o := range objects {
		got = append(got, o.Name)
	}
	if err != nil || !slices.Equal(got, names) {
		t.Errorf("%v, %v; want %v", got, err, names)
	}
}

func testNames(t *testing.T, r *rig) {
	ctx := t.Context()
	for _, n := range []string{"", ".", "..", "../v-1", "/etc/passwd", "v/1", "v-1\x00", "-v", "v-", "V-1", "v_1", "v 1", "v.img", strings.Repeat("v", 64), "--force"} {
		s := r.spec(n)
		_, err := r.s.Create(ctx, s)
		r.refused(fmt.Sprintf("create %q", n), err, backend.ErrInvalid)
		if n != "" {
			s = r.spec("v-1")
			s.Source = n
			_, err = r.s.Create(ctx, s)
			r.refused(fmt.Sprintf("create from %q", n), err, backend.ErrInvalid)
		}
		_, err = r.s.Object(ctx, n)
		r.refused(fmt.Sprintf("object %q", n), err, backend.ErrInvalid)
		r.refused(fmt.Sprintf("delete %q", n), r.s.Delete(ctx, n), backend.ErrInvalid)
		_, err = r.s.Expand(ctx, n, r.sub.Size)
		r.refused(fmt.Sprintf("expand %q", n), err, backend.ErrInvalid)
		_, err = r.s.Label(ctx, n, Labels(1))
		r.refused(fmt.Sprintf("label %q", n), err, backend.ErrInvalid)
		_, err = r.s.Activate(ctx, n)
		r.refused(fmt.Sprintf("activate %q", n), err, backend.ErrInvalid)
		r.refused(fmt.Sprintf("deactivate %q", n), r.s.Deactivate(ctx, n), backend.ErrInvalid)
	}
	r.empty()
}

func testMissing(t *testing.T, r *rig) {
	_, err := r.s.Object(t.Context(), "v-1")
	r.refused("an object that is not there", err, backend.ErrNotFound)
	_, err = r.s.Activate(t.Context(), "v-1")
	r.refused("activating what is not there", err, backend.ErrNotFound)
	if err := r.s.Deactivate(t.Context(), "v-1"); err != nil {
		t.Errorf("deactivating what is not there: %v", err)
	}
	if r.s.Features().Snapshots {
		s := r.spec("v-2")
		s.Source = "v-1"
		_, err = r.s.Create(t.Context(), s)
		r.refused("a copy of what is not there", err, backend.ErrNotFound)
	}
	r.empty()
}

func testUsage(t *testing.T, r *rig) {
	before, err := r.s.Usage(t.Context())
	if err != nil || before.Promised != 0 || before.Total <= 0 || before.Available <= 0 || before.Available < before.MaxObject || before.Filling || before.Full {
		t.Fatalf("%+v, %v", before, err)
	}
	r.create(r.spec("v-1"))
	r.create(r.spec("v-2"))
	r.restart()
	u, err := r.s.Usage(t.Context())
	if err != nil || u.Promised != 2*r.sub.Size || u.Available >= before.Available {
		t.Errorf("%+v, %v; want %d promised", u, err, 2*r.sub.Size)
	}
	most := u.MaxObject + r.s.Features().Step
	if most <= r.s.Features().Max {
		s := r.spec("v-3")
		s.Size = most
		_, err = r.s.Create(t.Context(), s)
		r.refused("more than there is", err, backend.ErrNoSpace)
		_, err = r.s.Expand(t.Context(), "v-1", most+r.sub.Size)
		r.refused("expanding to more than there is", err, backend.ErrNoSpace)
	}
	r.delete("v-1")
	r.delete("v-2")
	r.empty()
}

func testInUse(t *testing.T, r *rig) {
	r.create(r.spec("v-1"))
	if r.sub.InUse {
		r.with("v-1", os.O_RDWR, func(*os.File) {
			r.refused("deleting what is open", r.s.Delete(t.Context(), "v-1"), backend.ErrInUse)
		})
		r.object("v-1")
	}
	r.delete("v-1")
	r.empty()
}

func testAtOnce(t *testing.T, r *rig) {
	const many = 8
	var wg sync.WaitGroup
	for i := range many {
		wg.Go(func() {
			name := fmt.Sprintf("v-%d", i)
			s := r.spec(name)
			s.Labels = Labels(i)
			s.Size = r.s.Features().Step
			if _, err := r.s.Create(t.Context(), s); err != nil {
				t.Errorf("create %s: %v", name, err)
			}
			if _, err := r.s.Objects(t.Context()); err != nil {
				t.Errorf("objects: %v", err)
			}
			if o, err := r.s.Object(t.Context(), name); err != nil || o.Labels.Name != s.Labels.Name {
				t.Errorf("object %s: %+v, %v", name, o, err)
			}
			if err := r.s.Delete(t.Context(), name); err != nil {
				t.Errorf("delete %s: %v", name, err)
			}
		})
	}
	wg.Wait()
	r.empty()
}

func testCanceled(t *testing.T, r *rig) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.s.Create(ctx, r.spec("v-1")); err == nil {
		t.Error("a creation nobody waits for succeeded")
	}
	r.empty()
}

func testActivate(t *testing.T, r *rig) {
	r.create(r.spec("v-1"))
	a, err := r.s.Activate(t.Context(), "v-1")
	b, err2 := r.s.Activate(t.Context(), "v-1")
	if err != nil || err2 != nil || a != b || a.Block != r.s.Features().Block {
		t.Errorf("%+v, %v; then %+v, %v", a, err, b, err2)
	}
	for range 2 {
		if err := r.s.Deactivate(t.Context(), "v-1"); err != nil {
			t.Error(err)
		}
	}
}
