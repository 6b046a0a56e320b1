package nvme

import "fmt"

// IOFlags modify Read, Write and Write Zeroes.
type IOFlags uint8

// The flags.
const (
	// FUA: on stable storage before the completion.
	FUA IOFlags = 1 << iota
	// Deallocate (DEAC): Write Zeroes may deallocate.
	Deallocate
	// LimitedRetry: fail sooner.
	LimitedRetry
)

// transfer builds Read, Write, Compare, Verify or Write Zeroes of 1..MaxBlocks blocks.
func transfer(op Opcode, nsid uint32, lba uint64, blocks uint32, f IOFlags) Command {
	e := command(op, nsid)
	e.CDW10, e.CDW11, e.CDW12 = uint32(lba), uint32(lba>>32), (blocks-1)&0xFFFF
	if f&FUA != 0 {
		e.CDW12 |= 1 << 30
	}
	if f&Deallocate != 0 && op == OpWriteZeroes {
		e.CDW12 |= 1 << 25
	}
	if f&LimitedRetry != 0 {
		e.CDW12 |= 1 << 31
	}
	return e
}

// Read reads 1..MaxBlocks blocks. The caller sets SGL.
func Read(nsid uint32, lba uint64, blocks uint32, f IOFlags) Command {
	return transfer(OpRead, nsid, lba, blocks, f)
}

// Write writes 1..MaxBlocks blocks. The caller sets SGL.
func Write(nsid uint32, lba uint64, blocks uint32, f IOFlags) Command {
	return transfer(OpWrite, nsid, lba, blocks, f)
}

// Compare compares 1..MaxBlocks blocks. The caller sets SGL.
func Compare(nsid uint32, lba uint64, blocks uint32) Command {
	return transfer(OpCompare, nsid, lba, blocks, 0)
}

// WriteZeroes makes 1..MaxBlocks blocks read as zeroes.
func WriteZeroes(nsid uint32, lba uint64, blocks uint32, f IOFlags) Command {
	return transfer(OpWriteZeroes, nsid, lba, blocks, f)
}

// Flush empties the volatile cache of a namespace.
func Flush(nsid uint32) Command { return command(OpFlush, nsid) }

// LBA is the first block of a Read, Write, Compare, Verify or Write Zeroes.
func (c *Command) LBA() uint64 { return uint64(c.CDW11)<<32 | uint64(c.CDW10) }

// Blocks is how many of them, 1..MaxBlocks.
func (c *Command) Blocks() uint32 { return c.CDW12&0xFFFF + 1 }

// IOFlags are the flags of such a command.
func (c *Command) IOFlags() IOFlags {
	var f IOFlags
	if c.CDW12&(1<<30) != 0 {
		f |= FUA
	}
	if c.CDW12&(1<<25) != 0 && c.Opcode == OpWriteZeroes {
		f |= Deallocate
	}
	if c.CDW12&(1<<31) != 0 {
		f |= LimitedRetry
	}
	return f
}

// Protection is PRINFO: not zero asks for protection information, which a
// namespace without metadata refuses.
func (c *Command) Protection() uint8 { return uint8(c.CDW12 >> 26 & 0xF) }

// Dataset attributes (NVM 3.3.3).
const (
	DatasetRead       = 1 << 0
	DatasetWrite      = 1 << 1
	DatasetDeallocate = 1 << 2
)

// Dataset is Dataset Management of 1..MaxRanges ranges; its data are RangeLen
// bytes each. The caller sets SGL.
func Dataset(nsid uint32, ranges int, attributes uint32) Command {
	e := command(OpDataset, nsid)
	e.CDW10, e.CDW11 = uint32(ranges-1)&0xFF, attributes&7
	return e
}

// Ranges is how many ranges a Dataset Management command brings, 1..MaxRanges.
func (c *Command) Ranges() int { return int(c.CDW10&0xFF) + 1 }

// Range is one range of Dataset Management.
type Range struct {
	Attributes uint32
	Blocks     uint32
	LBA        uint64
}

// Append appends the range, RangeLen bytes.
func (r Range) Append(b []byte) []byte {
	b = le.AppendUint32(b, r.Attributes)
	b = le.AppendUint32(b, r.Blocks)
	return le.AppendUint64(b, r.LBA)
}

// ParseRanges reads n ranges and appends them to dst.
func ParseRanges(dst []Range, b []byte, n int) ([]Range, error) {
	if n < 1 || n > MaxRanges || len(b) < n*RangeLen {
		return dst, fmt.Errorf("nvme: %d ranges in %d bytes: want 1..%d of %d bytes each", n, len(b), MaxRanges, RangeLen)
	}
	for ; n > 0; n, b = n-1, b[RangeLen:] {
		dst = append(dst, Range{le.Uint32(b), le.Uint32(b[4:]), le.Uint64(b[8:])})
	}
	return dst, nil
}
