package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

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

// loops are the loop devices over files below dir, and over those loop devices.
func loops(dir string) (out []string) {
	files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	ours := map[string]bool{}
	for range 2 {
		for _, f := range files {
			backing, err := os.ReadFile(f)
			dev := "/dev/" + filepath.Base(filepath.Dir(filepath.Dir(f)))
			backing = bytes.TrimSuffix(bytes.TrimSpace(backing), []byte(" (deleted)"))
			if err == nil && !ours[dev] && (bytes.HasPrefix(backing, []byte(dir+"/")) || ours[string(backing)]) {
				ours[dev] = true
				out = append([]string{dev}, out...)
			}
		}
	}
	return out
}

func detach(dev string) error {
	f, err := os.Open(dev)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // nothing was written
	return unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0)
}
