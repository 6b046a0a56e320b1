package kernel

import (
	"errors"
	"fmt"
	"math/bits"
	"strings"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/nbd"
	"github.com/csi-mpath/csi-mpath/pkg/nbd/proto"
)

// FreeIndex lets the kernel choose a device that nobody uses.
const FreeIndex = -1

// Options describe a device to attach. Zero fields mean the defaults named;
// Index, too, must be set (FreeIndex).
type Options struct {
	// Backend identifies the volume: 1..MaxBackend printable ASCII characters
	// without blanks. The kernel gives the device back only to who names it.
	Backend string
	// Index is the device's number, or FreeIndex.
	Index int
	// Size is the capacity in bytes, a positive multiple of BlockSize.
	Size uint64
	// BlockSize is the logical block size in bytes: a power of two, 512..4096.
	BlockSize uint32
	// Flags are the transmission flags of the export (proto.HasFlags and so on).
	Flags uint16
	// Connections is 1 by default. More need NoPathTimeout and Timeout.
	Connections int
	// Timeout ends a connection on which a request is older; whole seconds. It
	// must be 0, never, for one connection; more than NoPathTimeout for several.
	Timeout time.Duration
	// NoPathTimeout is how long the server may hold a request for want of a
	// path; 0 = for ever, which several connections do not allow.
	NoPathTimeout time.Duration
	// DeadConnTimeout is how long requests wait for a server that went away;
	// whole seconds, 24 h by default.
	DeadConnTimeout time.Duration
	// IOTimeout is how soon after its sending a request is sent again when its
	// connection is gone; 100 ms..1 h, 2 s by default. Not used with several
	// connections: there Timeout says it.
	IOTimeout time.Duration
	// MaxSectorsKB is the largest request in KiB, 4..MaxSectorsKB, 1024 by default.
	MaxSectorsKB int
	// Arena is the payload memory, bytes, of each connection of the server;
	// nbd.DefaultArena by default. The kernel gets no more requests in flight than
	// fit there: a server that stops reading holds up more than its own device.
	Arena int
	// DirtyRatio is how much of the node's limit of dirty page cache the device
	// may take, 1..100 percent, 20 by default.
	DirtyRatio int
}

// For returns options that attach an export as it is now.
func For(backend string, i nbd.Info) Options {
	size, block, flags := i.Transmission()
	return Options{Backend: backend, Index: FreeIndex, Size: size, BlockSize: block, Flags: flags}
}

// kernelFlags are the transmission flags that the kernel's client knows.
const kernelFlags = proto.HasFlags | proto.ReadOnly | proto.SendFlush | proto.SendFUA | proto.Rotational |
	proto.SendTrim | proto.SendWriteZeroes | proto.CanMultiConn

// fill sets the defaults and checks all.
func (o *Options) fill() error {
	setDefault(&o.Connections, 1)
	setDefault(&o.DeadConnTimeout, defaultDeadTimeout)
	setDefault(&o.IOTimeout, defaultIOTimeout)
	setDefault(&o.MaxSectorsKB, defaultSectorsKB)
	setDefault(&o.Arena, nbd.DefaultArena)
	setDefault(&o.DirtyRatio, defaultDirtyRatio)
	o.Flags = o.Flags&kernelFlags | proto.HasFlags
	if err := errors.Join(checkBackend(o.Backend), o.checkGeometry(), o.checkTimes(), o.checkConnections()); err != nil {
		return fmt.Errorf("nbd: options of %q: %w", o.Backend, err)
	}
	return nil
}

