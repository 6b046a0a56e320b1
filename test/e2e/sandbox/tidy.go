package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// tidy removes what no namespace takes with it: a directory, the control groups that
// carry its name, and loop devices over its files. The processes are gone.
func tidy(dir string) {
	for _, group := range groups(filepath.Base(dir)) {
		if err := os.Remove(group); err != nil {
			fmt.Fprintln(os.Stderr, "sandbox: a control group stays:", err)
		}
	}
	for _, dev := range loops(dir) {
		if err := detach(dev); err != nil {
			fmt.Fprintln(os.Stderr, "sandbox: a loop device stays:", err)
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, "sandbox: a directory stays:", err)
	}
}

// groups are the control groups called name and those below them, the deepest first.
func groups(name string) (out []string) {
	roots, _ := filepath.Glob("/sys/fs/cgroup/*/" + name)
	for _, root := range roots {
		_ = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				out = append([]string{path}, out...)
			}
			return nil
		})
	}
	return out
}

// loops are the loop devices over files below dir, over those loop devices, and over
// files of FUSE that carry dir's name. What the kernel calls such a file is of no use
// once its mount is gone, so whoever made the device has told its name.
func loops(dir string) (out []string) {
	files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	ours := map[string]bool{}
	for range 2 {
		for _, f := range files {
			b, err := os.ReadFile(f)
			backing := strings.TrimSuffix(strings.TrimSpace(string(b)), " (deleted)")
			dev := "/dev/" + filepath.Base(filepath.Dir(filepath.Dir(f)))
			if err != nil || ours[dev] {
				continue
			}
			if strings.HasPrefix(backing, dir+"/") || ours[backing] || unmounted(dev, backing, filepath.Base(dir)) {
				ours[dev] = true
				out = append([]string{dev}, out...)
			}
		}
	}
	return out
}

// unmounted reports a device over a file that pkg/fuseblk served below a directory of
// that name. Only files without a mount are asked about: others may answer never.
func unmounted(dev, backing, name string) bool {
	if backing != "/disk" {
		return false
	}
	f, err := os.Open(dev)
	if err != nil {
		return false
	}
	defer f.Close() //nolint:errcheck // nothing was written
	info, err := unix.IoctlLoopGetStatus64(int(f.Fd()))
	return err == nil && strings.Contains(string(info.File_name[:]), "/"+name+"/")
}

func detach(dev string) error {
	f, err := os.Open(dev)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // nothing was written
	return unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0)
}
