package mounttest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/csi-mpath/csi-mpath/pkg/program"
)

// MountInfo implements mount.Node.
func (n *Node) MountInfo() ([]byte, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var b strings.Builder
	b.WriteString("22 1 0:5 / / rw,relatime shared:1 - rootfs none rw\n")
	for i, e := range n.table {
		fmt.Fprintf(&b, "%d 22 %s %s %s %s,relatime - %s %s %s\n", 30+i, e.number, escape(e.root), escape(e.path), e.options, e.fsType, escape(e.source), e.super)
	}
	return []byte(b.String()), nil
}

var escape = strings.NewReplacer(" ", `\040`, "\t", `\011`, "\n", `\012`, `\`, `\134`).Replace

// attach mounts a file system.
func (n *Node) attach(fsType, options, path, target string) error {
	d, err := n.device(path)
	if err != nil {
		return err
	}
	id, err := identify(d.disk)
	if err != nil || id.fsType != fsType || id.unfinished {
		return refused("%s: wrong fs type, bad option, bad superblock on %s", target, path)
	}
	mode := "rw"
	if slices.Contains(strings.Split(options, ","), "ro") {
		mode = "ro"
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, e := range n.table {
		other := n.find(e.number)
		if other == nil || other == d || fsType != "xfs" || strings.Contains(options, "nouuid") {
			continue
		}
		if o, err := identify(other.disk); err == nil && o.uuid == id.uuid {
			return refused("%s: wrong fs type, bad option, bad superblock on %s", target, path)
		}
	}
	n.table = append(n.table, entry{path: target, number: d.number, root: "/", fsType: fsType, source: path, options: mode, super: mode})
	return nil
}

// bind binds a mount, or a device's node.
func (n *Node) bind(source, target string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, isDevice := n.devices[source]; isDevice {
		n.table = append(n.table, entry{path: target, number: "0:6", root: strings.TrimPrefix(source, "/dev"), fsType: "devtmpfs", source: "devtmpfs", options: "rw", super: "rw"})
		return nil
	}
	for i := len(n.table) - 1; i >= 0; i-- {
		if n.table[i].path == source {
			e := n.table[i]
			e.path = target
			n.table = append(n.table, e)
			return nil
		}
	}
	return refused("%s: special device does not exist", source)
}

// protect makes a bind mount read-only.
func (n *Node) protect(target string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := len(n.table) - 1; i >= 0; i-- {
		if n.table[i].path == target {
			n.table[i].options = "ro"
			return nil
		}
	}
	return refused("%s: mount point not mounted or bad option", target)
}

// umount takes the last mount at a path away.
func umount(n *Node, c *program.Call) ([]byte, error) {
	target := c.Args[len(c.Args)-1]
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := len(n.table) - 1; i >= 0; i-- {
		if n.table[i].path == target {
			n.table = slices.Delete(n.table, i, i+1)
			return nil, nil
		}
	}
	return nil, &exit{32, "umount: " + target + ": not mounted."}
}
