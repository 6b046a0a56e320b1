package scsi

import "encoding/binary"

// Command is a decoded CDB, the target's view.
type Command struct {
	Op     byte
	Action byte // service action, where the opcode has one
	// LBA and Blocks are the range of a media access command.
	LBA    uint64
	Blocks uint32
	Flags  CDBFlags
	// Alloc is the allocation length of commands that return parameter data,
	// or the parameter list length of those that take it, bytes.
	Alloc uint32
	// EVPD and Page: INQUIRY, MODE SENSE.
	EVPD bool
	Page byte
	// PageControl: MODE SENSE, 0 current, 1 changeable, 2 default, 3 saved.
	PageControl byte
	// Extended: REPORT TARGET PORT GROUPS with the extended header; READ DEFECT
	// DATA(12), whose header is longer than that of (10); REQUEST SENSE for the
	// descriptor format.
	Extended bool
	// ByteCheck is BYTCHK of the VERIFY and WRITE AND VERIFY family: 0 the medium
	// alone, 1 against the data of the whole range, 3 against one block.
	ByteCheck byte
	// Bits are the option bits of a command that has some of its own: see the
	// decoders of START STOP UNIT, PREVENT ALLOW, READ DEFECT DATA and REPORT
	// SUPPORTED OPERATION CODES.
	Bits byte
	// Of and OfAction: the command REPORT SUPPORTED OPERATION CODES asks about.
	Of       byte
	OfAction uint16
	// Type: PERSISTENT RESERVE OUT.
	Type ReserveType
}

// naca asks for the auto contingent allegiance nobody offers any more; a bit of
// the CONTROL byte, the last of each CDB of a fixed length (SAM-5 5.2).
const naca = 0x04

// Senses a decoder answers with.
var (
	SenseInvalidOpcode = Sense{Key: KeyIllegalRequest, ASC: 0x20}
	SenseInvalidCDB    = Sense{Key: KeyIllegalRequest, ASC: 0x24}
	SenseInvalidParam  = Sense{Key: KeyIllegalRequest, ASC: 0x26}
	SenseParamLength   = Sense{Key: KeyIllegalRequest, ASC: 0x1A}
	SenseOutOfRange    = Sense{Key: KeyIllegalRequest, ASC: 0x21}
	SenseNoLUN         = Sense{Key: KeyIllegalRequest, ASC: 0x25}
)

// DecodeCDB reads a CDB. ok false comes with the sense to answer with:
// unknown opcode or service action, a protection or obsolete field that is
// set, or a CDB cut short.
func DecodeCDB(cdb []byte) (c Command, bad Sense, ok bool) {
	if len(cdb) == 0 || len(cdb) < cdbLen(cdb[0]) {
		return c, SenseInvalidCDB, false
	}
	c.Op = cdb[0]
	if n := cdbLen(c.Op); n > 1 && cdb[n-1]&naca != 0 {
		return c, SenseInvalidCDB, false
	}
	switch c.Op {
	case OpRead10, OpWrite10, OpRead16, OpWrite16, OpRead12, OpWrite12, OpOrWrite16:
		return decodeReadWrite(c, cdb)
	case OpTestUnitReady, OpReadCapacity10:
		return c, bad, true
	case OpRequestSense:
		c.Alloc, c.Extended = uint32(cdb[4]), cdb[1]&1 != 0
		return c, bad, true
	case OpInquiry:
		return decodeInquiry(c, cdb)
	case OpModeSense6, OpModeSense10:
		return decodeModeSense(c, cdb)
	case OpModeSelect6, OpModeSelect10:
		return decodeModeSelect(c, cdb)
	case OpSyncCache10, OpSyncCache16, OpPrefetch10, OpPrefetch16:
		c.rng(cdb)
		if cdb[1]&0x02 != 0 {
			c.Flags |= Immed
		}
		return c, bad, true
	case OpWriteSame10, OpWriteSame16:
		return decodeWriteSame(c, cdb)
	case OpUnmap:
		c.Alloc = uint32(binary.BigEndian.Uint16(cdb[7:]))
		return c, bad, cdb[1]&1 == 0 || refuse(&bad) // ANCHOR is not offered
	case OpReportLUNs:
		c.Alloc, c.Action = binary.BigEndian.Uint32(cdb[6:]), cdb[2]
		return c, bad, true
	}
	if c, bad, ok = decodeRare(c, cdb); ok || bad != SenseInvalidOpcode {
		return c, bad, ok
	}
	return decodeAction(c, cdb)
}

