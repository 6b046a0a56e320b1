package driver

import (
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csi-mpath/csi-mpath/pkg/volume/attrs"
)

// access is what a volume capability asks for.
type access struct {
	block bool
	// shared: several nodes may have the volume at a time.
	shared bool
	// readOnly, whatever the call itself says.
	readOnly bool
	// oneWriter: of several nodes, one may write.
	oneWriter bool
}

// modes are all that CSI knows (1.13).
var modes = map[csi.VolumeCapability_AccessMode_Mode]access{
	csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER:        {},
	csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER: {},
	csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER:  {},
	csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY:   {readOnly: true},
	csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY:    {shared: true, readOnly: true},
	csi.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER:  {shared: true, oneWriter: true},
	csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER:   {shared: true},
}

// fileSystems are those that nodes make.
var fileSystems = map[string]bool{"": true, "ext4": true, "xfs": true}

func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %w", attrs.ErrInvalid, fmt.Errorf(format, args...))
}

// accessOf reads a capability.
func accessOf(c *csi.VolumeCapability) (access, error) {
	if c == nil {
		return access{}, missing("volume_capability")
	}
	a, known := modes[c.GetAccessMode().GetMode()]
	if !known {
		return access{}, refuse("access mode %v: none that this driver knows", c.GetAccessMode().GetMode())
	}
	switch {
	case c.GetBlock() != nil:
		a.block = true
	case c.GetMount() == nil:
		return access{}, refuse("access type: neither block nor mount")
	case a.shared && !a.readOnly:
		return access{}, refuse("access mode %v of a file system: two nodes that write would destroy it: use volumeMode Block, or ReadWriteOnce", c.GetAccessMode().GetMode())
	case !fileSystems[c.GetMount().GetFsType()]:
		return access{}, refuse("file system %q: want ext4 or xfs", c.GetMount().GetFsType())
	}
	return a, nil
}

// checkAccess refuses capabilities of which one cannot be had.
func checkAccess(all []*csi.VolumeCapability) error {
	if len(all) == 0 {
		return missing("volume_capabilities")
	}
	for _, c := range all {
		if _, err := accessOf(c); err != nil {
			return err
		}
	}
	return nil
}
