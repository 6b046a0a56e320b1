// Package nbd serves block devices to NBD clients: the fixed newstyle
// handshake and the transmission phase of proto.md, over unix or TCP stream
// sockets.
//
// The life of a request, in file order: reader.go receives a batch, decodes it
// in place and submits it to the connection's Lane; the lane answers through
// blk.Completer, which conn.go implements; sender.go sends the answers in
// batches. Two goroutines per connection, no lock and no allocation per I/O.
package nbd

import (
	"math/bits"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/nbd/proto"
)

// Export is one block device as the server sees it. Its methods may be called
// from any goroutine.
type Export interface {
	// Info describes the device now. The server asks once per batch, so it must
	// be cheap and not block; the size may change (resize).
	Info() Info
	// OpenLane begins one connection, which will have at most depth requests
	// outstanding, with slots below depth. An error refuses the connection.
	OpenLane(depth int) (Lane, error)
}

// Lane takes the requests of one connection. Both methods are called by the
// connection's reader only.
type Lane interface {
	// Submit gives a batch, linked by Next, to the device. It never blocks.
	// Each request is completed exactly once through its Owner, possibly
	// before Submit returns.
	Submit(first *blk.Request)
	// Close says that the connection is gone: what is not on a wire is
	// cancelled. Requests still outstanding are completed all the same,
	// possibly later.
	Close()
}

// Info describes an export.
type Info struct {
	Name        string
	Description string
	// Size is the device's size in bytes; what is beyond its last whole block
	// is not served.
	Size uint64
	// Limits is what the device can do; its Size field is not looked at.
	Limits blk.Limits
}

// block is the smallest unit of a request, bytes.
func (i *Info) block() uint32 {
	b := i.Limits.BlockSize
	if b < 512 || b > 64<<10 || b&(b-1) != 0 {
		return 512
	}
	return b
}

// size is the advertised size: whole blocks only (case C-12).
func (i *Info) size() uint64 { return i.Size &^ uint64(i.block()-1) }

// preferred is the unit below which requests are slow, bytes: a power of two.
func (i *Info) preferred() uint32 {
	p := max(i.block(), i.Limits.PhysicalBlock, 4096)
	if p > 1<<20 || bits.OnesCount32(p) != 1 {
		return max(i.block(), 4096)
	}
	return p
}

// flags are the transmission flags. A flush covers what was answered on every
// connection (case C-17), so CAN_MULTI_CONN always holds; FUA and flush are
// always offered, or clients would never flush (case C-16).
func (i *Info) flags(structured bool) uint16 {
	f := uint16(proto.HasFlags | proto.SendFlush | proto.SendFUA | proto.SendCache | proto.CanMultiConn)
	if i.Limits.ReadOnly {
		f |= proto.ReadOnly
	} else {
		f |= proto.SendWriteZeroes
		if i.Limits.MaxUnmap > 0 {
			f |= proto.SendTrim
		}
	}
	if structured {
		f |= proto.SendDF
	}
	return f
}

// Transmission is what the handshake would say, for a client that does none
// (the kernel's): size and block size in bytes, and the transmission flags.
func (i *Info) Transmission() (size uint64, block uint32, flags uint16) {
	return i.size(), i.block(), i.flags(false)
}

// errnos gives each outcome its error value on the wire (proto.md, "Error
// values").
var errnos = [...]proto.Errno{
	blk.OK:           0,
	blk.IOError:      proto.EIO,
	blk.Invalid:      proto.EINVAL,
	blk.NoSpace:      proto.ENOSPC,
	blk.NotPermitted: proto.EPERM,
	blk.Unsupported:  proto.ENOTSUP,
	blk.NoMemory:     proto.ENOMEM,
	blk.Overflow:     proto.EOVERFLOW,
	blk.Shutdown:     proto.ESHUTDOWN,
	blk.Conflict:     proto.EPERM,
	blk.Cancelled:    proto.ESHUTDOWN,
}

func errnoOf(s blk.Status) proto.Errno {
	if int(s) < len(errnos) {
		return errnos[s]
	}
	return proto.EIO
}
