//go:build interop

package mount_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/mount"
	"github.com/csi-mpath/csi-mpath/pkg/mount/mounttest"
)

// realNode is the running node as a subject of the contract: loop devices over
// files.
type realNode struct {
	t *testing.T
}

func (s *realNode) Host() *mount.Host { return mount.New() }

func (s *realNode) Device(size uint64) mounttest.Device {
	f, err := os.CreateTemp(s.t.TempDir(), "disk")
	if err == nil {
		err = f.Truncate(int64(size))
	}
	if err != nil {
		s.t.Fatal(err)
	}
	_ = f.Close()
	return s.loop(f.Name())
}

func (s *realNode) loop(file string) *loopDevice {
	d := &loopDevice{s: s, file: file, path: s.sh("losetup", "--find", "--show", file)}
	s.t.Cleanup(func() { s.sh("losetup", "--detach", d.path) })
	return d
}

func (s *realNode) sh(name string, args ...string) string {
	s.t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		s.t.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
	return strings.TrimSpace(string(out))
}

type loopDevice struct {
	s          *realNode
	file, path string
}

func (d *loopDevice) Path() string { return d.path }

func (d *loopDevice) io(f func(*os.File) (int, error)) (int, error) {
	d.s.sh("blockdev", "--flushbufs", d.path)
	h, err := os.OpenFile(d.file, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer func() { _ = h.Close() }()
	return f(h)
}

func (d *loopDevice) ReadAt(b []byte, off int64) (int, error) {
	return d.io(func(f *os.File) (int, error) { return f.ReadAt(b, off) })
}

func (d *loopDevice) WriteAt(b []byte, off int64) (int, error) {
	return d.io(func(f *os.File) (int, error) { return f.WriteAt(b, off) })
}

func (d *loopDevice) Resize(size uint64) {
	if err := os.Truncate(d.file, int64(size)); err != nil {
		d.s.t.Fatal(err)
	}
	d.s.sh("losetup", "--set-capacity", d.path)
}

func (d *loopDevice) Clone() mounttest.Device {
	d.s.sh("sync", d.file)
	d.s.sh("cp", "--sparse=always", d.file, d.file+".clone")
	return d.s.loop(d.file + ".clone")
}

func TestTheRunningNodeKeepsTheContract(t *testing.T) {
	mounttest.Contract(t, func(t *testing.T) mounttest.Subject { return &realNode{t} })
}
