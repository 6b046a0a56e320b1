package storetest

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/agent/store"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// modelled is what an object should be: its size, and what is at its beginning.
type modelled struct {
	size  int64
	text  string
	label int
}

const (
	modelSteps = 60
	blankText  = "\x00\x00\x00\x00\x00\x00\x00\x00"
)

// testModel draws verbs, and compares the store with a map after each.
func testModel(t *testing.T, r *rig) {
	rnd := rand.New(rand.NewPCG(7, 11))
	model := map[string]modelled{}
	for i := range cmp.Or(r.sub.Steps, modelSteps) {
		name := fmt.Sprintf("v-%d", rnd.IntN(3))
		m, there := model[name]
		switch rnd.IntN(7) {
		case 0, 1:
			model[name] = r.modelCreate(name, m, there, i)
		case 2:
			source := fmt.Sprintf("v-%d", rnd.IntN(3))
			if from, ok := model[source]; ok && !there && r.s.Features().Snapshots {
				r.create(store.Spec{Name: name, Size: from.size, Source: source, Labels: Labels(i)})
				model[name] = modelled{size: from.size, text: from.text, label: i}
			}
		case 3:
			r.delete(name)
			delete(model, name)
		case 4:
			r.modelExpand(name, model)
		case 5:
			if there {
				m.text = fmt.Sprintf("step%04d", i)
				r.put(name, 0, m.text)
				model[name] = m
			}
		case 6:
			r.restart()
		}
		r.compare(t, model)
	}
}

func (r *rig) modelCreate(name string, m modelled, there bool, i int) modelled {
	r.t.Helper()
	s := r.spec(name)
	s.Labels = Labels(i)
	r.create(s)
	if there {
		return m
	}
	return modelled{size: r.sub.Size, text: blankText, label: i}
}

func (r *rig) modelExpand(name string, model map[string]modelled) {
	r.t.Helper()
	m, there := model[name]
	size := min(m.size+r.s.Features().Step, 2*r.sub.Size)
	o, err := r.s.Expand(r.t.Context(), name, size)
	if !there {
		r.refused("expanding what is not there", err, backend.ErrNotFound)
		return
	}
	if err != nil || o.Size != size {
		r.t.Fatalf("expand %s: %+v, %v", name, o, err)
	}
	m.size = size
	model[name] = m
}

func (r *rig) compare(t *testing.T, model map[string]modelled) {
	t.Helper()
	objects, err := r.s.Objects(t.Context())
	unfinished, err2 := r.s.Unfinished(t.Context())
	if err := errors.Join(err, err2); err != nil || len(objects) != len(model) || len(unfinished) != 0 {
		t.Fatalf("objects %v, unfinished %v, %v; want %v", objects, unfinished, err, model)
	}
	var promised int64
	for _, o := range objects {
		m := model[o.Name]
		promised += m.size
		if o.Size != m.size || o.Labels.Name != Labels(m.label).Name {
			t.Errorf("%+v, want %+v", o, m)
		}
		if o.Content == backend.ContentBlank && strings.Trim(m.text, "\x00") != "" {
			t.Errorf("%s is said to be blank, and has %q", o.Name, m.text)
		}
		r.want(o.Name, 0, m.text)
	}
	if u, err := r.s.Usage(t.Context()); err != nil || u.Promised != promised {
		t.Errorf("%d bytes promised, %v; want %d", u.Promised, err, promised)
	}
}
