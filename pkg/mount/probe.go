package mount

import (
	"context"
	"fmt"
	"strconv"

	"github.com/csi-mpath/csi-mpath/pkg/program"
)

// content is what a probe found.
type content struct {
	verdict verdict
	super   *superblock
	tags    tags
	head    []byte
}

// blkid's exit codes (blkid(8)).
const (
	blkidNothing   = 2 // also where it could not read: only after our own read is it an answer
	blkidAmbiguous = 8
)

// probe finds out what is on a device. Every error is one of reading, or of
// blkid: it never means "nothing there" (I7, case D-01).
func (h *Host) probe(ctx context.Context, d Device, volume string) (content, error) {
	head, err := h.read(ctx, d, 0, headLen)
	if err != nil {
		return content{}, err
	}
	c := content{head: head}
	if c.verdict, c.super = judge(head, volume); c.verdict == cutShort || c.verdict == abandoned {
		return c, nil
	}
	r, err := h.on(ctx, d, program.Call{Name: "blkid", Args: []string{"-p", "-o", "export", d.Path}}, blkidNothing, blkidAmbiguous)
	if err == nil && r.Code == blkidNothing && c.super != nil {
		err = fmt.Errorf("blkid sees nothing where the superblock of %s was read", c.super.fsType)
	}
	if err != nil {
		return content{}, fmt.Errorf("%s: %w: %w", d.Path, ErrUnreadable, err)
	}
	c.tags = readTags(r.Out)
	c.tags.ambiguous = r.Code == blkidAmbiguous
	return c, nil
}

// read reads n bytes at off, multiples of blockLen, past the page cache: all of
// them, or an error.
func (h *Host) read(ctx context.Context, d Device, off, n int) ([]byte, error) {
	if d.Size < headLen {
		return nil, fmt.Errorf("%s has %d bytes, less than %d: %w", d.Path, d.Size, headLen, ErrUnreadable)
	}
	r, err := h.on(ctx, d, program.Call{Name: "dd", Output: n, Args: []string{
		"if=" + d.Path, "iflag=direct,skip_bytes,count_bytes,fullblock", "bs=" + strconv.Itoa(min(n, 1<<20)),
		"skip=" + strconv.Itoa(off), "count=" + strconv.Itoa(n), "status=none"}})
	if err == nil && len(r.Out) != n {
		err = fmt.Errorf("%d of %d bytes were read", len(r.Out), n)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: read %d bytes at %d: %w: %w", d.Path, n, off, ErrUnreadable, err)
	}
	return r.Out, nil
}

// write writes whole blocks at off, past the page cache, and syncs the device.
func (h *Host) write(ctx context.Context, d Device, off int, b []byte) error {
	_, err := h.on(ctx, d, program.Call{Name: "dd", Stdin: b, Args: []string{
		"of=" + d.Path, "iflag=fullblock", "oflag=direct,seek_bytes", "bs=" + strconv.Itoa(len(b)), "count=1",
		"seek=" + strconv.Itoa(off), "conv=notrunc,nocreat,fsync", "status=none"}})
	if err != nil {
		return fmt.Errorf("%s: write %d bytes at %d: %w", d.Path, len(b), off, err)
	}
	return nil
}
