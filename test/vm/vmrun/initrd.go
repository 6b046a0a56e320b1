package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/csi-mpath/csi-mpath/test/vm/spec"
)

// early is what the root needs, in both kernels.
var early = []wish{{name: "virtio_pci"}, {name: "9pnet_virtio"}, {name: "9p"}, {name: "overlay"}}

// initrd writes vminit, the modules and the spec into one archive. It is not
// compressed: emulated CPUs unpack slower than they read.
func initrd(path, vminit string, k *kernel, s *spec.Spec, mods string) error {
	files, err := k.resolve(s, mods)
	if err != nil {
		return err
	}
	init, err := os.ReadFile(vminit)
	if err != nil {
		return fmt.Errorf("vminit is missing (make vm-test builds it): %w", err)
	}
	doc, err := json.Marshal(s)
	if err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	a := &archive{w: f}
	a.file("init", init)
	a.file(spec.File, doc)
	a.dir("dev")
	a.dir("proc")
	a.dir(spec.Modules)
	for i, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		a.file(filepath.Join(spec.Modules, s.Modules[i].File), b)
	}
	return errors.Join(a.end(), f.Close())
}

// resolve fills the spec with the modules to load and returns their files, in
// the same order, uncompressed.
func (k *kernel) resolve(s *spec.Spec, mods string) ([]string, error) {
	m, err := readModules(func(name string) (io.ReadCloser, error) { return os.Open(filepath.Join(k.tree(), name)) })
	if err != nil {
		return nil, err
	}
	p := m.newPlan()
	if err := p.want(early); err != nil {
		return nil, err
	}
	s.Early = len(p.out)
	if err := p.want(append([]wish{{name: "configfs"}}, parseMods(mods)...)); err != nil {
		return nil, err
	}
	s.Modules = p.out
	var files []string
	for _, path := range p.paths {
		file, err := k.plain(path)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	return files, nil
}

// plain is the uncompressed file of a module: loading a compressed one under
// emulation takes seconds. It is made once and kept beside the kernel.
func (k *kernel) plain(path string) (string, error) {
	packed := filepath.Join(k.tree(), path)
	if !strings.HasSuffix(path, ".xz") {
		return packed, nil
	}
	file := filepath.Join(k.dir, "ko", moduleName(path)+".ko")
	if _, err := os.Stat(file); err == nil {
		return file, nil
	}
	out, err := tool("", "xz", "-dc", packed)
	if err != nil {
		return "", err
	}
	tmp := fmt.Sprint(file, ".", os.Getpid())
	return file, errors.Join(os.WriteFile(tmp, []byte(out), 0o644), os.Rename(tmp, file))
}