func setDefault[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

func checkBackend(s string) error {
	bad := func(r rune) bool { return r <= ' ' || r > '~' }
	if s == "" || len(s) > MaxBackend || strings.ContainsFunc(s, bad) {
		return fmt.Errorf("the backend identifier must be 1..%d printable ASCII characters without blanks", MaxBackend)
	}
	return nil
}

func (o *Options) checkGeometry() error {
	block := uint64(o.BlockSize)
	switch {
	case o.Index < FreeIndex || o.Index > maxIndex:
		return fmt.Errorf("index %d is not in %d..%d", o.Index, FreeIndex, maxIndex)
	case block < 512 || block > 4096 || bits.OnesCount64(block) != 1:
		return fmt.Errorf("block size %d is not 512, 1024, 2048 or 4096", block)
	case o.Size < block || o.Size%block != 0 || o.Size > 1<<62:
		return fmt.Errorf("size %d is no positive multiple of the block size %d", o.Size, block)
	case o.MaxSectorsKB < 4 || o.MaxSectorsKB > MaxSectorsKB:
		return fmt.Errorf("requests of %d KiB are not in 4..%d", o.MaxSectorsKB, MaxSectorsKB)
	case o.Arena < nbd.MinArena:
		return fmt.Errorf("the server's memory of %d bytes is less than %d", o.Arena, nbd.MinArena)
	case o.DirtyRatio < 1 || o.DirtyRatio > 100:
		return fmt.Errorf("dirty ratio %d is not in 1..100 percent", o.DirtyRatio)
	}
	return nil
}

func (o *Options) checkTimes() error {
	switch {
	case o.DeadConnTimeout < time.Second || o.DeadConnTimeout%time.Second != 0:
		return fmt.Errorf("dead connection timeout %v is no positive number of seconds", o.DeadConnTimeout)
	case o.IOTimeout < 100*time.Millisecond || o.IOTimeout > time.Hour:
		return fmt.Errorf("I/O timeout %v is not in 100ms..1h", o.IOTimeout)
	case o.Timeout < 0 || o.Timeout%time.Second != 0:
		return fmt.Errorf("timeout %v is no number of seconds", o.Timeout)
	}
	return nil
}

// checkConnections: with several connections, or a timeout, the kernel ends a
// living connection when a request is late, so a late request must fail first.
func (o *Options) checkConnections() error {
	switch {
	case o.Connections < 1 || o.Connections > MaxConnections:
		return fmt.Errorf("%d connections are not in 1..%d", o.Connections, MaxConnections)
	case o.Connections == 1 && o.Timeout != 0:
		return errors.New("one connection must have timeout 0: any other ends it when a request is late")
	case o.Connections == 1:
		return nil
	case o.Flags&proto.CanMultiConn == 0:
		return errors.New("the export does not allow several connections")
	case o.NoPathTimeout <= 0 || o.Timeout <= o.NoPathTimeout:
		return errors.New("several connections need a finite noPathTimeout and a longer timeout")
	}
	return nil
}

// depth is how many requests fit into the server's memory, which gives each a
// power of two.
func (o *Options) depth() int {
	largest := 1 << bits.Len(uint(o.MaxSectorsKB<<10-1))
	return min(max(o.Arena/largest, minDepth), maxDepth)
}

func seconds(d time.Duration) *uint64 { return new(uint64(d / time.Second)) }

// connect is the message that attaches the device.
func (o *Options) connect() message {
	m := message{
		cmd: cmdConnect, backend: o.Backend,
		size: new(o.Size), block: new(uint64(o.BlockSize)),
		serverFlags: new(uint64(o.Flags)), clientFlags: new(uint64(0)),
		// Always sent: the kernel would keep that of the device's last user.
		timeout:      seconds(o.Timeout),
		deadConnects: seconds(o.DeadConnTimeout),
	}
	if o.Index != FreeIndex {
		m.index = new(uint32(o.Index))
	}
	return m
}

// reconnect is the message that gives a device its connections back. It names
// no timeout: that would reset queue/io_timeout to the kernel's 30 s.
func (o *Options) reconnect(index int) message {
	m := message{cmd: cmdReconfigure, index: new(uint32(index)), backend: o.Backend}
	if o.DeadConnTimeout > 0 {
		m.deadConnects = seconds(o.DeadConnTimeout)
	}
	return m
}
