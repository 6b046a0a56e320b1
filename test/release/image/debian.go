package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// release is the Debian release that the programs come from. The machine's own
// release does not matter, only that it has apt and Debian's keys.
const release = "bookworm"

const sources = `Types: deb
URIs: http://deb.debian.org/debian
Suites: ` + release + ` ` + release + `-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://deb.debian.org/debian-security
Suites: ` + release + `-security
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
`

// packages are those that have the programs, and the libraries that these need. A
// library that is missing here is an error that names it.
var packages = []string{
	"base-files", "coreutils", "e2fsprogs", "kmod", "libblkid1", "libc6", "libcom-err2", "libext2fs2", "libinih1", "libkmod2",
	"liblzma5", "libmount1", "libpcre2-8-0", "libselinux1", "libssl3", "liburcu8", "libuuid1", "libzstd1", "mount", "util-linux", "xfsprogs",
}

// download fetches the packages of an architecture into a directory, which has an
// apt of its own: what the machine has installed does not matter, and stays.
func download(dir, arch string) ([]string, error) {
	for _, d := range []string{"etc/apt.conf.d", "etc/preferences.d", "state/lists/partial", "cache/archives/partial", "debs"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "etc/debian.sources"), []byte(sources), 0o644), os.WriteFile(filepath.Join(dir, "status"), nil, 0o644)); err != nil {
		return nil, err
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := apt(abs, arch, abs, "update", "-q"); err != nil {
		return nil, err
	}
	debs := filepath.Join(abs, "debs")
	if err := apt(abs, arch, debs, append([]string{"download", "-q"}, packages...)...); err != nil {
		return nil, err
	}
	return newest(debs)
}

// apt runs apt-get for an architecture, with everything it keeps below root.
func apt(root, arch, dir string, args ...string) error {
	at := func(p string) string { return filepath.Join(root, p) }
	options := []string{
		"APT::Architecture=" + arch, "APT::Architectures=" + arch, "APT::Sandbox::User=root",
		"Dir::Etc::sourcelist=" + at("etc/debian.sources"), "Dir::Etc::sourceparts=-", "Dir::Etc::preferencesparts=" + at("etc/preferences.d"),
		"Dir::State=" + at("state"), "Dir::State::status=" + at("status"), "Dir::Cache=" + at("cache"), "Acquire::Retries=5", "Acquire::Languages=none",
	}
	c := exec.Command("apt-get")
	for _, o := range options {
		c.Args = append(c.Args, "-o", o)
	}
	c.Args, c.Dir = append(c.Args, args...), dir
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(c.Args, " "), err, out)
	}
	return nil
}

// newest are the files of the packages: of one that is there in several versions,
// left by earlier runs, the one written last.
func newest(dir string) (out []string, err error) {
	for _, p := range packages {
		all, err := filepath.Glob(filepath.Join(dir, p+"_*.deb"))
		if err != nil || len(all) == 0 {
			return nil, fmt.Errorf("package %s was not fetched (%v)", p, err)
		}
		written := func(f string) int64 {
			st, err := os.Stat(f)
			if err != nil {
				return 0
			}
			return st.ModTime().UnixNano()
		}
		out = append(out, slices.MaxFunc(all, func(a, b string) int { return int(written(a)/1e9 - written(b)/1e9) }))
	}
	return out, nil
}

// contents are the entries of a package, by their path in a system whose /bin, /sbin
// and /lib are links into /usr.
func contents(deb string, into map[string]file) error {
	out, err := exec.Command("dpkg-deb", "--fsys-tarfile", deb).Output()
	if err != nil {
		return fmt.Errorf("dpkg-deb %s: %w", deb, err)
	}
	for r := tar.NewReader(bytes.NewReader(out)); ; {
		h, err := r.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", deb, err)
		}
		f := file{path: merged(h.Name), mode: h.FileInfo().Mode().Perm()}
		switch h.Typeflag {
		case tar.TypeReg:
			if f.data, err = io.ReadAll(r); err != nil {
				return fmt.Errorf("%s: %s: %w", deb, h.Name, err)
			}
		case tar.TypeSymlink:
			f.link = h.Linkname
		case tar.TypeLink:
			f = into[merged(h.Linkname)]
			f.path = merged(h.Name)
		default:
			continue
		}
		into[f.path] = f
	}
}

// merged is a path in /usr.
func merged(path string) string {
	path = strings.TrimPrefix(strings.TrimPrefix(path, "."), "/")
	for _, top := range []string{"bin/", "sbin/", "lib/", "lib64/"} {
		if strings.HasPrefix(path, top) {
			return "usr/" + path
		}
	}
	return path
}
