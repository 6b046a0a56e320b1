package memory

import (
	"errors"
	"os"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/agent/store"
	"github.com/csi-mpath/csi-mpath/pkg/agent/store/storetest"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

func TestTheContract(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Subject {
		dir := t.TempDir()
		s := New(Config{Dir: dir, Snapshots: true, AtomicSnapshots: true})
		return storetest.Subject{
			Open: func(*testing.T) store.Store { return s },
			Leftovers: func(t *testing.T) (out []string) {
				entries, err := os.ReadDir(dir)
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range entries {
					out = append(out, e.Name())
				}
				return out
			},
			Size: 4 << 20,
		}
	})
}

func TestAFilledPoolRefusesCreations(t *testing.T) {
	s := New(Config{Dir: t.TempDir(), Total: 100 << 20})
	spec := store.Spec{Name: "v-1", Size: step, Labels: storetest.Labels(1)}
	s.Fill(95 << 20)
	if _, err := s.Create(t.Context(), spec); !errors.Is(err, backend.ErrNoSpace) {
		t.Errorf("%v", err)
	}
	s.Fill(0)
	if _, err := s.Create(t.Context(), spec); err != nil {
		t.Error(err)
	}
}
