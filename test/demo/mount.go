package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csi-mpath/csi-mpath/test/interop/rig"
	"github.com/csi-mpath/csi-mpath/test/vm/writers"
)

const (
	fsWriters = 4
	fsFile    = 4 * mib // of each writer
	// commandWithin bounds mkfs, fsck and modprobe.
	commandWithin = 30 * time.Second
)

// canMount reports whether a file system can take part, else why not.
func canMount() (ok bool, why string) {
	const want = "that takes root, the kernel module nbd and mkfs.ext4; "
	if os.Geteuid() != 0 {
		return false, want + "this is not root"
	}
	for _, program := range []string{"mkfs.ext4", "e2fsck"} {
		if _, err := exec.LookPath(program); err != nil {
			return false, want + program + " is not installed"
		}
	}
	if _, err := os.Stat("/sys/module/nbd"); err != nil {
		if command(context.Background(), "modprobe", "nbd") != nil {
			return false, want + "this kernel has no nbd"
		}
	}
	return true, ""
}

func command(ctx context.Context, name string, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, commandWithin)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// fileSystem is ext4 on the first part of the block device, and a load on it.
type fileSystem struct {
	device, dir string
	load        *writers.Load
}

var blockDevice = regexp.MustCompile(`/dev/nbd\d+`)

func mountFileSystem(ctx context.Context, r *rig.Rig) (*fileSystem, error) {
	f := &fileSystem{dir: filepath.Join(r.Dir, "mnt")}
	if err := rig.Until(ctx, commandWithin, "the block device", func() bool {
		f.device = blockDevice.FindString(r.Output())
		return f.device != "" || r.Err() != nil
	}); err != nil || f.device == "" {
		return nil, errors.Join(err, r.Err())
	}
	if err := command(ctx, "mkfs.ext4", "-q", "-F", f.device, fmt.Sprintf("%dk", firstPart>>10)); err != nil {
		return nil, err
	}
	if err := os.Mkdir(f.dir, 0o700); err != nil {
		return nil, err
	}
	if err := unix.Mount(f.device, f.dir, "ext4", 0, ""); err != nil {
		return nil, fmt.Errorf("mount %s: %w", f.device, err)
	}
	var err error
	if f.load, err = writers.Start(writers.Config{Dir: f.dir, Size: fsFile, Max: fsWriters}, fsWriters); err != nil {
		return nil, errors.Join(err, f.unmount())
	}
	return f, nil
}

func (f *fileSystem) unmount() error { return unix.Unmount(f.dir, 0) }

// finish stops the load, reads everything back from the device, and checks the
// file system.
func (f *fileSystem) finish(ctx context.Context) (string, error) {
	stall := f.load.TakeStall()
	res, err := f.load.Stop(ctx)
	if err == nil {
		err = f.load.Verify(ctx, "")
	}
	if err = errors.Join(err, f.unmount()); err != nil {
		return "", err
	}
	if err := command(ctx, "e2fsck", "-fn", f.device); err != nil {
		return "", err
	}
	return fmt.Sprintf("  ext4   %d durable writes, every block checked, e2fsck clean; longest operation %s\n", res.Writes, show1(stall.For)), nil
}
