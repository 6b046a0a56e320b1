package mount

import (
	"bytes"
	"encoding/binary"
)

// superblock is what a file system says of itself.
type superblock struct {
	fsType string
	size   uint64 // bytes that it takes of its device
	block  uint32 // bytes
	// mounted: it was mounted once. XFS does not say.
	mounted bool
	// unfinished: mkfs has not come to its end (XFS sb_inprogress).
	unfinished bool
}

// readSuperblock finds an ext2, 3 or 4 (all "ext4" here: blkid tells them apart)
// or XFS in the beginning of a device; nil if there is none.
func readSuperblock(head []byte) *superblock {
	if s := readXFS(head); s != nil {
		return s
	}
	return readExt4(head)
}

// readExt4 reads fs/ext4/ext4.h, struct ext4_super_block, at byte 1024.
func readExt4(head []byte) *superblock {
	if len(head) < 2048 {
		return nil
	}
	b, le := head[1024:2048], binary.LittleEndian
	shift := le.Uint32(b[0x18:])
	if le.Uint16(b[0x38:]) != 0xEF53 || shift > 6 {
		return nil
	}
	blocks := uint64(le.Uint32(b[4:]))
	if le.Uint32(b[0x60:])&0x80 != 0 { // INCOMPAT_64BIT
		blocks |= uint64(le.Uint32(b[0x150:])) << 32
	}
	block := uint32(1024) << shift
	size, ok := product(blocks, block)
	if !ok {
		return nil
	}
	return &superblock{fsType: Ext4, size: size, block: block, mounted: le.Uint32(b[0x2C:]) != 0}
}

// readXFS reads fs/xfs/libxfs/xfs_format.h, struct xfs_dsb, at byte 0.
func readXFS(head []byte) *superblock {
	if len(head) < 512 || !bytes.HasPrefix(head, []byte("XFSB")) {
		return nil
	}
	block := binary.BigEndian.Uint32(head[4:])
	if block < 512 || block > 65536 || block&(block-1) != 0 {
		return nil
	}
	size, ok := product(binary.BigEndian.Uint64(head[8:]), block)
	if !ok {
		return nil
	}
	return &superblock{fsType: XFS, size: size, block: block, unfinished: head[126] != 0}
}

// product is n blocks in bytes, if that is a size a device can have.
func product(n uint64, block uint32) (uint64, bool) {
	if n == 0 || n > (1<<63)/uint64(block) {
		return 0, false
	}
	return n * uint64(block), true
}
