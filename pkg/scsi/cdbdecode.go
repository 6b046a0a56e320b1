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
	// Extended: REPORT TARGET PORT GROUPS with the extended header.
	Extended bool
	// Type: PERSISTENT RESERVE OUT.
	Type ReserveType
}

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
	switch c.Op {
	case OpTestUnitReady, OpReadCapacity10:
		return c, bad, true
	case OpRequestSense:
		c.Alloc = uint32(cdb[4])
		return c, bad, true
	case OpInquiry:
		return decodeInquiry(c, cdb)
	case OpModeSense6, OpModeSense10:
		return decodeModeSense(c, cdb)
	case OpRead10, OpWrite10, OpRead16, OpWrite16:
		return decodeReadWrite(c, cdb)
	case OpSyncCache10, OpSyncCache16:
		c.rng(cdb)
		if cdb[1]&0x02 != 0 {
			c.Flags |= Immed
		}
		return c, bad, true
	case OpWriteSame16:
		return decodeWriteSame(c, cdb)
	case OpUnmap:
		c.Alloc = uint32(binary.BigEndian.Uint16(cdb[7:]))
		return c, bad, cdb[1]&1 == 0 || refuse(&bad) // ANCHOR is not offered
	case OpReportLUNs:
		c.Alloc, c.Action = binary.BigEndian.Uint32(cdb[6:]), cdb[2]
		return c, bad, true
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
		return c, bad, c.Action == ActionReadCapacity16 || refuse(&bad)
	case OpMaintenanceIn:
		c.Alloc, c.Extended = binary.BigEndian.Uint32(cdb[6:]), cdb[1]>>5 == 1
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
	if cdbLen(c.Op) == 10 {
		c.LBA = uint64(binary.BigEndian.Uint32(cdb[2:]))
		c.Blocks = uint32(binary.BigEndian.Uint16(cdb[7:]))
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
	if cdb[1]&0x08 != 0 {
		c.Flags |= FUA
	}
	if cdb[1]&0x10 != 0 {
		c.Flags |= DPO
	}
	// RDPROTECT / WRPROTECT: we format no protection information.
	return c, bad, cdb[1]>>5 == 0 || refuse(&bad)
}

func decodeWriteSame(c Command, cdb []byte) (_ Command, bad Sense, ok bool) {
	c.rng(cdb)
	if cdb[1]&0x08 != 0 {
		c.Flags |= Unmap
	}
	if cdb[1]&0x01 != 0 {
		c.Flags |= NDOB
	}
	// WRPROTECT, ANCHOR and the obsolete PBDATA/LBDATA are not offered.
	return c, bad, cdb[1]&0xf6 == 0 || refuse(&bad)
}
