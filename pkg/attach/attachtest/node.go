// Package attachtest is a node whose devices are real and whose kernel is not:
// volumes over their storage, served over NBD on sockets, and file systems in
// memory that do their I/O through those. No root needed. For tests.
package attachtest

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/csi-mpath/csi-mpath/pkg/attach"
	"github.com/csi-mpath/csi-mpath/pkg/mount"
	"github.com/csi-mpath/csi-mpath/pkg/mount/mounttest"
	"github.com/csi-mpath/csi-mpath/pkg/nbd/nbdtest"
	"github.com/csi-mpath/csi-mpath/pkg/nbd/proto"
	"github.com/csi-mpath/csi-mpath/pkg/volume"
)

// Node is a node: volume.Config's Devices; Host is its Mounts.
type Node struct {
	*mounttest.Node
	Host   *mount.Host
	opener *attach.Opener

	mu   sync.Mutex
	next int
	// left are the block devices by volume: they outlive an opener, as the kernel's do.
	left map[string]*disk
}

// New is a node with state and sockets in a directory, whose path is short.
func New(dir string) (*Node, error) {
	sockets := dir + "/s"
	if err := os.MkdirAll(sockets, 0o700); err != nil {
		return nil, err
	}
	n := &Node{Node: mounttest.New(), left: map[string]*disk{}}
	n.Host = mount.Over(n.Node)
	n.opener = attach.New(attach.Config{State: dir + "/d", Face: attach.Sockets(sockets)})
	return n, nil
}

// Open implements volume.DeviceOpener.
func (n *Node) Open(ctx context.Context, c volume.DeviceConfig) (volume.Device, error) {
	dev, err := n.opener.Open(ctx, c)
	if err != nil {
		return nil, err
	}
	client, err := nbdtest.Dial(dev.Path(), "", false)
	if err != nil {
		_ = dev.Close(ctx)
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	d := n.left[c.Volume]
	if d == nil {
		n.next++
		d = &disk{path: fmt.Sprintf("/dev/nbd%d", n.next)}
		n.left[c.Volume] = d
		n.Add(d.path, fmt.Sprintf("43:%d", n.next), d)
	}
	d.serve(&dev, client)
	return &device{Device: dev, n: n, d: d, volume: c.Volume}, nil
}

// Discard implements volume.DeviceOpener.
func (n *Node) Discard(ctx context.Context, name string) error {
	n.remove(name)
	return n.opener.Discard(ctx, name)
}

// Devices is how many block devices there are.
func (n *Node) Devices() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.left)
}

// Disk is the block device of a volume, nil if it has none.
func (n *Node) Disk(volume string) mounttest.Disk {
	n.mu.Lock()
	defer n.mu.Unlock()
	if d := n.left[volume]; d != nil {
		return d
	}
	return nil
}

func (n *Node) remove(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if d := n.left[name]; d != nil {
		delete(n.left, name)
		n.Remove(d.path)
		d.serve(nil, nil)
	}
}

// device is an open volume whose node is one of the twin's.
type device struct {
	volume.Device
	n      *Node
	d      *disk
	volume string
}

// Path is the twin's.
func (d *device) Path() string { return d.d.path }

// Flush goes to the storage.
func (d *device) Flush(ctx context.Context) error {
	done := make(chan error, 1)
	go func() { done <- d.d.Flush() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Detach wants the device unmounted.
func (d *device) Detach(ctx context.Context) error {
	points, err := d.n.Host.Mounts(d.d.path)
	if err != nil {
		return err
	}
	if len(points) > 0 {
		return fmt.Errorf("%w: %s is mounted", volume.ErrState, d.d.path)
	}
	d.n.remove(d.volume)
	return d.Device.Detach(ctx)
}

// Leave keeps the block device.
func (d *device) Leave(ctx context.Context) error {
	defer d.d.serve(nil, nil) // a kernel does not hang up
	return d.Device.Leave(ctx)
}

// disk is a block device whose bytes come over NBD, one request at a time.
type disk struct {
	path string

	// dev and client are changed without mu, which a request may hold long. client is
	// nil while nobody serves the disk.
	dev    atomic.Pointer[volume.Device]
	client atomic.Pointer[nbdtest.Client]

	mu sync.Mutex // a request
}

func (d *disk) serve(dev *volume.Device, c *nbdtest.Client) {
	d.dev.Store(dev)
	if old := d.client.Swap(c); old != nil {
		_ = old.Close()
	}
}

// Size implements mounttest.Disk.
func (d *disk) Size() uint64 {
	dev := d.dev.Load()
	if dev == nil {
		return 0
	}
	return uint64((*dev).Status().Size)
}

// unit is what requests are aligned to, most what one of them moves, bytes.
const (
	unit = 4096
	most = 1 << 20
)

// ReadAt implements mounttest.Disk.
func (d *disk) ReadAt(b []byte, off int64) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for done := 0; done < len(b); {
		n, err := d.part(b[done:], off+int64(done), func(whole, part []byte) bool { copy(part, whole); return false })
		if err != nil {
			return done, err
		}
		done += n
	}
	return len(b), nil
}

// WriteAt implements mounttest.Disk.
func (d *disk) WriteAt(b []byte, off int64) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for done := 0; done < len(b); {
		n, err := d.part(b[done:], off+int64(done), func(whole, part []byte) bool { copy(whole, part); return true })
		if err != nil {
			return done, err
		}
		done += n
	}
	return len(b), nil
}

// part moves the beginning of b: the units it touches are read, f copies, and if
// it says so they are written.
func (d *disk) part(b []byte, off int64, f func(whole, part []byte) (write bool)) (int, error) {
	from := off / unit * unit
	upTo := min((off+int64(len(b))+unit-1)/unit*unit, from+most)
	n := min(len(b), int(upTo-off))
	a, err := d.do(proto.CmdRead, uint64(from), uint32(upTo-from), nil)
	if err != nil {
		return 0, err
	}
	whole := a.Data
	if f(whole[off-from:], b[:n]) {
		_, err = d.do(proto.CmdWrite, uint64(from), uint32(upTo-from), whole)
	}
	return n, err
}

func (d *disk) do(cmd proto.Command, off uint64, n uint32, payload []byte) (nbdtest.Answer, error) {
	c := d.client.Load()
	if c == nil {
		return nbdtest.Answer{}, fmt.Errorf("%s: nobody serves it", d.path)
	}
	a, err := c.Do(cmd, 0, off, n, payload)
	if err == nil && a.Errno != 0 {
		err = fmt.Errorf("%s: NBD error %v", d.path, a.Errno)
	}
	return a, err
}

// Flush is that of the block device.
func (d *disk) Flush() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, err := d.do(proto.CmdFlush, 0, 0, nil)
	return err
}
