package mount

import (
	"context"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/csi-mpath/csi-mpath/pkg/program"
)

// Host is the file systems of one node. Its methods may be called from any
// goroutine, return when ctx ends, also while the device hangs, and are
// idempotent. Errors wrap the ones in errors.go.
type Host struct {
	node  Node
	calls calls
}

// Node is what a Host reaches: the running one, or mounttest's twin.
type Node interface {
	// Run runs a program, as program.Run does.
	Run(ctx context.Context, c program.Call) (program.Result, error)
	// MountInfo is /proc/self/mountinfo.
	MountInfo() ([]byte, error)
	// Device finds a block device by the path of its node, Numbered by its number:
	// fs.ErrNotExist when there is none. Neither waits for the device.
	Device(path string) (Device, error)
	Numbered(number string) (Device, error)
	// Statfs is statfs(2).
	Statfs(path string, s *unix.Statfs_t) error
}

// Device is a block device as the kernel knows it now.
type Device struct {
	Path   string
	Number string // "43:0"
	Size   uint64 // bytes
}

// New is the running node's.
func New() *Host { return Over(thisNode{}) }

// Over is a node's.
func Over(n Node) *Host { return &Host{node: n} }

// Programs are what must be installed.
var Programs = []string{"blkid", "dd", "e2fsck", "mkfs.ext4", "mkfs.xfs", "mount", "resize2fs", "sync", "umount", "xfs_growfs", "xfs_repair"}

// program runs a program that may wait for what the keys name: one at a time each,
// also when the caller has left.
func (h *Host) program(ctx context.Context, c program.Call, keys ...string) (program.Result, error) {
	if err := h.calls.begin(keys...); err != nil {
		return program.Result{}, fmt.Errorf("%s: %w", c.Name, err)
	}
	c.Gone = func() { h.calls.end(keys...) }
	return h.node.Run(ctx, c)
}

// on runs a program that may wait for a device; ok are exit codes beside 0.
func (h *Host) on(ctx context.Context, d Device, c program.Call, ok ...int) (program.Result, error) {
	r, err := h.program(ctx, c, d.Number)
	if err == nil {
		err = r.Failed(c.Name, ok...)
	}
	return r, err
}

// calls are those that may hang, by what they wait for: one each.
type calls struct {
	mu   sync.Mutex
	busy map[string]struct{}
}

// begin takes all keys, or none.
func (c *calls) begin(keys ...string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range keys {
		if _, is := c.busy[key]; is {
			return fmt.Errorf("%s: %w", key, ErrHangs)
		}
	}
	if len(c.busy) >= MaxHanging {
		return fmt.Errorf("%w: %d devices have calls under way", ErrHangs, MaxHanging)
	}
	if c.busy == nil {
		c.busy = map[string]struct{}{}
	}
	for _, key := range keys {
		c.busy[key] = struct{}{}
	}
	return nil
}

func (c *calls) end(keys ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range keys {
		delete(c.busy, key)
	}
}

// under reports whether a call with this key is under way.
func (c *calls) under(key string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, is := c.busy[key]
	return is
}
