package storetest

import (
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

func testCopy(t *testing.T, r *rig) {
	r.create(r.spec("v-1"))
	r.put("v-1", 4096, "shared")
	if !r.copies("v-1") {
		return
	}
	s := r.spec("v-2")
	s.Source, s.Size, s.Labels = "v-1", r.sub.Size+r.s.Features().Step, Labels(2)
	if o := r.create(s); o.Size != s.Size || o.Content == backend.ContentBlank {
		t.Errorf("the copy: %+v", o)
	}
	r.want("v-2", 4096, "shared")
	r.put("v-2", 4096, "second")
	r.want("v-1", 4096, "shared")
	r.put("v-1", 8192, "first")
	r.want("v-2", 8192, "\x00\x00\x00\x00\x00")
	r.delete("v-1")
	r.want("v-2", 4096, "second")
	r.restart()
	r.want("v-2", 4096, "second")
	if o := r.object("v-2"); o.Size != s.Size || o.Labels.Name != s.Labels.Name {
		t.Errorf("the copy after a restart: %+v", o)
	}
	r.delete("v-2")
	r.empty()
}

func testSnapshot(t *testing.T, r *rig) {
	r.create(r.spec("v-1"))
	r.put("v-1", 0, "before")
	if !r.copies("v-1") {
		return
	}
	s := r.spec("s-1")
	s.Source, s.Size, s.ReadOnly = "v-1", 0, true
	if o := r.create(s); o.Size != r.sub.Size || !o.ReadOnly {
		t.Errorf("the snapshot: %+v", o)
	}
	r.put("v-1", 0, "after.")
	r.want("s-1", 0, "before")
	_, err := r.s.Expand(t.Context(), "s-1", 2*r.sub.Size)
	r.refused("expanding a snapshot", err, backend.ErrInvalid)
	s = r.spec("v-2")
	s.Source = "s-1"
	if o := r.create(s); o.ReadOnly {
		t.Error("a copy of a snapshot is read-only")
	}
	less := r.spec("v-3")
	less.Source, less.Size = "s-1", r.sub.Size-r.s.Features().Step
	_, err = r.s.Create(t.Context(), less)
	r.refused("a copy shorter than its source", err, backend.ErrRange)
	r.delete("s-1")
	r.put("v-2", 100, "writable")
	r.want("v-2", 0, "before")
}
