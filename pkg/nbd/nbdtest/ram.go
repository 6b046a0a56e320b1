// Package nbdtest holds the twins that tests and benchmarks of the NBD server
// use: a RAM disk as the server's device, and a plain client.
package nbdtest

import (
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/nbd"
)

// RAM is an export whose device is memory. Requests are carried out inside
// Submit. Requests that overlap in time and place may mix, as on a disk.
type RAM struct {
	mem  []byte
	info atomic.Pointer[nbd.Info] // replaced by Set; a stale one is a moment old

	// Lanes counts open lanes, Flushes the flushes carried out.
	Lanes, Flushes atomic.Int64
}

// NewRAM maps a device of size bytes, all zero; only what is written takes
// memory.
func NewRAM(size uint64, blockSize uint32) (*RAM, error) {
	mem, err := unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("nbdtest: map %d bytes: %w", size, err)
	}
	m := &RAM{mem: mem}
	m.Set(nbd.Info{
		Name: "ram", Description: "memory of the server", Size: size,
		Limits: blk.Limits{BlockSize: blockSize, PhysicalBlock: 4096, MaxUnmap: size, MaxZero: size, FUA: true},
	})
	return m, nil
}

// Set replaces the description; the size must not exceed that of NewRAM.
func (m *RAM) Set(i nbd.Info) { m.info.Store(&i) }

// Info describes the device.
func (m *RAM) Info() nbd.Info { return *m.info.Load() }

// Bytes is the device's memory.
func (m *RAM) Bytes() []byte { return m.mem }

// Close unmaps the device; nothing may be outstanding.
func (m *RAM) Close() error { return unix.Munmap(m.mem) }

// OpenLane begins a connection.
func (m *RAM) OpenLane(int) (nbd.Lane, error) {
	m.Lanes.Add(1)
	return (*ramLane)(m), nil
}

type ramLane RAM

// Submit carries the batch out and completes it.
func (l *ramLane) Submit(first *blk.Request) {
	owner := first.Owner
	for r := first; r != nil; {
		next := r.Next // Complete takes r away
		r.Status = (*RAM)(l).Do(r)
		owner.Complete(r)
		r = next
	}
	owner.Flush()
}

// Close ends the connection; nothing is ever outstanding here.
func (l *ramLane) Close() { l.Lanes.Add(-1) }

// Do carries out one request and returns its outcome.
func (m *RAM) Do(r *blk.Request) blk.Status {
	if r.End() > uint64(len(m.mem)) {
		return blk.IOError
	}
	at := m.mem[r.Off:r.End()]
	switch r.Op {
	case blk.Read:
		copy(r.Buf, at)
	case blk.Write:
		copy(at, r.Buf)
	case blk.Trim, blk.WriteZeroes:
		clear(at)
	case blk.Flush:
		m.Flushes.Add(1)
	default:
		return blk.Unsupported
	}
	return blk.OK
}
