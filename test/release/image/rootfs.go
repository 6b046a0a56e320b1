package main

import (
	"bytes"
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// file is one of an image. A directory ends with a slash.
type file struct {
	path string // without a slash at its beginning
	mode fs.FileMode
	link string // of a symbolic link
	data []byte
}

// programs are what csi-mpath runs (pkg/mount, pkg/nbd), and modprobe for the init
// container.
var programs = []string{
	"usr/sbin/blkid", "usr/sbin/mkfs.ext4", "usr/sbin/e2fsck", "usr/sbin/resize2fs", "usr/sbin/dumpe2fs", "usr/sbin/tune2fs",
	"usr/sbin/mkfs.xfs", "usr/sbin/xfs_repair", "usr/sbin/xfs_growfs",
	"usr/bin/mount", "usr/bin/umount", "usr/bin/dd", "usr/bin/sync", "usr/sbin/modprobe", "etc/mke2fs.conf",
}

// skeleton is what every image has.
var skeleton = []file{
	{path: "bin", link: "usr/bin"}, {path: "sbin", link: "usr/sbin"}, {path: "lib", link: "usr/lib"}, {path: "lib64", link: "usr/lib64"},
	{path: "tmp/", mode: 0o777 | fs.ModeSticky}, {path: "run/", mode: 0o755}, {path: "proc/", mode: 0o555}, {path: "sys/", mode: 0o555}, {path: "dev/", mode: 0o755},
	{path: "etc/mtab", link: "/proc/self/mounts"},
	{path: "etc/passwd", mode: 0o644, data: []byte("root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n")},
	{path: "etc/group", mode: 0o644, data: []byte("root:x:0:\nnonroot:x:65532:\n")},
}

// loaders are the dynamic linkers.
var loaders = map[string]string{"amd64": "usr/lib/x86_64-linux-gnu", "arm64": "usr/lib/aarch64-linux-gnu"}

// choose takes from packages the programs, what these need, and the licences.
func choose(debs []string, arch string) ([]file, error) {
	libraries, known := loaders[arch]
	if !known {
		return nil, fmt.Errorf("architecture %q: want amd64 or arm64", arch)
	}
	all := map[string]file{}
	var versions []string
	for _, deb := range debs {
		if err := contents(deb, all); err != nil {
			return nil, err
		}
		versions = append(versions, strings.TrimSuffix(filepath.Base(deb), ".deb"))
	}
	chosen := map[string]file{"usr/share/csi-mpath/packages": {path: "usr/share/csi-mpath/packages", mode: 0o644, data: []byte(strings.Join(versions, "\n") + "\n")}}
	for _, f := range skeleton {
		chosen[f.path] = f
	}
	for _, p := range programs {
		if err := take(all, chosen, p, libraries, "the list of programs"); err != nil {
			return nil, err
		}
	}
	for p, f := range all {
		if path.Base(p) == "copyright" || strings.HasPrefix(p, "usr/share/common-licenses/") || p == "etc/os-release" || p == "usr/lib/os-release" {
			chosen[p] = f
		}
	}
	out := make([]file, 0, len(chosen))
	for _, f := range chosen {
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b file) int { return cmp.Compare(a.path, b.path) })
	return out, nil
}

// take takes a file, what it links to, and the libraries that it needs.
func take(all, chosen map[string]file, p, libraries, by string) error {
	if _, done := chosen[p]; done {
		return nil
	}
	f, is := all[p]
	if !is {
		return fmt.Errorf("%s, wanted by %s, is in no package: add its package to 'packages'", p, by)
	}
	chosen[p] = f
	if f.link != "" {
		return take(all, chosen, merged(target(p, f.link)), libraries, p)
	}
	needs, interp, err := needed(f.data)
	if err != nil {
		return fmt.Errorf("%s: %w", p, err)
	}
	if interp != "" {
		if err := take(all, chosen, merged(interp), libraries, p); err != nil {
			return err
		}
	}
	for _, lib := range needs {
		at := path.Join(libraries, lib)
		if _, is := all[at]; !is {
			at = path.Join("usr/lib", lib) // the loader, on arm64
		}
		if err := take(all, chosen, at, libraries, p); err != nil {
			return err
		}
	}
	return nil
}

// target is where a link at p leads.
func target(p, link string) string {
	if path.IsAbs(link) {
		return path.Clean(link)
	}
	return path.Join("/", path.Dir(p), link)
}

// needed are the libraries and the loader of a program; none of what is no program.
func needed(data []byte) (libs []string, interp string, err error) {
	if !bytes.HasPrefix(data, []byte(elf.ELFMAG)) {
		return nil, "", nil
	}
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return nil, "", err
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			b := make([]byte, p.Filesz)
			if _, err := p.ReadAt(b, 0); err != nil {
				return nil, "", err
			}
			interp = string(bytes.TrimRight(b, "\x00"))
		}
	}
	libs, err = f.ImportedLibraries()
	return libs, interp, err
}

// unpack writes the image's files into a directory.
func (p *platform) unpack(dir string) error {
	for _, f := range append(slices.Clone(p.debian), p.ours...) {
		at := filepath.Join(dir, filepath.FromSlash(f.path))
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return err
		}
		var err error
		switch {
		case strings.HasSuffix(f.path, "/"):
			err = os.MkdirAll(at, 0o755)
		case f.link != "":
			err = os.Symlink(f.link, at)
		default:
			err = os.WriteFile(at, f.data, f.mode)
		}
		if err := errors.Join(err, chmod(at, f)); err != nil {
			return err
		}
	}
	return nil
}

// chmod gives a file its mode, whatever the umask is.
func chmod(at string, f file) error {
	if f.link != "" {
		return nil
	}
	return os.Chmod(at, f.mode)
}

// tryPrograms starts each program in the image, with a /proc that goes with it.
func (p *platform) tryPrograms() error {
	dir, err := os.MkdirTemp("", "image")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := p.unpack(dir); err != nil {
		return err
	}
	for _, line := range []string{
		"csi-mpath --version", "blkid --version", "mkfs.ext4 -V", "e2fsck -V", "mkfs.xfs -V", "xfs_repair -V", "xfs_growfs -V", "mount --version", "umount --version",
		"dd --version", "sync --version", "modprobe --version", "dd if=/usr/bin/csi-mpath of=/tmp/disk bs=1M seek=320 count=1",
		"mkfs.ext4 -q -F /tmp/disk 64M", "e2fsck -f -p /tmp/disk", "resize2fs /tmp/disk 128M", "blkid /tmp/disk", "dd if=/usr/bin/csi-mpath of=/tmp/xfs bs=1M seek=320 count=1", "mkfs.xfs -q -f /tmp/xfs", "blkid /tmp/xfs", "xfs_repair -n /tmp/xfs", "sync /tmp/xfs",
	} {
		c := exec.Command("unshare", append([]string{"--mount", "--mount-proc=" + filepath.Join(dir, "proc"), "chroot", dir}, strings.Fields(line)...)...)
		c.Env = []string{"PATH=" + searchPath}
		if out, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("in the image: %s: %w\n%s", line, err, out)
		}
	}
	return nil
}
