package kernel

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csi-mpath/csi-mpath/pkg/nbd/proto"
)

// fake is a kernel whose sysfs is a folder. It keeps the rules of the real one
// that this package is about.
type fake struct {
	t    *testing.T
	k    *Kernel
	dir  string
	lack []string // sysfs files that this kernel does not have

	mu      sync.Mutex
	devices map[int]*fakeDevice
	calls   []command
	// hang, where set, is received from before a command is carried out.
	hang map[command]chan struct{}
	// probed is what probing a node says; claimed, what claiming it says.
	probed, claimed error
}

type fakeDevice struct {
	backend string
	fds     []int // the kernel's ends
	last    message
}

func newFake(t *testing.T, lack ...string) *fake {
	f := &fake{t: t, dir: t.TempDir(), lack: lack, devices: map[int]*fakeDevice{}, hang: map[command]chan struct{}{}}
	f.k = New()
	f.k.sys, f.k.dev, f.k.exchange, f.k.node = f.dir, "/dev", f.exchange, f
	t.Cleanup(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, d := range f.devices {
			d.close()
		}
		clear(f.devices)
	})
	return f
}

func (f *fake) probe(string, string, uint64) error { return f.probed }
func (f *fake) claim(string) error                 { return f.claimed }

func (d *fakeDevice) close() {
	for _, fd := range d.fds {
		_ = unix.Close(fd)
	}
}

func (f *fake) exchange(m message) (message, error) {
	f.mu.Lock()
	hang := f.hang[m.cmd]
	f.mu.Unlock()
	if hang != nil {
		<-hang
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, m.cmd)
	switch m.cmd {
	case cmdConnect:
		return f.connect(m)
	case cmdReconfigure:
		return message{cmd: m.cmd}, f.reconfigure(m)
	case cmdDisconnect:
		if d := f.devices[int(*m.index)]; d != nil {
			must(f.t, os.RemoveAll(f.path(int(*m.index), "")))
			d.close()
			delete(f.devices, int(*m.index))
		}
	}
	return message{cmd: m.cmd}, nil
}

func (f *fake) connect(m message) (message, error) {
	index := 0
	for ; m.index == nil && f.devices[index] != nil; index++ {
	}
	if m.index != nil {
		index = int(*m.index)
	}
	if f.devices[index] != nil {
		return message{}, unix.EBUSY
	}
	d := &fakeDevice{backend: m.backend, last: m}
	for _, fd := range m.sockets {
		d.fds = append(d.fds, dup(f.t, int(fd)))
	}
	f.devices[index] = d
	f.tree(index, m)
	return message{cmd: m.cmd, index: new(uint32(index))}, nil
}

// attached counts the devices that the kernel has.
func (f *fake) attached() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.devices)
}

// await waits for what a goroutine left behind does.
func (f *fake) await(done func() bool) {
	f.t.Helper()
	must(f.t, poll(f.ctx(), func() (bool, error) { return done(), nil }))
}

// unhang lets a command go on at the end of the test, and waits until it has.
func (f *fake) unhang(c command, calls int) {
	f.t.Cleanup(func() {
		close(f.hang[c])
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := poll(ctx, func() (bool, error) { return f.count(c) == calls, nil }); err != nil {
			f.t.Error(err)
		}
	})
}

func dup(t *testing.T, fd int) int {
	n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	must(t, err)
	return n
}

func (f *fake) tree(index int, m message) {
	for name, value := range map[string]string{
		"pid": "4711", "backend": m.backend, "size": fmt.Sprint(*m.size / 512), "ro": "0", "dev": fmt.Sprint("43:", index*16),
		"queue/scheduler": "[mq-deadline] none", "queue/io_timeout": "30000",
		"queue/max_sectors_kb": "128", "queue/max_hw_sectors_kb": "32768",
		"queue/nr_requests": "128", "inflight": "       0        0",
		"bdi/max_ratio": "100", "bdi/strict_limit": "0",
	} {
		if !slices.Contains(f.lack, name) {
			f.set(index, name, value)
		}
	}
}

func (f *fake) reconfigure(m message) error {
	d := f.devices[int(*m.index)]
	if d == nil || m.backend != d.backend {
		return unix.EINVAL
	}
	d.last = m
	if m.size != nil {
		f.set(int(*m.index), "size", fmt.Sprint(*m.size/512))
	}
	for _, fd := range m.sockets {
		i := slices.IndexFunc(d.fds, dead)
		if i < 0 {
			return nil // as the kernel does: without a word
		}
		_ = unix.Close(d.fds[i])
		d.fds[i] = dup(f.t, int(fd))
	}
	return nil
}

func dead(fd int) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
	n, err := unix.Poll(p, 0)
	return err != nil || n > 0
}

func (f *fake) path(index int, name string) string {
	return filepath.Join(f.dir, "block", fmt.Sprint("nbd", index), name)
}

func (f *fake) set(index int, name, value string) {
	p := f.path(index, name)
	must(f.t, os.MkdirAll(filepath.Dir(p), 0o755))
	must(f.t, os.WriteFile(p, []byte(value+"\n"), 0o644))
}

func (f *fake) get(index int, name string) string {
	f.t.Helper()
	s, err := f.k.read(index, name)
	must(f.t, err)
	return s
}

func (f *fake) count(c command) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, have := range f.calls {
		if have == c {
			n++
		}
	}
	return n
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// server collects the connections it is given.
type server struct{ conns []net.Conn }

func (s *server) serve(c net.Conn) { s.conns = append(s.conns, c) }

func (s *server) die() {
	for _, c := range s.conns {
		_ = c.Close()
	}
}

func options(backend string) Options {
	return Options{Backend: backend, Index: FreeIndex, Size: 1 << 20, BlockSize: 4096, Flags: proto.HasFlags | proto.SendFlush | proto.CanMultiConn}
}

func (f *fake) attach(backend string) (*Device, *server) {
	f.t.Helper()
	s := &server{}
	d, err := f.k.Attach(f.ctx(), options(backend), s.serve)
	must(f.t, err)
	f.t.Cleanup(s.die)
	return d, s
}

func (f *fake) ctx() context.Context {
	ctx, cancel := context.WithTimeout(f.t.Context(), time.Minute)
	f.t.Cleanup(cancel)
	return ctx
}
