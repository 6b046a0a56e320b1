// Package configfstest has a tree in memory that behaves like configfs, and like
// the kernel's two targets in it: directories come with attributes and default
// groups, cannot go while they have something below them or are linked to, and
// refuse what the kernel refuses. The VM's tests compare it with the kernel.
package configfstest

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/csi-mpath/csi-mpath/pkg/agent/export/configfs"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// kind is what directories of one sort are like.
type kind struct {
	attrs  map[string]string // with their first values
	groups map[string]*kind  // made with it, and gone with it
	// child is what mkdir makes in it, nil for nothing.
	child *kind
	// The kernel's own rules; nil for none. link and unlink are about a link in the
	// directory to another one, set about an attribute's new value, made about a
	// directory that was just made.
	link, unlink func(t *Tree, at, to *node) error
	set          func(t *Tree, n *node, name, value string) error
	made         func(n *node) error
	links        bool // links may be made in it
}

// node is a directory.
type node struct {
	name   string
	path   configfs.Path
	kind   *kind
	parent *node
	group  bool // made with its parent
	attrs  map[string]string
	dirs   map[string]*node
	links  map[string]*node
	in     int // links to it
}

// Tree is a configfs. mu guards all.
type Tree struct {
	mu   sync.Mutex
	root *node
	// held are directories whose removal, and attributes whose writing, waits.
	held map[configfs.Path]chan struct{}
	// fuse is how many more changes are made before one fails; below 0, all are.
	fuse int
	lack string   // see Lack
	log  []string // what was changed, one line a change: "mkdir core/iblock_0"
}

func newTree(k *kind) *Tree {
	return &Tree{root: newNode(nil, "", k, false), held: map[configfs.Path]chan struct{}{}, fuse: -1}
}

func newNode(parent *node, name string, k *kind, group bool) *node {
	n := &node{name: name, kind: k, parent: parent, group: group,
		attrs: maps.Clone(k.attrs), dirs: map[string]*node{}, links: map[string]*node{}}
	if parent != nil {
		n.path = parent.path.Add(name)
	}
	for name, g := range k.groups {
		n.dirs[name] = newNode(n, name, g, true)
	}
	return n
}

// Hold makes the removal of a directory, or the writing of an attribute, wait in
// the kernel until release: what a target does for sessions and requests that
// have not ended.
func (t *Tree) Hold(p configfs.Path) (release func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	ch := make(chan struct{})
	t.held[p] = ch
	return sync.OnceFunc(func() {
		t.mu.Lock()
		delete(t.held, p)
		t.mu.Unlock()
		close(ch)
	})
}

// FailAfter makes the change after n more fail, once.
func (t *Tree) FailAfter(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fuse = n
}

// Lack makes access lists or hosts from now on come without an attribute, as on an
// older kernel: "attrib/authentication", "dhchap_key".
func (t *Tree) Lack(attribute string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lack = attribute
}

// Changes are what was changed since the last call, in order.
func (t *Tree) Changes() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := t.log
	t.log = nil
	return out
}

// All are the paths of all directories, attributes and links, in order.
func (t *Tree) All() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []string
	t.root.walk(func(p configfs.Path) { out = append(out, string(p)) })
	slices.Sort(out)
	return out
}

func (n *node) walk(f func(configfs.Path)) {
	for name := range n.attrs {
		f(n.path.Add(name))
	}
	for name := range n.links {
		f(n.path.Add(name))
	}
	for _, d := range n.dirs {
		f(d.path)
		d.walk(f)
	}
}

// Forget makes it empty, as a reboot does.
func (t *Tree) Forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.root, t.log = newNode(nil, "", t.root.kind, false), nil
}

// Mkdir implements configfs.FS.
func (t *Tree) Mkdir(_ context.Context, p configfs.Path) error {
	return t.change("mkdir", p, func() error {
		parent, err := t.find(p.Parent())
		switch {
		case err != nil:
			return err
		case parent.has(p.Name()):
			return fs.ErrExist
		case parent.kind.child == nil:
			return syscall.EPERM
		}
		n := newNode(parent, p.Name(), parent.kind.child, false)
		if n.kind.made != nil {
			if err := n.kind.made(n); err != nil {
				return err
			}
		}
		n.lose(t.lack)
		parent.dirs[n.name] = n
		return nil
	})
}

// lose removes an attribute from an access list's group, or from a host.
func (n *node) lose(attribute string) {
	group, name, below := strings.Cut(attribute, "/")
	switch {
	case below && n.kind == acl && n.dirs[group] != nil:
		delete(n.dirs[group].attrs, name)
	case !below && n.kind == host:
		delete(n.attrs, attribute)
	}
}

