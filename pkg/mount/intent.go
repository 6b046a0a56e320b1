package mount

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"hash/crc32"
)

// The intent says "a format of ours is under way on this volume". It is on the
// volume itself, durable before mkfs writes its first byte, and goes away when the
// file system is complete and durable. Nothing mounts a volume that has it, so
// whoever finds it may begin again: there is no data yet.
//
// mkfs writes over most of a device's beginning, in an order that is its own. So
// the intent has two places, and each mkfs leaves one of them alone until its end:
//
//   - the boot block, bytes 0 to 1023, is no part of ext4. mke2fs clears it, but
//     not where it holds a BSD disk label: the intent has the magic number of one,
//     and is none otherwise.
//   - the last 4 KiB of the first 2 MiB: mkfs.xfs clears 128 KiB, and writes the
//     headers of its first allocation group and the root inodes; its log lies in
//     another group.
//
// What mkfs wrote over one place is known by the intent in the other. A file may
// lie at the second place later, and hold anything: a file system that is
// complete is never formatted for what is there (see judge).
const (
	headLen     = 2 << 20        // what is read before anything is decided, bytes (I7)
	blockLen    = 4096           // what is written at a time, bytes: one block of any device
	bootPlace   = 0              // offset of the intent's first place
	farPlace    = headLen - 4096 // and of its second
	intentLen   = 1024
	labelOffset = 64 // of the BSD disk label's magic number, e2fsprogs misc/mke2fs.c
	labelMagic  = 0x82564557
)

// intentVersion is the format of the block. Version 1 is the first.
const intentVersion = 1

var (
	intentMagic = []byte("csi-mpath: format under way")
	castagnoli  = crc32.MakeTable(crc32.Castagnoli)
)

// Layout, little endian: magic, 28 zero-padded; 32 version u32; 36 file system,
// 16 zero-padded; 64 label magic u32; 96 SHA-256 of the volume's name; 1020
// CRC-32C of what is before it. The rest is zero.

// intentFor is the block for a volume.
func intentFor(volume, fsType string) []byte {
	b := make([]byte, intentLen)
	copy(b, intentMagic)
	binary.LittleEndian.PutUint32(b[32:], intentVersion)
	copy(b[36:52], fsType)
	binary.LittleEndian.PutUint32(b[labelOffset:], labelMagic)
	sum := sha256.Sum256([]byte(volume))
	copy(b[96:], sum[:])
	binary.LittleEndian.PutUint32(b[1020:], crc32.Checksum(b[:1020], castagnoli))
	return b
}

// intended reports whether b begins with an intent for the volume, whatever file
// system it was for. One of another volume, or of a version that is unknown, is
// data like any other.
func intended(b []byte, volume string) bool {
	if len(b) < intentLen || !bytes.HasPrefix(b, intentMagic) || binary.LittleEndian.Uint32(b[32:]) != intentVersion {
		return false
	}
	fs, _, _ := bytes.Cut(b[36:52], []byte{0})
	return bytes.Equal(b[:intentLen], intentFor(volume, string(fs)))
}
