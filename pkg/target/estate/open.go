package estate

import (
	"github.com/csi-mpath/csi-mpath/pkg/target"
	"github.com/csi-mpath/csi-mpath/pkg/target/config"
)

// openFile opens a file that exists.
func openFile(s config.Store) (*target.File, error) {
	return target.OpenFileWith(s.File, target.Options{Direct: s.Direct})
}
