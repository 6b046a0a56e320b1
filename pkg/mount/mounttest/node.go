// Package mounttest has a node in memory for pkg/mount: disks, a mount table, and
// programs that do to them what the real ones do, as far as a mount.Host can see.
// With it, whatever stands above pkg/mount is tested without root. Its contract is
// what the real node and this one are both tested against.
package mounttest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/csi-mpath/csi-mpath/pkg/mount"
	"github.com/csi-mpath/csi-mpath/pkg/program"
)

// Disk is where a device's bytes are: memory, or a connection to a server.
type Disk interface {
	io.ReaderAt
	io.WriterAt
	Size() uint64 // bytes; may grow
}

// Node is a node in memory. Its methods may be called from any goroutine.
type Node struct {
	mu      sync.Mutex
	devices map[string]*device // by path
	table   []entry
	calls   []string

	// Script, if set, is asked before a program runs: what it returns, if anything,
	// is what the program does. Set before use.
	Script func(c program.Call) *program.Result
	// Step, if set, is called between the writes of mkfs; it may panic to cut it
	// short. Set before use.
	Step func(name string)
}

type device struct {
	path, number string
	disk         Disk
	hung         chan struct{} // closed by Resume; nil while it answers
}

// entry is one mount.
type entry struct {
	path, number, root, fsType, source string
	options                            string
	super                              string
}

// New is a node without devices.
func New() *Node { return &Node{devices: map[string]*device{}} }

// Add attaches a disk: path is the device's node, number like "43:0".
func (n *Node) Add(path, number string, d Disk) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.devices[path] = &device{path: path, number: number, disk: d}
}

// Remove detaches a disk; its mounts stay, dead.
func (n *Node) Remove(path string) {
	n.Resume(path)
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.devices, path)
}

// Hang makes a device answer nothing until Resume.
func (n *Node) Hang(path string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if d := n.devices[path]; d != nil && d.hung == nil {
		d.hung = make(chan struct{})
	}
}

// Resume makes a device answer again.
func (n *Node) Resume(path string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if d := n.devices[path]; d != nil && d.hung != nil {
		close(d.hung)
		d.hung = nil
	}
}

// Calls are the programs that ran, each with its arguments.
func (n *Node) Calls() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.calls)
}

// Ran counts the runs of a program.
func (n *Node) Ran(name string) (times int) {
	for _, c := range n.Calls() {
		if first, _, _ := strings.Cut(c, " "); first == name {
			times++
		}
	}
	return times
}

// Device implements mount.Node.
func (n *Node) Device(path string) (mount.Device, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := len(n.table) - 1; i >= 0; i-- {
		if n.table[i].path == path && n.table[i].fsType == "devtmpfs" {
			path = "/dev" + n.table[i].root
		}
	}
	if d := n.devices[path]; d != nil {
		return mount.Device{Path: d.path, Number: d.number, Size: d.disk.Size()}, nil
	}
	return mount.Device{}, fmt.Errorf("stat %s: %w", path, fs.ErrNotExist)
}

// Numbered implements mount.Node.
func (n *Node) Numbered(number string) (mount.Device, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if d := n.find(number); d != nil {
		return mount.Device{Path: d.path, Number: d.number, Size: d.disk.Size()}, nil
	}
	return mount.Device{}, fmt.Errorf("block device %s: %w", number, fs.ErrNotExist)
}

func (n *Node) find(number string) *device {
	for _, d := range n.devices {
		if d.number == number {
			return d
		}
	}
	return nil
}

// Statfs implements mount.Node.
func (n *Node) Statfs(path string, s *unix.Statfs_t) error {
	n.mu.Lock()
	i := slices.IndexFunc(n.table, func(e entry) bool { return e.path == path })
	if i < 0 {
		n.mu.Unlock()
		return unix.ENOENT
	}
	d := n.find(n.table[i].number)
	n.mu.Unlock()
	if d == nil {
		return unix.EIO
	}
	n.wait(context.Background(), d)
	size := d.disk.Size()
	*s = unix.Statfs_t{Bsize: 4096, Frsize: 4096, Blocks: size / 4096, Bfree: size / 4096, Bavail: size / 4096, Files: 1024, Ffree: 1013}
	return nil
}

// wait returns when the device answers or ctx ends.
func (n *Node) wait(ctx context.Context, d *device) {
	n.mu.Lock()
	hung := d.hung
	n.mu.Unlock()
	if hung == nil {
		return
	}
	select {
	case <-hung:
	case <-ctx.Done():
	}
}

// Run implements mount.Node. A program on a device that hangs is left behind when
// ctx ends, and does its work when the device answers.
func (n *Node) Run(ctx context.Context, c program.Call) (program.Result, error) {
	n.mu.Lock()
	n.calls = append(n.calls, strings.Join(append([]string{c.Name}, c.Args...), " "))
	n.mu.Unlock()
	gone := c.Gone
	if gone == nil {
		gone = func() {}
	}
	if err := ctx.Err(); err != nil {
		gone()
		return program.Result{}, fmt.Errorf("%s: %w", c.Name, err)
	}
	d := n.waitsFor(&c)
	if d == nil {
		defer gone()
		return n.exec(&c)
	}
	done := make(chan outcome, 1)
	go func() {
		n.wait(context.Background(), d)
		r, err := n.exec(&c)
		gone()
		done <- outcome{r, err}
	}()
	select {
	case o := <-done:
		return o.r, o.err
	case <-ctx.Done():
		return program.Result{}, fmt.Errorf("%s: %w: %w", c.Name, ctx.Err(), program.ErrLeft)
	}
}

type outcome struct {
	r   program.Result
	err error
}

// waitsFor is the device that a program will wait for because it hangs now.
func (n *Node) waitsFor(c *program.Call) *device {
	n.mu.Lock()
	defer n.mu.Unlock()
	number := ""
	if c.Name == "umount" { // the last one of a file system writes
		number = n.lastOf(c.Args[len(c.Args)-1])
	}
	for _, d := range n.devices {
		named := slices.ContainsFunc(c.Args, func(a string) bool { return a == d.path || strings.HasSuffix(a, "f="+d.path) })
		if d.hung != nil && (named && !slices.Contains(c.Args, "--bind") || d.number == number) {
			return d
		}
	}
	return nil
}

// lastOf is the number of the device whose only mount is at a path.
func (n *Node) lastOf(path string) string {
	number := ""
	for _, e := range n.table {
		if e.path == path {
			number = e.number
		}
	}
	for _, e := range n.table {
		if e.number == number && e.path != path {
			return ""
		}
	}
	return number
}

func (n *Node) exec(c *program.Call) (program.Result, error) {
	if n.Script != nil {
		if r := n.Script(*c); r != nil {
			return *r, nil
		}
	}
	f := programs[c.Name]
	if f == nil {
		return program.Result{}, fmt.Errorf("%s: %w", c.Name, program.ErrMissing)
	}
	out, err := f(n, c)
	var failed *exit
	if errors.As(err, &failed) {
		return program.Result{Code: failed.code, Out: out, Message: failed.text}, nil
	}
	return program.Result{Out: out}, err
}

// exit is how a program ends that has something to say.
type exit struct {
	code int
	text string
}

func (e *exit) Error() string { return e.text }
