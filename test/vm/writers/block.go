package writers

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// A block says of each of its sectors whose it is and how new: a write that was
// lost, mixed up or torn shows, and shows where.
//
//	0  magic         8
//	8  writer        4
//	12 sector        4   within the block
//	16 block         8   within the writer's range
//	24 sequence      8   from 1; the writer's n-th write to this block
//	32 noise that depends on all of that

const (
	sector = 512
	header = 32
	magic  = 0x6d70617468766d31
)

// place names one block.
type place struct {
	writer uint32
	block  uint64
}

// fill makes the block's n-th content; n of 0 is zeros, what a fresh device has.
func fill(buf []byte, p place, n uint64) {
	if n == 0 {
		clear(buf)
		return
	}
	for i := 0; i < len(buf); i += sector {
		fillSector(buf[i:i+sector], p, uint32(i/sector), n)
	}
}

func fillSector(b []byte, p place, index uint32, n uint64) {
	binary.LittleEndian.PutUint64(b[0:], magic)
	binary.LittleEndian.PutUint32(b[8:], p.writer)
	binary.LittleEndian.PutUint32(b[12:], index)
	binary.LittleEndian.PutUint64(b[16:], p.block)
	binary.LittleEndian.PutUint64(b[24:], n)
	x := n ^ uint64(p.writer)<<48 ^ p.block<<20 ^ uint64(index)<<12
	for i := header; i < len(b); i += 8 {
		x += 0x9e3779b97f4a7c15 // splitmix64
		z := (x ^ x>>30) * 0xbf58476d1ce4e5b9
		binary.LittleEndian.PutUint64(b[i:], z^z>>27)
	}
}

// judge finds the oldest and the newest sequence in a block. Content that no
// write to this place can have made is an error.
func judge(buf []byte, p place) (oldest, newest uint64, err error) {
	var want [sector]byte
	for i := 0; i < len(buf); i += sector {
		got, n := buf[i:i+sector], uint64(0)
		if binary.LittleEndian.Uint64(got) == magic {
			n = binary.LittleEndian.Uint64(got[24:])
		}
		clear(want[:])
		if n > 0 {
			fillSector(want[:], p, uint32(i/sector), n)
		}
		if !bytes.Equal(got, want[:]) {
			return 0, 0, fmt.Errorf("sector %d holds %s", i/sector, describe(got))
		}
		if i == 0 {
			oldest, newest = n, n
		}
		oldest, newest = min(oldest, n), max(newest, n)
	}
	return oldest, newest, nil
}

// check compares a block with what its writer knows: every write up to acked
// was answered, those up to sent may or may not be there.
func check(buf []byte, p place, acked, sent uint64) error {
	oldest, newest, err := judge(buf, p)
	switch {
	case err != nil:
		return fmt.Errorf("corrupt: %w, want write %d", err, acked)
	case oldest < acked && oldest != newest:
		return fmt.Errorf("torn: sectors from write %d to write %d, and write %d was acknowledged", oldest, newest, acked)
	case oldest < acked:
		return fmt.Errorf("lost: holds write %d, and write %d was acknowledged", oldest, acked)
	case newest > sent:
		return fmt.Errorf("corrupt: holds write %d, and the last one was %d", newest, sent)
	}
	return nil
}

func describe(b []byte) string {
	if binary.LittleEndian.Uint64(b) != magic {
		return fmt.Sprintf("foreign bytes % x…", b[:16])
	}
	return fmt.Sprintf("writer %d, block %d, sector %d, write %d, perhaps damaged",
		binary.LittleEndian.Uint32(b[8:]), binary.LittleEndian.Uint64(b[16:]),
		binary.LittleEndian.Uint32(b[12:]), binary.LittleEndian.Uint64(b[24:]))
}
