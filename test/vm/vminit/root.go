package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/csi-mpath/csi-mpath/test/vm/spec"
)

// The folders of the initrd that become the root.
const (
	lower = "/lower" // the host's files, read-only
	upper = "/upper" // what is written on top, in memory
	next  = "/next"  // both together
)

const share9p = "trans=virtio,version=9p2000.L,msize=512000"

// prepare makes the machine what a test expects of a node.
func prepare(s *spec.Spec) error {
	if err := load(s.Modules[:s.Early]); err != nil {
		return err
	}
	if err := overlay(s); err != nil {
		return err
	}
	if err := load(s.Modules[s.Early:]); err != nil {
		return err
	}
	if err := os.RemoveAll("/" + spec.Modules); err != nil { // it is memory
		return err
	}
	if err := kernelMounts(); err != nil {
		return err
	}
	if err := shares(s); err != nil {
		return err
	}
	if err := enter(); err != nil {
		return err
	}
	return network()
}

func load(all []spec.Module) error {
	for _, m := range all {
		f, err := os.Open(filepath.Join("/", spec.Modules, m.File))
		if err != nil {
			return err
		}
		err = unix.FinitModule(int(f.Fd()), m.Params, 0)
		_ = f.Close()
		if err != nil && !errors.Is(err, unix.EEXIST) && !m.Optional {
			return fmt.Errorf("load module %s %s: %w", m.File, m.Params, err)
		}
	}
	return nil
}

// mountAt makes the folder and mounts there; where the same thing is mounted
// already, that is fine.
func mountAt(fstype, dir string, data string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	err := unix.Mount(fstype, dir, fstype, 0, data)
	if err != nil && !errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("mount %s at %s: %w", fstype, dir, err)
	}
	return nil
}

func mount9p(tag, dir string, flags uintptr, more string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(tag, dir, "9p", flags, share9p+more); err != nil {
		return fmt.Errorf("mount share %s at %s: %w", tag, dir, err)
	}
	return nil
}

func overlay(s *spec.Spec) error {
	if err := mount9p(spec.RootTag, lower, unix.MS_RDONLY, ",cache=loose"); err != nil {
		return err
	}
	if err := mountAt("tmpfs", upper, "mode=755"); err != nil {
		return err
	}
	for _, dir := range []string{upper + "/u", upper + "/w"} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	if err := mountAt("overlay", next, "lowerdir="+lower+",upperdir="+upper+"/u,workdir="+upper+"/w"); err != nil {
		return err
	}
	// modprobe looks here. Debian's /lib is a link to usr/lib, and an absolute
	// link would lead back into the initrd: the real folder, then.
	mods := filepath.Join(next, "usr/lib/modules", s.Release)
	if err := os.MkdirAll(mods, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(filepath.Join(lower, s.Tree), mods, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s: %w", s.Tree, err)
	}
	return nil
}

func kernelMounts() error {
	for _, m := range []struct{ fstype, dir, data string }{
		{"proc", "/proc", ""},
		{"sysfs", "/sys", ""},
		{"devtmpfs", "/dev", ""},
		{"devpts", "/dev/pts", "ptmxmode=666"},
		{"tmpfs", "/dev/shm", "mode=1777"},
		{"tmpfs", "/run", "mode=755"},
		{"tmpfs", "/run/tmp", "mode=1777"},
		{"cgroup2", "/sys/fs/cgroup", ""},
		{"debugfs", "/sys/kernel/debug", ""},
		{"configfs", "/sys/kernel/config", ""},
	} {
		if err := mountAt(m.fstype, next+m.dir, m.data); err != nil {
			return err
		}
	}
	return nil
}

func shares(s *spec.Spec) error {
	for i, dir := range s.Shares {
		if err := mount9p(fmt.Sprint(spec.ShareTag, i), next+dir, 0, ",cache=none"); err != nil {
			return err
		}
	}
	return nil
}

// enter makes the overlay the root of this process, and so of the kernel's
// helpers (modprobe), which share their root with process 1.
func enter() error {
	if err := unix.Chdir(next); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move the root: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("chroot: %w", err)
	}
	return unix.Chdir("/")
}

// network gives the machine a name and its loopback interface; the kernel adds
// 127.0.0.1/8 and ::1 by itself.
func network() error {
	if err := unix.Sethostname([]byte("vm")); err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req); err != nil {
		return fmt.Errorf("loopback up: %w", err)
	}
	return nil
}
