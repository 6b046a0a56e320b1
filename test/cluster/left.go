package cluster

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csi-mpath/csi-mpath/test/kubelet"
)

// empty wants that all volumes left nothing behind: mounts, block devices,
// sessions, files, entries in a journal or a list.
func (c *Cluster) empty(ctx context.Context) {
	volumes, err := c.Controller.ListVolumes(ctx, &csi.ListVolumesRequest{})
	if err != nil || len(volumes.Entries) > 0 {
		c.t.Errorf("volumes are left: %v, %v", volumes, err)
	}
	snapshots, err := c.Controller.ListSnapshots(ctx, &csi.ListSnapshotsRequest{})
	if err != nil || len(snapshots.Entries) > 0 {
		c.t.Errorf("snapshots are left: %v, %v", snapshots, err)
	}
	for what, list := range map[string]func() ([]string, error){
		"file of the pool": c.Host.Left, "entry in the agent's journal": c.Host.Journal,
		"mount": c.mounts, "block device": c.devices, "session": c.sessions, "record of a node": c.records,
	} {
		left, err := list()
		if err != nil || len(left) > 0 {
			c.t.Errorf("a %s is left: %v, %v", what, left, err)
		}
	}
}

// mounts of everything below the cluster's directory.
func (c *Cluster) mounts() (out []string, err error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], c.Dir+"/") {
			out = append(out, f[4])
		}
	}
	return out, err
}

// devices are loop devices over files of the cluster's, and every nbd device.
func (c *Cluster) devices() (out []string, err error) {
	if c.opt.Attach == "nbd" {
		return filepath.Glob("/sys/block/nbd*/pid")
	}
	loops, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, l := range loops {
		if file, err := os.ReadFile(l); err == nil && bytes.HasPrefix(file, []byte(c.Dir+"/")) {
			out = append(out, l)
		}
	}
	return out, err
}

// sessions are connections through the proxies. Their end is told a moment later.
func (c *Cluster) sessions() (out []string, _ error) {
	kubelet.Done(c.t, "the end of all sessions", func(context.Context) error {
		for t, all := range c.Portals {
			for i, p := range all {
				if n := p.Stats().Open; n > 0 {
					return fmt.Errorf("%d to portal %d of %s", n, i, t)
				}
			}
		}
		return nil
	})
	return nil, nil
}

// ofTheNode are files that belong to no volume.
var ofTheNode = map[string]bool{"isids.json": true, "isids.lock": true, "instance": true, "key": true, "node.lock": true, "worker.lock": true}

// records are what nodes remember of volumes.
func (c *Cluster) records() (out []string, err error) {
	for _, n := range c.Nodes {
		err = filepath.WalkDir(n.state(), func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && !ofTheNode[d.Name()] {
				out = append(out, path)
			}
			return err
		})
		if err != nil {
			return out, err
		}
	}
	return out, nil
}

// processes are those that work for the cluster: its directory is among their
// arguments.
func (c *Cluster) processes() (out []string) {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, p := range all {
		if b, err := os.ReadFile(p); err == nil && bytes.Contains(b, []byte(c.Dir+"/")) {
			out = append(out, string(bytes.ReplaceAll(b, []byte{0}, []byte{' '})))
		}
	}
	return out
}