// Rmdir implements configfs.FS.
func (t *Tree) Rmdir(ctx context.Context, p configfs.Path) error {
	if err := t.wait(ctx, p); err != nil {
		return err
	}
	return t.change("rmdir", p, func() error {
		n, err := t.find(p)
		switch {
		case err != nil:
			return err
		case n.group || n.parent == nil:
			return syscall.EPERM
		case n.in > 0:
			return syscall.EBUSY
		case n.occupied():
			return syscall.ENOTEMPTY
		}
		delete(n.parent.dirs, n.name)
		return nil
	})
}

// occupied: something was made in it or in its groups.
func (n *node) occupied() bool {
	for _, d := range n.dirs {
		if !d.group || d.occupied() {
			return true
		}
	}
	return len(n.links) > 0
}

// Read implements configfs.FS.
func (t *Tree) Read(ctx context.Context, p configfs.Path) (string, error) {
	if err := t.wait(ctx, p); err != nil {
		return "", err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	n, err := t.find(p.Parent())
	if err != nil {
		return "", err
	}
	value, ok := n.attrs[p.Name()]
	if !ok {
		return "", absent(p)
	}
	return value, nil
}

// Write implements configfs.FS.
func (t *Tree) Write(ctx context.Context, p configfs.Path, value string) error {
	if err := t.wait(ctx, p); err != nil {
		return err
	}
	return t.change("write", p, func() error {
		n, err := t.find(p.Parent())
		if err != nil {
			return err
		}
		if _, ok := n.attrs[p.Name()]; !ok {
			return absent(p)
		}
		if n.kind.set != nil {
			if err := n.kind.set(t, n, p.Name(), value); err != nil {
				return err
			}
		}
		n.attrs[p.Name()] = value
		return nil
	})
}

// Symlink implements configfs.FS.
func (t *Tree) Symlink(_ context.Context, to, at configfs.Path) error {
	return t.change("link", at, func() error {
		dir, err := t.find(at.Parent())
		if err != nil {
			return err
		}
		target, err := t.find(to)
		switch {
		case err != nil:
			return err
		case dir.has(at.Name()):
			return fs.ErrExist
		case !dir.kind.links:
			return syscall.EPERM
		}
		if dir.kind.link != nil {
			if err := dir.kind.link(t, dir, target); err != nil {
				return err
			}
		}
		dir.links[at.Name()] = target
		target.in++
		return nil
	})
}

// Unlink implements configfs.FS.
func (t *Tree) Unlink(ctx context.Context, p configfs.Path) error {
	if err := t.wait(ctx, p); err != nil {
		return err
	}
	return t.change("unlink", p, func() error {
		dir, err := t.find(p.Parent())
		if err != nil {
			return err
		}
		target := dir.links[p.Name()]
		if target == nil {
			return absent(p)
		}
		if dir.kind.unlink != nil {
			if err := dir.kind.unlink(t, dir, target); err != nil {
				return err
			}
		}
		delete(dir.links, p.Name())
		target.in--
		return nil
	})
}

// List implements configfs.FS.
func (t *Tree) List(_ context.Context, p configfs.Path) ([]string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, err := t.find(p)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, names := range [][]string{slices.Collect(maps.Keys(n.attrs)), slices.Collect(maps.Keys(n.dirs)), slices.Collect(maps.Keys(n.links))} {
		out = append(out, names...)
	}
	slices.Sort(out)
	return out, nil
}

// change makes one, unless it is to fail, and remembers it.
func (t *Tree) change(what string, p configfs.Path, f func() error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	err := p.Check()
	if err == nil && t.fuse == 0 {
		t.fuse, err = -1, syscall.EIO
	}
	if err == nil {
		err = f()
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", what, p, err)
	}
	t.fuse = max(t.fuse-1, -1)
	t.log = append(t.log, what+" "+string(p))
	return nil
}

// wait lasts as long as the path is held.
func (t *Tree) wait(ctx context.Context, p configfs.Path) error {
	t.mu.Lock()
	ch := t.held[p]
	t.mu.Unlock()
	if ch == nil {
		return nil
	}
	select {
	case <-ch:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %s: %w", backend.ErrBusy, p, ctx.Err())
	}
}

func (n *node) has(name string) bool {
	_, attr := n.attrs[name]
	return attr || n.dirs[name] != nil || n.links[name] != nil
}

// find is a directory.
func (t *Tree) find(p configfs.Path) (*node, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	if p == "" {
		return t.root, nil
	}
	parent, err := t.find(p.Parent())
	if err != nil {
		return nil, err
	}
	n := parent.dirs[p.Name()]
	if n == nil {
		return nil, absent(p)
	}
	return n, nil
}

func absent(p configfs.Path) error { return fmt.Errorf("%s: %w", p, fs.ErrNotExist) }
