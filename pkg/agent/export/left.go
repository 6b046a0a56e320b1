package export

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// Lister lists what is served under our names, as Exporter.Exported does.
type Lister func(ctx context.Context) ([]Exported, error)

// CheckLeft refuses to go on beside volumes that an exporter serves which the
// configuration does not use (any more): it outlives the agent, and whoever is
// unpublished now would keep his access there (I9). unused are those exporters, by
// kind.
func CheckLeft(ctx context.Context, unused map[string]Lister) error {
	for _, kind := range slices.Sorted(maps.Keys(unused)) {
		left, err := unused[kind](ctx)
		if err != nil {
			return fmt.Errorf("exports of kind %s that an earlier configuration may have left: %w", kind, err)
		}
		if len(left) > 0 {
			return fmt.Errorf("%w: %s still serves %d volumes of ours, such as %s, and no transport is of that kind: configure it again until they are unpublished, or reboot this host",
				backend.ErrInUse, kind, len(left), left[0].Target)
		}
	}
	return nil
}
