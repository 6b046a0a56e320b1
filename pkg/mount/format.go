package mount

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/csi-mpath/csi-mpath/pkg/faultpoint"
	"github.com/csi-mpath/csi-mpath/pkg/program"
)

// Points are the fault points of this package, in the order of a first Stage.
var Points = []string{"mount.format.begun", "mount.format.intended", "mount.format.made", "mount.format.synced",
	"mount.format.half-cleared", "mount.format.cleared", "mount.stage.prepared", "mount.stage.mounted"}

// format makes a file system: the intent, mkfs, everything durable, and the intent
// away. Interrupted anywhere, it leaves an intent, or a complete file system.
func (h *Host) format(ctx context.Context, d Device, r *Request) error {
	if _, err := h.read(ctx, d, int(d.Size-headLen)&^(blockLen-1), headLen); err != nil {
		return err // signatures lie there too: blkid must have seen them
	}
	if err := h.intend(ctx, d, r); err != nil {
		return err
	}
	name, args := mkfs(r)
	if _, err := h.on(ctx, d, program.Call{Name: name, Args: append(args, d.Path)}); err != nil {
		return err
	}
	faultpoint.Here("mount.format.made")
	return h.finish(ctx, d, r)
}

// intend writes the intent to both its places.
func (h *Host) intend(ctx context.Context, d Device, r *Request) error {
	block := append(intentFor(r.Volume, r.FSType), make([]byte, blockLen-intentLen)...)
	if err := h.write(ctx, d, farPlace, block); err != nil {
		return err
	}
	faultpoint.Here("mount.format.begun")
	if err := h.write(ctx, d, bootPlace, block); err != nil {
		return err
	}
	faultpoint.Here("mount.format.intended")
	return nil
}

// finish makes a new file system durable, looks at it, and removes what is left
// of the intent.
func (h *Host) finish(ctx context.Context, d Device, r *Request) error {
	if _, err := h.on(ctx, d, program.Call{Name: "sync", Args: []string{d.Path}}); err != nil {
		return err
	}
	faultpoint.Here("mount.format.synced")
	head, err := h.read(ctx, d, 0, headLen)
	if err != nil {
		return err
	}
	if s := readSuperblock(head); s == nil || s.fsType != r.FSType || s.unfinished {
		return fmt.Errorf("mkfs.%s ended well, and there is no %s on %s", r.FSType, r.FSType, d.Path)
	}
	if err := h.clear(ctx, d, r.Volume, head, farPlace); err != nil {
		return err
	}
	faultpoint.Here("mount.format.half-cleared")
	if err := h.clear(ctx, d, r.Volume, head, bootPlace); err != nil {
		return err
	}
	faultpoint.Here("mount.format.cleared")
	return nil
}

// clear removes the intent from one of its places, if it is there. What shares
// the block with it, ext4's superblock, is written back as it was.
func (h *Host) clear(ctx context.Context, d Device, volume string, head []byte, place int) error {
	if !intended(head[place:], volume) {
		return nil
	}
	block := bytes.Clone(head[place : place+blockLen])
	clear(block[:intentLen])
	return h.write(ctx, d, place, block)
}

// mkfs is the command for a file system. The device is not discarded: a discard
// would take the intent away, and a blank volume has nothing to discard.
func mkfs(r *Request) (name string, args []string) {
	if r.FSType == XFS {
		return "mkfs.xfs", append([]string{"-f", "-K"}, r.MkfsOptions...)
	}
	return "mkfs.ext4", append([]string{"-F", "-q", "-m0"}, noDiscard(r.MkfsOptions)...)
}

// noDiscard adds nodiscard to mke2fs's extended options, of which it reads only
// the last list.
func noDiscard(options []string) []string {
	out := slices.Clone(options)
	for i := len(out) - 1; i >= 0; i-- {
		switch {
		case out[i] == "-E" && i+1 < len(out):
			out[i+1] += ",nodiscard"
			return out
		case strings.HasPrefix(out[i], "-E") && len(out[i]) > 2:
			out[i] += ",nodiscard"
			return out
		}
	}
	return append(out, "-E", "nodiscard")
}
