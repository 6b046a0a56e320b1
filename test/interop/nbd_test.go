//go:build interop

// Package interop runs programs we did not write against ours. A program that
// is missing fails the test: these are what a release is judged by.
package interop

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/nbd"
	"github.com/csi-mpath/csi-mpath/pkg/nbd/nbdtest"
)

const nbdSize = 64 << 20

// disk is a RAM export under the name "ram", on a unix and a TCP socket.
type disk struct {
	*nbdtest.RAM
	socket, addr string
	dir          string
}

func serveRAM(t *testing.T, blockSize uint32) *disk {
	t.Helper()
	ram, err := nbdtest.NewRAM(nbdSize, blockSize)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "x")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	d := &disk{RAM: ram, socket: filepath.Join(dir, "s"), dir: dir}
	s := nbd.NewServer(map[string]nbd.Export{"ram": ram}, nbd.Config{}, func(client string, err error) {
		t.Errorf("server: %s: %v", client, err)
	})
	d.addr = d.listen(t, s, "tcp", "127.0.0.1:0")
	d.listen(t, s, "unix", d.socket)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := s.Drain(ctx); err != nil {
			t.Error(err)
		}
		_ = ram.Close()
	})
	return d
}

func (d *disk) listen(t *testing.T, s *nbd.Server, network, addr string) string {
	t.Helper()
	l, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		if err := s.Serve(context.Background(), l); !errors.Is(err, nbd.ErrDraining) {
			t.Errorf("serve %s: %v", addr, err)
		}
	}()
	return l.Addr().String()
}

func (d *disk) uri() string { return "nbd+unix:///ram?socket=" + d.socket }

// run runs a program for at most five minutes; it must succeed.
func run(t *testing.T, name string, arg ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, arg...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(arg, " "), err, out)
	}
	return string(out)
}

func wantText(t *testing.T, got string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(got, w) {
			t.Errorf("output lacks %q:\n%s", w, got)
		}
	}
}

// fill writes text that differs in every block into a file of the disk's size.
func (d *disk) fill(t *testing.T) (path string, sum [32]byte) {
	t.Helper()
	b := make([]byte, nbdSize)
	for i := range b {
		b[i] = byte(i ^ i>>9 ^ i>>17)
	}
	path = filepath.Join(d.dir, "image")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path, sha256.Sum256(b)
}

func TestNbdinfoReadsEveryPropertyAndTheList(t *testing.T) {
	d := serveRAM(t, 4096)
	wantText(t, run(t, "nbdinfo", d.uri()), "export-size: 67108864", "can_multi_conn: true", "can_fua: true",
		"can_trim: true", "can_zero: true", "can_cache: true", "can_df: true", "is_read_only: false",
		"block_size_minimum: 4096", "block_size_maximum: 33554432", "structured packets")
	wantText(t, run(t, "nbdinfo", "--list", "nbd://"+d.addr), `export="ram"`)
}

func TestNbdcopyCopiesBothWaysOverSeveralConnections(t *testing.T) {
	d := serveRAM(t, 512)
	image, sum := d.fill(t)
	run(t, "nbdcopy", "--connections=4", "--flush", image, d.uri())
	if sha256.Sum256(d.Bytes()) != sum {
		t.Fatal("the device differs from the file written")
	}
	if d.Flushes.Load() == 0 {
		t.Error("no flush arrived")
	}
	back := filepath.Join(d.dir, "back")
	run(t, "nbdcopy", "--connections=4", d.uri(), back)
	b, err := os.ReadFile(back)
	if err != nil || sha256.Sum256(b) != sum {
		t.Fatalf("the file read back differs (%v)", err)
	}
}

func TestQemuImgConvertsComparesAndMeasures(t *testing.T) {
	d := serveRAM(t, 512)
	image, sum := d.fill(t)
	run(t, "qemu-img", "convert", "-n", "-f", "raw", "-O", "raw", image, d.uri())
	if sha256.Sum256(d.Bytes()) != sum {
		t.Fatal("the device differs from the file written")
	}
	run(t, "qemu-img", "compare", "-f", "raw", "-F", "raw", image, d.uri())
	wantText(t, run(t, "qemu-img", "info", d.uri()), "64 MiB")
}

func TestQemuIOFindsWhatItWroteWithEveryCommand(t *testing.T) {
	d := serveRAM(t, 512)
	out := run(t, "qemu-io", "-f", "raw", "-t", "none",
		"-c", "write -P 0x11 0 1M", "-c", "write -f -P 0x22 1M 32M", "-c", "read -P 0x11 0 1M", "-c", "read -P 0x22 1M 32M",
		"-c", "write -z 4k 8k", "-c", "read -P 0 4k 8k", "-c", "write -z -u 64k 64k", "-c", "read -P 0 64k 64k",
		"-c", "discard 512k 64k", "-c", "flush", "-c", "aio_write -P 0x33 40M 2M", "-c", "aio_flush", "-c", "read -P 0x33 40M 2M",
		d.uri())
	if strings.Contains(out, "failed") || strings.Contains(out, "error") {
		t.Fatal(out)
	}
	if !bytes.Equal(d.Bytes()[40<<20:42<<20], bytes.Repeat([]byte{0x33}, 2<<20)) {
		t.Error("the device holds other bytes")
	}
}

func TestQemuIOIsRefusedOnAReadOnlyDevice(t *testing.T) {
	d := serveRAM(t, 512)
	i := d.Info()
	i.Limits = blk.Limits{BlockSize: 512, ReadOnly: true}
	d.Set(i)
	wantText(t, run(t, "nbdinfo", d.uri()), "is_read_only: true", "can_trim: false", "can_zero: false")
	out, _ := exec.Command("qemu-io", "-f", "raw", "-c", "write 0 4k", d.uri()).CombinedOutput()
	if strings.Contains(string(out), "wrote") {
		t.Fatalf("qemu-io wrote to it:\n%s", out)
	}
}

func TestFioFindsWhatItWroteInEverySize(t *testing.T) {
	for _, bs := range []string{"512", "4k", "64k", "1m"} {
		d := serveRAM(t, 512)
		run(t, "fio", "--name=verify", "--ioengine=nbd", "--uri="+d.uri(), "--rw=randrw", "--bs="+bs, "--iodepth=32",
			"--size=64M", "--io_size=32M", "--verify=crc32c", "--verify_fatal=1", "--fsync=64", "--randseed=7")
	}
}

func TestFioReadsOverFourConnections(t *testing.T) {
	d := serveRAM(t, 512)
	run(t, "fio", "--name=jobs", "--ioengine=nbd", "--uri="+d.uri(), "--rw=randrw", "--bs=4k", "--iodepth=16",
		"--size=16M", "--offset_increment=16M", "--numjobs=4", "--verify=crc32c", "--verify_fatal=1", "--group_reporting")
}

func TestNbdClientListsTheExport(t *testing.T) {
	d := serveRAM(t, 512)
	host, port, err := net.SplitHostPort(d.addr)
	if err != nil {
		t.Fatal(err)
	}
	wantText(t, run(t, "nbd-client", "-l", host, port), "ram")
}
