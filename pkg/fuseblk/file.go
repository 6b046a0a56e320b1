package fuseblk

import (
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
)

// fileName is the one file of the file system.
const fileName = "disk"

const fileNode = 2 // the root is 1

// fileSystem is the FUSE side: a root with one file, the device. Everything else
// is refused by what it embeds.
type fileSystem struct {
	fuse.RawFileSystem
	p *port
}

func newFileSystem(p *port) *fileSystem {
	return &fileSystem{fuse.NewDefaultRawFileSystem(), p}
}

func (f *fileSystem) String() string { return "csi-mpath" }

// attr fills the attributes of a node. They are valid for no time: the size may
// change.
func (f *fileSystem) attr(node uint64, a *fuse.Attr) fuse.Status {
	switch node {
	case fuse.FUSE_ROOT_ID:
		*a = fuse.Attr{Ino: node, Mode: syscall.S_IFDIR | 0o500, Nlink: 1}
	case fileNode:
		i := f.p.export.Info()
		size, block, _ := i.Transmission()
		*a = fuse.Attr{Ino: node, Mode: syscall.S_IFREG | 0o600, Nlink: 1, Size: size, Blocks: size / 512, Blksize: block}
	default:
		return fuse.ENOENT
	}
	return fuse.OK
}

func (f *fileSystem) Lookup(_ <-chan struct{}, h *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	if h.NodeId != fuse.FUSE_ROOT_ID || name != fileName {
		return fuse.ENOENT
	}
	out.NodeId = fileNode
	return f.attr(fileNode, &out.Attr)
}

func (f *fileSystem) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	return f.attr(in.NodeId, &out.Attr)
}

// StatFs gives the loop driver its unit of discards.
func (f *fileSystem) StatFs(_ <-chan struct{}, _ *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	i := f.p.export.Info()
	size, block, _ := i.Transmission()
	*out = fuse.StatfsOut{Bsize: block, Frsize: block, Blocks: size / uint64(block), NameLen: uint32(len(fileName))}
	return fuse.OK
}

// Open has the kernel cache nothing, and write in parallel.
func (f *fileSystem) Open(_ <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	if in.NodeId != fileNode {
		return fuse.ENOENT
	}
	out.OpenFlags = fuse.FOPEN_DIRECT_IO | fuse.FOPEN_PARALLEL_DIRECT_WRITES
	return fuse.OK
}

func (f *fileSystem) Read(_ <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	n, errno := f.fit(in.Offset, uint64(min(len(buf), int(in.Size))))
	if errno == 0 && n > 0 {
		errno = f.p.do(blk.Read, 0, in.Offset, uint32(n), buf[:n])
	}
	if errno != 0 {
		return nil, fuse.Status(errno)
	}
	return fuse.ReadResultData(buf[:n]), fuse.OK
}

func (f *fileSystem) Write(_ <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	n, errno := f.fit(in.Offset, uint64(len(data)))
	switch {
	case errno != 0:
		return 0, fuse.Status(errno)
	case n < uint64(len(data)):
		return 0, fuse.Status(unix.ENOSPC)
	case n == 0:
		return 0, fuse.OK
	}
	if errno := f.p.do(blk.Write, 0, in.Offset, uint32(n), data); errno != 0 {
		return 0, fuse.Status(errno)
	}
	return uint32(n), fuse.OK
}

// fit is how much of a range the device has; the range must be whole blocks, as a
// loop device's are.
func (f *fileSystem) fit(off, n uint64) (uint64, unix.Errno) {
	i := f.p.export.Info()
	size, block, _ := i.Transmission()
	if off >= size {
		return 0, 0
	}
	n = min(n, size-off)
	if off%uint64(block) != 0 || n%uint64(block) != 0 {
		return 0, unix.EINVAL
	}
	return n, 0
}

func (f *fileSystem) Fsync(<-chan struct{}, *fuse.FsyncIn) fuse.Status {
	return fuse.Status(f.p.do(blk.Flush, 0, 0, 0, nil))
}

// Flush is a close, and means nothing here.
func (f *fileSystem) Flush(<-chan struct{}, *fuse.FlushIn) fuse.Status { return fuse.OK }

// Fallocate clears a range. A loop device punches a hole for a discard, and just
// so for a write of zeroes that may unmap: what was punched must read as zeroes,
// and a trim does not promise that.
func (f *fileSystem) Fallocate(_ <-chan struct{}, in *fuse.FallocateIn) fuse.Status {
	var flags blk.Flags
	switch in.Mode {
	case unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE:
	case unix.FALLOC_FL_ZERO_RANGE | unix.FALLOC_FL_KEEP_SIZE:
		flags = blk.NoUnmap
	default:
		return fuse.Status(unix.EOPNOTSUPP)
	}
	i := f.p.export.Info()
	if i.Limits.MaxZero == 0 {
		return fuse.Status(unix.EOPNOTSUPP) // the kernel writes its zeroes itself
	}
	left, errno := f.fit(in.Offset, in.Length)
	for off := in.Offset; left > 0 && errno == 0; {
		n := min(left, maxRange)
		errno = f.p.do(blk.WriteZeroes, flags, off, uint32(n), nil)
		off, left = off+n, left-n
	}
	return fuse.Status(errno)
}
