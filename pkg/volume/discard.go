package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/csi-mpath/csi-mpath/pkg/durable"
)

// discardSuffix is that of an operator's mark. It has no content, and counts until
// its volume is unstaged.
const discardSuffix = ".discard"

func discardPath(dir, volume string) string {
	return filepath.Join(dir, durable.FileName(volume)+discardSuffix)
}

// Discard gives up what a volume could not write (I5), in the name of an operator
// and from any process: state is the Config.State of the node that has it. The
// volume's next Unstage waits for no storage.
func Discard(state, volume string) error {
	if err := checkVolume(volume); err != nil {
		return err
	}
	if _, err := os.Stat(recordPath(state, volume)); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("volume %s: %w: it is not staged by the node plugin whose state is in %s", volume, ErrNotFound, state)
	} else if err != nil {
		return err
	}
	return durable.Write(discardPath(state, volume), nil)
}

// discarded revokes a volume that an operator gave up.
func (n *Node) discarded(st *state) (*state, error) {
	if st.rec.Revoked != "" {
		return st, nil
	}
	_, err := os.Stat(discardPath(n.cfg.State, st.rec.Volume))
	if errors.Is(err, fs.ErrNotExist) {
		return st, nil
	}
	if err != nil {
		return st, err
	}
	return n.revoked(st, "an operator gave up what it could not write")
}
