package export

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

func serving(targets ...string) Lister {
	return func(context.Context) (out []Exported, err error) {
		for _, name := range targets {
			out = append(out, Exported{Target: name})
		}
		return out, nil
	}
}

func TestWhatAnUnusedExporterStillServesIsAnError(t *testing.T) {
	err := CheckLeft(t.Context(), map[string]Lister{"a": serving(), "b": serving("iqn.one", "iqn.two")})
	if !errors.Is(err, backend.ErrInUse) || !strings.Contains(err.Error(), "b still serves 2 volumes of ours, such as iqn.one") {
		t.Errorf("got %v, want who serves what", err)
	}
}

func TestUnusedExportersThatServeNothingAreFine(t *testing.T) {
	if err := CheckLeft(t.Context(), map[string]Lister{"a": serving(), "b": serving()}); err != nil {
		t.Error(err)
	}
}

func TestAnExporterThatCannotBeAskedIsNotTakenForOneThatServesNothing(t *testing.T) {
	ill := errors.New("ill")
	err := CheckLeft(t.Context(), map[string]Lister{"a": func(context.Context) ([]Exported, error) { return nil, ill }})
	if !errors.Is(err, ill) {
		t.Errorf("got %v, want %v", err, ill)
	}
}
