package scsi

import "encoding/binary"

// Option bits, Command.Bits.
const (
	// UnitStart, UnitLoEj, UnitNoFlush and the power condition in the high
	// nibble: START STOP UNIT.
	UnitStart   = 0x01
	UnitLoEj    = 0x02
	UnitNoFlush = 0x04
	// PreventRemoval: PREVENT ALLOW MEDIUM REMOVAL.
	PreventRemoval = 0x01
	// DefectPrimary and DefectGrown ask READ DEFECT DATA for those lists; its
	// address format is in the low three bits.
	DefectPrimary = 0x10
	DefectGrown   = 0x08
	DefectFormat  = 0x07
	// ReportTimeouts asks REPORT SUPPORTED OPERATION CODES for timeouts; the
	// rest are its reporting options: all commands, one without service actions,
	// one with, either.
	ReportTimeouts = 0x80
	ReportAll      = 0x00
	ReportOpcode   = 0x01
	ReportAction   = 0x02
	ReportEither   = 0x03
)

// decodeRare reads the commands that a disk of today seldom gets. ok false with
// SenseInvalidOpcode: it is none of them.
func decodeRare(c Command, cdb []byte) (_ Command, bad Sense, ok bool) {
	switch c.Op {
	case OpRead6, OpWrite6:
		c.LBA = uint64(cdb[1]&0x1f)<<16 | uint64(binary.BigEndian.Uint16(cdb[2:]))
		if c.Blocks = uint32(cdb[4]); c.Blocks == 0 {
			c.Blocks = 256
		}
		return c, bad, true
	case OpVerify10, OpVerify12, OpVerify16, OpWriteVerify10, OpWriteVerify12, OpWriteVerify16:
		return decodeVerify(c, cdb)
	case OpCompareAndWrite:
		c.LBA, c.Blocks = binary.BigEndian.Uint64(cdb[2:]), uint32(cdb[13])
		c.Flags = rwFlags(cdb[1])
		return c, bad, cdb[1]>>5 == 0 || refuse(&bad)
	case OpStartStopUnit:
		c.Bits = cdb[4]
		if cdb[1]&1 != 0 {
			c.Flags |= Immed
		}
		return c, bad, true
	case OpPreventAllow:
		c.Bits = cdb[4] & 3
		return c, bad, c.Bits <= PreventRemoval || refuse(&bad) // medium changers are gone
	case OpReadDefectData10:
		c.Bits, c.Alloc = cdb[2]&0x1f, uint32(binary.BigEndian.Uint16(cdb[7:]))
		return c, bad, true
	case OpReadDefectData12:
		c.Bits, c.Alloc, c.Extended = cdb[1]&0x1f, binary.BigEndian.Uint32(cdb[6:]), true
		return c, bad, true
	}
	return c, SenseInvalidOpcode, false
}

func rwFlags(b byte) (f CDBFlags) {
	if b&0x08 != 0 {
		f |= FUA
	}
	if b&0x10 != 0 {
		f |= DPO
	}
	return f
}

func decodeVerify(c Command, cdb []byte) (_ Command, bad Sense, ok bool) {
	c.rng(cdb)
	c.Flags, c.ByteCheck = rwFlags(cdb[1])&DPO, cdb[1]>>1&3
	if c.ByteCheck == 2 { // reserved
		refuse(&bad)
		return c, bad, false
	}
	// VRPROTECT / WRPROTECT: there is no protection information.
	return c, bad, cdb[1]>>5 == 0 || refuse(&bad)
}

// decodeModeSelect wants the page format, and refuses to save: nothing is kept.
func decodeModeSelect(c Command, cdb []byte) (_ Command, bad Sense, ok bool) {
	c.Alloc = uint32(cdb[4])
	if c.Op == OpModeSelect10 {
		c.Alloc = uint32(binary.BigEndian.Uint16(cdb[7:]))
	}
	return c, bad, cdb[1]&0x11 == 0x10 || refuse(&bad)
}