func decodeAction(c Command, cdb []byte) (_ Command, bad Sense, ok bool) {
	if len(cdb) > 1 { // groups 3, 6 and 7 have no fixed length
		c.Action = cdb[1] & 0x1f
	}
	switch c.Op {
	case OpServiceActionIn16:
		c.Alloc = binary.BigEndian.Uint32(cdb[10:])
		if c.Action == ActionGetLBAStatus {
			c.LBA = binary.BigEndian.Uint64(cdb[2:])
			return c, bad, true
		}
		return c, bad, c.Action == ActionReadCapacity16 || refuse(&bad)
	case OpMaintenanceIn:
		c.Alloc = binary.BigEndian.Uint32(cdb[6:])
		if c.Action == ActionReportOpcodes {
			c.Bits, c.Of, c.OfAction = cdb[2], cdb[3], binary.BigEndian.Uint16(cdb[4:])
			return c, bad, c.Bits&^(ReportTimeouts|ReportEither) == 0 || refuse(&bad)
		}
		c.Extended = cdb[1]>>5 == 1
		return c, bad, c.Action == ActionReportTPG && cdb[1]>>5 <= 1 || refuse(&bad)
	case OpPersistentReserveIn:
		c.Alloc = uint32(binary.BigEndian.Uint16(cdb[7:]))
		return c, bad, c.Action <= ActionReadFullStatus || refuse(&bad)
	case OpPersistentReserveOut:
		c.Alloc, c.Type = binary.BigEndian.Uint32(cdb[5:]), ReserveType(cdb[2]&0x0f)
		return c, bad, c.Action <= ActionRegisterAndIgnore && cdb[2]>>4 == 0 || refuse(&bad)
	}
	return c, SenseInvalidOpcode, false
}

func refuse(bad *Sense) bool { *bad = SenseInvalidCDB; return false }

// cdbLen is the length of a CDB by the group code of its opcode (SPC-4 4.2.5.1).
func cdbLen(op byte) int {
	switch op >> 5 {
	case 0:
		return 6
	case 1, 2:
		return 10
	case 4:
		return 16
	case 5:
		return 12
	}
	return 1
}

func (c *Command) rng(cdb []byte) {
	switch cdbLen(c.Op) {
	case 10:
		c.LBA = uint64(binary.BigEndian.Uint32(cdb[2:]))
		c.Blocks = uint32(binary.BigEndian.Uint16(cdb[7:]))
		return
	case 12:
		c.LBA = uint64(binary.BigEndian.Uint32(cdb[2:]))
		c.Blocks = binary.BigEndian.Uint32(cdb[6:])
		return
	}
	c.LBA, c.Blocks = binary.BigEndian.Uint64(cdb[2:]), binary.BigEndian.Uint32(cdb[10:])
}

func decodeInquiry(c Command, cdb []byte) (_ Command, bad Sense, ok bool) {
	c.EVPD, c.Page = cdb[1]&1 != 0, cdb[2]
	c.Alloc = uint32(binary.BigEndian.Uint16(cdb[3:]))
	return c, bad, c.EVPD || c.Page == 0 || refuse(&bad)
}

func decodeModeSense(c Command, cdb []byte) (_ Command, bad Sense, ok bool) {
	c.Page, c.PageControl = cdb[2]&0x3f, cdb[2]>>6
	c.Alloc = uint32(cdb[4])
	if c.Op == OpModeSense10 {
		c.Alloc = uint32(binary.BigEndian.Uint16(cdb[7:]))
	}
	return c, bad, true
}

func decodeReadWrite(c Command, cdb []byte) (_ Command, bad Sense, ok bool) {
	c.rng(cdb)
	c.Flags = rwFlags(cdb[1])
	// RDPROTECT / WRPROTECT: we format no protection information.
	return c, bad, cdb[1]>>5 == 0 || refuse(&bad)
}

func decodeWriteSame(c Command, cdb []byte) (_ Command, bad Sense, ok bool) {
	c.rng(cdb)
	if cdb[1]&0x08 != 0 {
		c.Flags |= Unmap
	}
	legal := byte(0x08)
	if c.Op == OpWriteSame16 {
		legal |= 0x01
		if cdb[1]&0x01 != 0 {
			c.Flags |= NDOB
		}
	}
	// WRPROTECT, ANCHOR and the obsolete PBDATA/LBDATA are not offered.
	return c, bad, cdb[1]&^legal == 0 || refuse(&bad)
}
