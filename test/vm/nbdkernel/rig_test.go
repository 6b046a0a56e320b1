//go:build vm

// Package nbdkernel tests pkg/nbd/kernel against a real kernel. The devices are
// memory of the test process, which serves them itself.
package nbdkernel

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/nbd"
	"github.com/csi-mpath/csi-mpath/pkg/nbd/kernel"
	"github.com/csi-mpath/csi-mpath/pkg/nbd/nbdtest"
	"github.com/csi-mpath/csi-mpath/test/vm/kmsg"
)

const mib = 1 << 20

func TestMain(m *testing.M) { os.Exit(kmsg.Main(m)) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// disk is a device in memory that counts, and that can keep its answers back.
type disk struct {
	*nbdtest.RAM
	trims, zeroes, writes atomic.Int64

	// silent keeps each request in held instead of answering it; read by the
	// lanes per request, and a stale value answers one request more.
	silent atomic.Bool
	held   chan *blk.Request
}

func newDisk(t *testing.T, size uint64) *disk {
	t.Helper()
	ram, err := nbdtest.NewRAM(size, 512)
	must(t, err)
	t.Cleanup(func() { must(t, ram.Close()) })
	return &disk{RAM: ram, held: make(chan *blk.Request, 4096)}
}

func (d *disk) OpenLane(int) (nbd.Lane, error) { return lane{d}, nil }

type lane struct{ d *disk }

func (l lane) Close() {}

func (l lane) Submit(first *blk.Request) {
	for r := first; r != nil; {
		next := r.Next
		if l.d.silent.Load() {
			l.d.held <- r
		} else {
			l.d.finish(r)
		}
		r = next
	}
}

func (d *disk) finish(r *blk.Request) {
	switch r.Op {
	case blk.Trim:
		d.trims.Add(1)
	case blk.WriteZeroes:
		d.zeroes.Add(1)
	case blk.Write:
		d.writes.Add(1)
	}
	owner := r.Owner
	r.Status = d.Do(r)
	owner.Complete(r)
	owner.Flush()
}

// forget cancels what is held: its connection is gone. It returns how many.
func (d *disk) forget() (n int) {
	for ; ; n++ {
		select {
		case r := <-d.held:
			owner := r.Owner
			r.Status = blk.Cancelled
			owner.Complete(r)
			owner.Flush()
		default:
			return n
		}
	}
}

// process is what serves disks, as a plugin would: it can die.
type process struct {
	t     *testing.T
	srv   *nbd.Server
	ctx   context.Context
	die   context.CancelFunc
	ended sync.WaitGroup

	mu    sync.Mutex
	conns []*net.UnixConn
	last  chan error // why each connection ended
}

func start(t *testing.T, cfg nbd.Config) *process {
	p := &process{t: t, srv: nbd.NewServer(nil, cfg, nil), last: make(chan error, 1024)}
	p.ctx, p.die = context.WithCancel(context.Background())
	return p
}

func (p *process) serve(d *disk) kernel.Serve {
	return func(c net.Conn) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.conns = append(p.conns, c.(*net.UnixConn))
		p.ended.Go(func() {
			err := p.srv.ServeConn(p.ctx, c, d)
			if err != nil && !errors.Is(err, nbd.ErrHungUp) {
				p.t.Error(err)
			}
			p.last <- err
		})
	}
}

// kill closes every connection of the process, as the kernel does for one that
// is killed, and forgets what it held.
func (p *process) kill(all ...*disk) {
	kmsg.Say("the server is killed")
	p.die()
	p.mu.Lock()
	for _, c := range p.conns { // at once: what is forgotten must not be answered
		_, _ = c.CloseRead(), c.CloseWrite()
	}
	p.mu.Unlock()
	for _, d := range all {
		d.silent.Store(false)
		d.forget()
	}
	p.ended.Wait()
}

// attach attaches a disk, and detaches it when the test ends.
func (p *process) attach(k *kernel.Kernel, backend string, d *disk) *kernel.Device {
	p.t.Helper()
	dev, err := k.Attach(within(p.t, time.Minute), kernel.For(backend, d.Info()), p.serve(d))
	must(p.t, err)
	p.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := k.Disconnect(ctx, dev.Index, backend); err != nil {
			p.t.Error(err)
		}
	})
	return dev
}

// direct opens a device past the page cache.
func direct(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_DIRECT, 0)
	must(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// aligned is memory for direct I/O, filled with b.
func aligned(t *testing.T, n int, b byte) []byte {
	t.Helper()
	mem, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	must(t, err)
	t.Cleanup(func() { _ = unix.Munmap(mem) })
	for i := range mem {
		mem[i] = b
	}
	return mem
}
