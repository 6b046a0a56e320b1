package scsi

import "encoding/binary"

// Operation codes (SPC-4 annex D).
const (
	OpTestUnitReady        = 0x00
	OpRequestSense         = 0x03
	OpRead6                = 0x08
	OpWrite6               = 0x0A
	OpInquiry              = 0x12
	OpModeSelect6          = 0x15
	OpModeSense6           = 0x1A
	OpStartStopUnit        = 0x1B
	OpPreventAllow         = 0x1E
	OpReadCapacity10       = 0x25
	OpRead10               = 0x28
	OpWrite10              = 0x2A
	OpWriteVerify10        = 0x2E
	OpVerify10             = 0x2F
	OpPrefetch10           = 0x34
	OpSyncCache10          = 0x35
	OpReadDefectData10     = 0x37
	OpWriteSame10          = 0x41
	OpUnmap                = 0x42
	OpModeSelect10         = 0x55
	OpModeSense10          = 0x5A
	OpPersistentReserveIn  = 0x5E
	OpPersistentReserveOut = 0x5F
	OpRead16               = 0x88
	OpCompareAndWrite      = 0x89
	OpWrite16              = 0x8A
	OpOrWrite16            = 0x8B
	OpWriteVerify16        = 0x8E
	OpVerify16             = 0x8F
	OpPrefetch16           = 0x90
	OpSyncCache16          = 0x91
	OpWriteSame16          = 0x93
	OpServiceActionIn16    = 0x9E
	OpReportLUNs           = 0xA0
	OpMaintenanceIn        = 0xA3
	OpRead12               = 0xA8
	OpWrite12              = 0xAA
	OpWriteVerify12        = 0xAE
	OpVerify12             = 0xAF
	OpReadDefectData12     = 0xB7
)

// Service actions.
const (
	ActionReadCapacity16 = 0x10 // of OpServiceActionIn16
	ActionGetLBAStatus   = 0x12 // of OpServiceActionIn16
	ActionReportTPG      = 0x0A // of OpMaintenanceIn
	ActionReportOpcodes  = 0x0C // of OpMaintenanceIn

	ActionReadKeys        = 0x00 // of OpPersistentReserveIn
	ActionReadReservation = 0x01
	ActionReportCaps      = 0x02
	ActionReadFullStatus  = 0x03

	ActionRegister          = 0x00 // of OpPersistentReserveOut
	ActionReserve           = 0x01
	ActionRelease           = 0x02
	ActionClear             = 0x03
	ActionPreempt           = 0x04
	ActionPreemptAbort      = 0x05
	ActionRegisterAndIgnore = 0x06
)

// CDBFlags are the bits builders take.
type CDBFlags uint8

// Flags of READ, WRITE (FUA, DPO), WRITE SAME (Unmap, NDOB) and SYNCHRONIZE
// CACHE and PRE-FETCH (Immed). A builder ignores those its command has not.
const (
	FUA   CDBFlags = 1 << iota // force unit access
	DPO                        // disable page out
	Unmap                      // may unmap the range
	NDOB                       // no data-out buffer: the block is zeroes
	Immed                      // answer before the cache is written
)

// Every builder clears b[:CDBLen] first, writes the CDB and returns its length
// in bytes. b must hold CDBLen bytes.

func start(b []byte, op byte) []byte {
	b = b[:CDBLen]
	clear(b)
	b[0] = op
	return b
}

func (f CDBFlags) rw() byte {
	var v byte
	if f&FUA != 0 {
		v |= 0x08
	}
	if f&DPO != 0 {
		v |= 0x10
	}
	return v
}

// PutTestUnitReady builds TEST UNIT READY.
func PutTestUnitReady(b []byte) int { start(b, OpTestUnitReady); return 6 }

// PutInquiry builds standard INQUIRY; alloc is bytes.
func PutInquiry(b []byte, alloc uint16) int {
	b = start(b, OpInquiry)
	binary.BigEndian.PutUint16(b[3:], alloc)
	return 6
}

// PutInquiryVPD builds INQUIRY for one vital product data page.
func PutInquiryVPD(b []byte, page byte, alloc uint16) int {
	PutInquiry(b, alloc)
	b[1], b[2] = 1, page
	return 6
}

// PutReportLUNs builds REPORT LUNS; alloc is bytes, at least 16.
func PutReportLUNs(b []byte, alloc uint32) int {
	b = start(b, OpReportLUNs)
	binary.BigEndian.PutUint32(b[6:], alloc)
	return 12
}

// PutReadCapacity10 builds READ CAPACITY(10); the answer is 8 bytes.
func PutReadCapacity10(b []byte) int { start(b, OpReadCapacity10); return 10 }

// PutReadCapacity16 builds READ CAPACITY(16); alloc is bytes, 32 is all.
func PutReadCapacity16(b []byte, alloc uint32) int {
	b = start(b, OpServiceActionIn16)
	b[1] = ActionReadCapacity16
	binary.BigEndian.PutUint32(b[10:], alloc)
	return 16
}

