package sim

import "encoding/binary"

// A block tells which write it is of: its first words are the write's number and
// the block's own, the rest follows from both. Number 0 is all zero: never
// written, written with zeroes, or trimmed.

const mixer = 0x9e3779b97f4a7c15

// fill makes b, whole blocks of size bs from block first on, those of write v.
func fill(b []byte, bs int, first, v uint64) {
	if v == 0 {
		clear(b)
		return
	}
	for at := 0; at < len(b); at += bs {
		fillBlock(b[at:at+bs], first+uint64(at/bs), v)
	}
}

func fillBlock(b []byte, block, v uint64) {
	binary.LittleEndian.PutUint64(b, v)
	binary.LittleEndian.PutUint64(b[8:], block)
	x := v*mixer + block
	for i := 16; i < len(b); i += 8 {
		x += mixer
		binary.LittleEndian.PutUint64(b[i:], x)
	}
}

// number is the write that a block is of; false: of none, or of several.
func number(b []byte, block uint64) (v uint64, ok bool) {
	v = binary.LittleEndian.Uint64(b)
	if v == 0 {
		for i := 8; i < len(b); i += 8 {
			if binary.LittleEndian.Uint64(b[i:]) != 0 {
				return 0, false
			}
		}
		return 0, true
	}
	if binary.LittleEndian.Uint64(b[8:]) != block {
		return v, false
	}
	x := v*mixer + block
	for i := 16; i < len(b); i += 8 {
		x += mixer
		if binary.LittleEndian.Uint64(b[i:]) != x {
			return v, false
		}
	}
	return v, true
}

// scribble is what a buffer of ours holds while nobody should look at it.
const scribble = 0xa5

func scribbled(b []byte) bool {
	for _, c := range b {
		if c != scribble {
			return false
		}
	}
	return true
}

func scrawl(b []byte) {
	if len(b) == 0 {
		return
	}
	b[0] = scribble
	for n := 1; n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
}
