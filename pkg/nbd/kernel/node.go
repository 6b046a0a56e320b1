package kernel

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// node is what is done with a device's node. Its calls may hang.
type node interface {
	// probe opens the node, and reads its first block.
	probe(path string, device string, size uint64) error
	// claim fails with EBUSY while the device is mounted or held exclusively.
	claim(path string) error
}

// errNotYet: the node is not there or not right, but may become so.
var errNotYet = errors.New("not there yet")

type blockNode struct{}

func (blockNode) claim(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_EXCL|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	return unix.Close(fd)
}

// probe: device is "major:minor" as sysfs names it. The open makes the kernel
// look for partitions, which reads, too.
func (blockNode) probe(path, device string, size uint64) error {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return fmt.Errorf("%w: %s: %w (is the node's /dev mounted here?)", errNotYet, path, err)
	}
	if have := fmt.Sprintf("%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev)); st.Mode&unix.S_IFMT != unix.S_IFBLK || have != device {
		return fmt.Errorf("%w: %s is device %s, not %s (is the node's /dev mounted here?)", errNotYet, path, have, device)
	}
	f, err := os.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	end, err := f.Seek(0, 2)
	if err != nil {
		return fmt.Errorf("%w: size of %s: %w", errNotYet, path, err)
	}
	if uint64(end) != size {
		return fmt.Errorf("%w: %s has %d bytes, not %d", errNotYet, path, end, size)
	}
	_, err = f.ReadAt(make([]byte, 512), 0)
	return err
}

// answers waits until the device's node is there with the right size, and its
// first block can be read.
func (k *Kernel) answers(ctx context.Context, index int, size uint64) error {
	device, err := k.read(index, "dev")
	if err != nil {
		return err
	}
	var last error
	err = poll(ctx, func() (bool, error) {
		last = k.do(ctx, "read "+k.path(index), func() error { return k.node.probe(k.path(index), device, size) }, nil)
		if errors.Is(last, errNotYet) {
			return false, nil
		}
		return true, last
	})
	if err != nil && errors.Is(last, errNotYet) {
		return fmt.Errorf("%w: %w", last, err) // why it is not there, and who gave up
	}
	return err
}