func put10(b []byte, op byte, flags byte, lba uint32, blocks uint16) int {
	b = start(b, op)
	b[1] = flags
	binary.BigEndian.PutUint32(b[2:], lba)
	binary.BigEndian.PutUint16(b[7:], blocks)
	return 10
}

func put16(b []byte, op byte, flags byte, lba uint64, blocks uint32) int {
	b = start(b, op)
	b[1] = flags
	binary.BigEndian.PutUint64(b[2:], lba)
	binary.BigEndian.PutUint32(b[10:], blocks)
	return 16
}

// PutRead10 builds READ(10) with FUA and DPO of f.
func PutRead10(b []byte, lba uint32, blocks uint16, f CDBFlags) int {
	return put10(b, OpRead10, f.rw(), lba, blocks)
}

// PutRead16 builds READ(16) with FUA and DPO of f.
func PutRead16(b []byte, lba uint64, blocks uint32, f CDBFlags) int {
	return put16(b, OpRead16, f.rw(), lba, blocks)
}

// PutWrite10 builds WRITE(10) with FUA and DPO of f.
func PutWrite10(b []byte, lba uint32, blocks uint16, f CDBFlags) int {
	return put10(b, OpWrite10, f.rw(), lba, blocks)
}

// PutWrite16 builds WRITE(16) with FUA and DPO of f.
func PutWrite16(b []byte, lba uint64, blocks uint32, f CDBFlags) int {
	return put16(b, OpWrite16, f.rw(), lba, blocks)
}

func (f CDBFlags) sync() byte {
	if f&Immed != 0 {
		return 0x02
	}
	return 0
}

// PutSyncCache10 builds SYNCHRONIZE CACHE(10); 0 blocks means up to the end.
func PutSyncCache10(b []byte, lba uint32, blocks uint16, f CDBFlags) int {
	return put10(b, OpSyncCache10, f.sync(), lba, blocks)
}

// PutSyncCache16 builds SYNCHRONIZE CACHE(16); 0 blocks means up to the end.
func PutSyncCache16(b []byte, lba uint64, blocks uint32, f CDBFlags) int {
	return put16(b, OpSyncCache16, f.sync(), lba, blocks)
}

// PutWriteSame16 builds WRITE SAME(16). Without NDOB its data-out is one block.
// blocks must not be 0, which some devices read as "up to the end".
func PutWriteSame16(b []byte, lba uint64, blocks uint32, f CDBFlags) int {
	var v byte
	if f&Unmap != 0 {
		v |= 0x08
	}
	if f&NDOB != 0 {
		v |= 0x01
	}
	return put16(b, OpWriteSame16, v, lba, blocks)
}

// PutUnmap builds UNMAP; paramLen is the bytes of its parameter list.
func PutUnmap(b []byte, paramLen uint16) int {
	b = start(b, OpUnmap)
	binary.BigEndian.PutUint16(b[7:], paramLen)
	return 10
}

// PutReportTPG builds REPORT TARGET PORT GROUPS. extended asks for the header
// with the implicit transition time; some targets refuse that.
func PutReportTPG(b []byte, alloc uint32, extended bool) int {
	b = start(b, OpMaintenanceIn)
	b[1] = ActionReportTPG
	if extended {
		b[1] |= 1 << 5
	}
	binary.BigEndian.PutUint32(b[6:], alloc)
	return 12
}

// PutModeSense6 builds MODE SENSE(6) for the current values of one page.
func PutModeSense6(b []byte, page byte, alloc byte) int {
	b = start(b, OpModeSense6)
	b[1], b[2], b[4] = 0x08, page&0x3f, alloc // DBD: no block descriptors
	return 6
}

// PutModeSense10 builds MODE SENSE(10) for the current values of one page.
func PutModeSense10(b []byte, page byte, alloc uint16) int {
	b = start(b, OpModeSense10)
	b[1], b[2] = 0x08, page&0x3f
	binary.BigEndian.PutUint16(b[7:], alloc)
	return 10
}

// PutReserveIn builds PERSISTENT RESERVE IN.
func PutReserveIn(b []byte, action byte, alloc uint16) int {
	b = start(b, OpPersistentReserveIn)
	b[1] = action & 0x1f
	binary.BigEndian.PutUint16(b[7:], alloc)
	return 10
}

// PutReserveOut builds PERSISTENT RESERVE OUT for the whole logical unit; its
// parameter list is ReserveParamLen bytes.
func PutReserveOut(b []byte, action byte, kind ReserveType) int {
	b = start(b, OpPersistentReserveOut)
	b[1], b[2] = action&0x1f, byte(kind)&0x0f
	binary.BigEndian.PutUint32(b[5:], ReserveParamLen)
	return 10
}
