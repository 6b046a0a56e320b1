package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// cache is the folder with unpacked kernels and the folders of running
// machines. Kernels in it never change; remove the folder to get newer ones.
type cache struct{ dir string }

// hidden are folders that the machine does not see as the host does.
var hidden = []string{"/dev/", "/proc/", "/run/", "/sys/"}

func openCache() (*cache, error) {
	if runtime.GOARCH != "amd64" {
		return nil, fmt.Errorf("the virtual machine is an x86-64 one, and this machine is %s", runtime.GOARCH)
	}
	base, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	if base, err = filepath.EvalSymlinks(base); errors.Is(err, os.ErrNotExist) {
		base, err = os.UserCacheDir()
	}
	if err != nil {
		return nil, err
	}
	c := &cache{filepath.Join(base, "csi-mpath", "vm")}
	for _, h := range hidden {
		if strings.HasPrefix(c.dir, h) {
			return nil, fmt.Errorf("the cache %s would be hidden in the machine: set XDG_CACHE_HOME to another folder", c.dir)
		}
	}
	return c, os.MkdirAll(filepath.Join(c.dir, "run"), 0o755)
}

// kernel is an unpacked Debian kernel package.
type kernel struct {
	dir     string // boot/, lib/modules/
	release string // as uname -r prints it
}

func (k *kernel) image() string { return filepath.Join(k.dir, "boot", "vmlinuz-"+k.release) }
func (k *kernel) tree() string  { return filepath.Join(k.dir, "lib", "modules", k.release) }

// kernel finds a fetched kernel.
func (c *cache) kernel(version string) (*kernel, error) {
	dir := filepath.Join(c.dir, "kernel-"+version)
	b, err := os.ReadFile(filepath.Join(dir, "release"))
	if err != nil {
		return nil, fmt.Errorf("kernel %s is not here yet: run make vm-test, or vmrun -k %s -fetch (%w)", version, version, err)
	}
	return &kernel{dir, strings.TrimSpace(string(b))}, nil
}

// fetch gets the kernel once; two at a time wait for each other.
func (c *cache) fetch(version string) (*kernel, error) {
	if !regexp.MustCompile(`^[0-9]+\.[0-9]+$`).MatchString(version) {
		return nil, fmt.Errorf("kernel version %q: want one like 6.12", version)
	}
	unlock, err := lock(filepath.Join(c.dir, "fetch.lock"), syscall.LOCK_EX)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if k, err := c.kernel(version); err == nil {
		return k, nil
	}
	tmp := filepath.Join(c.dir, "fetching")
	if err := errors.Join(os.RemoveAll(tmp), os.Mkdir(tmp, 0o755)); err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	if err := unpack(tmp, version); err != nil {
		return nil, err
	}
	dir := filepath.Join(c.dir, "kernel-"+version)
	if err := errors.Join(os.RemoveAll(dir), os.Rename(tmp, dir)); err != nil {
		return nil, err
	}
	return c.kernel(version)
}

// unpack downloads the kernel's package and makes a tree of it.
func unpack(tmp, version string) error {
	name, err := download(tmp, version)
	if err != nil {
		return err
	}
	debs, err := filepath.Glob(filepath.Join(tmp, "*.deb"))
	if err != nil {
		return err
	}
	if len(debs) != 1 {
		return fmt.Errorf("apt-get download %s left %d packages in %s, want one", name, len(debs), tmp)
	}
	if _, err := tool(tmp, "dpkg-deb", "-x", debs[0], tmp); err != nil {
		return err
	}
	release := strings.TrimPrefix(name, "linux-image-")
	// Debian's next releases have merged /lib into /usr/lib.
	if _, err := os.Stat(filepath.Join(tmp, "lib")); errors.Is(err, os.ErrNotExist) {
		if err := os.Rename(filepath.Join(tmp, "usr", "lib"), filepath.Join(tmp, "lib")); err != nil {
			return err
		}
	}
	if _, err := tool(tmp, "depmod", "-b", tmp, release); err != nil {
		return err
	}
	return errors.Join(os.Remove(debs[0]), os.RemoveAll(filepath.Join(tmp, "usr")),
		os.Mkdir(filepath.Join(tmp, "ko"), 0o755),
		os.WriteFile(filepath.Join(tmp, "release"), []byte(release+"\n"), 0o644))
}

// download fetches the kernel's package, and tries again when it cannot: a fresh
// machine has no package lists, or old ones, and mirrors have bad moments.
func download(tmp, version string) (name string, err error) {
	for _, pause := range fetchPauses {
		time.Sleep(pause)
		if name, err = downloadOnce(tmp, version); err == nil || os.Getuid() != 0 {
			return name, err
		}
		if _, uerr := tool("", "apt-get", "-q", "-o", "Acquire::Retries=3", "update"); uerr != nil {
			err = errors.Join(err, uerr)
		}
	}
	return "", err
}

func downloadOnce(tmp, version string) (string, error) {
	name, err := resolve(version)
	if err != nil {
		return "", err
	}
	fmt.Println("vmrun: fetching", name)
	_, err = tool(tmp, "apt-get", "-q", "-o", "Acquire::Retries=3", "download", name)
	return name, err
}

// resolve names the package behind a meta package: linux-image-6.12-amd64, or
// linux-image-amd64 where that is the release's own kernel.
func resolve(version string) (string, error) {
	var tried []error
	for _, meta := range []string{"linux-image-" + version + "-amd64", "linux-image-amd64"} {
		out, err := tool("", "apt-cache", "depends", "--important", meta)
		if err != nil {
			tried = append(tried, err)
			continue
		}
		if name := dependency(out, version); name != "" {
			return name, nil
		}
		tried = append(tried, fmt.Errorf("%s is not a %s", meta, version))
	}
	return "", fmt.Errorf("no kernel %s in the package lists (as root: apt-get update): %w", version, errors.Join(tried...))
}

// dependency picks the kernel from what apt-cache depends prints.
func dependency(out, version string) string {
	want := regexp.MustCompile(`(?m)^\s*Depends:\s+(linux-image-` + regexp.QuoteMeta(version) + `[.][^\s<>]*-amd64)\s*$`)
	if m := want.FindStringSubmatch(out); m != nil {
		return m[1]
	}
	return ""
}

// tool runs a program of the host and returns its output.
func tool(dir, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), fetchWithin)
	defer cancel()
	if _, err := exec.LookPath(name); err != nil && name == "depmod" {
		name = "/usr/sbin/depmod" // not in every user's PATH
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(errs.String()))
	}
	return out.String(), nil
}

// lock takes a lock that ends with this process. The file stays.
func lock(path string, how int) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), how); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { _ = f.Close() }, nil
}
