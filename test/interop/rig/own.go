package rig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csi-mpath/csi-mpath/test/child"
	"github.com/csi-mpath/csi-mpath/test/port"
)

const (
	// ownTarget is the name both targets of our own use.
	ownTarget    = "iqn.2026-01.io.csi-mpath:demo"
	ownSubsystem = "nqn.2026-01.io.csi-mpath:demo"
	// ownWithin bounds the start of a target of our own.
	ownWithin = time.Minute
)

// ownDaemon is a csi-mpath target process that stands for one controller: its
// portal is a portal group and an ALUA group of its own.
type ownDaemon struct {
	bin, dir, file string
	config, name   string // its form, and what the target is called
	group          int
	portal         *port.Held // ours also while the daemon is dead
	child          *child.Child
}

// Portal is the daemon's address, host:port.
func (d *ownDaemon) Portal() string { return d.portal.Addr() }

// Close kills the daemon and gives up its port.
func (d *ownDaemon) Close() error {
	d.Kill()
	return d.portal.Close()
}

// Kill is kill -9.
func (d *ownDaemon) Kill() {
	if d.child != nil {
		d.child.Kill()
	}
}

const ownConfig = `targets:
- name: %s
  portals: [{address: "%s", tpgt: %d, group: %d}]
  luns: [{number: 0, store: {file: %q}, wwid: naa.6001405c51d3a7b0000000000000de30}]
`

const ownNVMeConfig = `targets:
- nqn: %s
  portals: [{address: "%s", id: %d, group: %d}]
  namespaces: [{nsid: 1, store: {file: %q}}]
`

// Restart starts the daemon again on its old port, and waits until it serves.
func (d *ownDaemon) Restart(ctx context.Context) error {
	d.Kill()
	config := filepath.Join(d.dir, fmt.Sprintf("target%d.yaml", d.group))
	if err := os.WriteFile(config, fmt.Appendf(nil, d.config, d.name, d.Portal(), d.group, d.group, d.file), 0o600); err != nil {
		return err
	}
	first := &firstLine{done: make(chan string, 1)}
	c, err := child.Start(child.Options{Stdout: first}, d.bin, "target", "--config", config)
	if err != nil {
		return err
	}
	d.child = c
	late := time.NewTimer(ownWithin)
	defer late.Stop()
	select {
	case line := <-first.done:
		if line != "ready: 1 target on "+d.Portal() {
			return fmt.Errorf("csi-mpath target says %q", line)
		}
		return nil
	case <-c.Done():
		return errors.Join(errors.New("csi-mpath target ended at once"), c.Wait())
	case <-ctx.Done():
		return ctx.Err()
	case <-late.C:
		return fmt.Errorf("csi-mpath target was not ready within %v: %s", ownWithin, c.Output())
	}
}

// firstLine is told what a program prints, and tells its first line.
type firstLine struct {
	buf  []byte
	done chan string
	told bool
}

func (f *firstLine) Write(p []byte) (int, error) {
	if !f.told {
		f.buf = append(f.buf, p...)
		if line, _, whole := bytes.Cut(f.buf, []byte("\n")); whole {
			f.told = true
			f.done <- string(line)
		}
	}
	return len(p), nil
}

// scratch makes a directory where there is room for size bytes: in memory if
// possible, since a demonstration is about paths, not about disks.
func scratch(size uint64) (string, error) {
	for _, base := range []string{"/dev/shm", os.TempDir()} {
		var st unix.Statfs_t
		if unix.Statfs(base, &st) != nil || st.Bavail*uint64(st.Bsize) < size+size/4 {
			continue
		}
		if dir, err := os.MkdirTemp(base, "mpath"); err == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("%d MiB are free neither in /dev/shm nor in %s: set TMPDIR to a directory with room", (size+size/4)>>20, os.TempDir())
}
