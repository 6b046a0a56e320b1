package agent

import (
	"fmt"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// errStopping ends watches.
var errStopping = fmt.Errorf("%w: the agent is stopping", backend.ErrUnavailable)
