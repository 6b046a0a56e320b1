package pdu

import "encoding/binary"

// NOPOut is a ping, or the answer to one (RFC 7143 11.18).
type NOPOut struct {
	Immediate        bool
	LUN              uint64
	ITT, TTT         uint32 // ITT NoTag: no answer wanted; TTT NoTag: not an answer
	CmdSN, ExpStatSN uint32
	DataLen          int
}

// Put writes the header into b, at least HeaderLen bytes.
func (p *NOPOut) Put(b []byte) {
	b = start(b, OpNOPOut, bitFinal, p.DataLen)
	b[0] |= flag(p.Immediate, bitImmed)
	putRequest(b, p.LUN, p.ITT, p.TTT, p.CmdSN, p.ExpStatSN)
}

// Decode reads a header.
func (p *NOPOut) Decode(b []byte) error {
	if err := expect(b, OpNOPOut); err != nil {
		return err
	}
	*p = NOPOut{b[0]&bitImmed != 0, LUN(b), ITT(b), get32(b[20:]), get32(b[24:]), get32(b[28:]), DataLen(b)}
	return nil
}

// putRequest writes bytes 8-31, which most requests share.
func putRequest(b []byte, lun uint64, itt, word20, cmdSN, expStatSN uint32) {
	binary.BigEndian.PutUint64(b[8:], lun)
	put32(b[16:], itt)
	put32(b[20:], word20)
	put32(b[24:], cmdSN)
	put32(b[28:], expStatSN)
}

// Task attributes of a SCSI Command (RFC 7143 11.3.1).
const (
	AttrUntagged = 0
	AttrSimple   = 1
	AttrOrdered  = 2
	AttrHead     = 3
	AttrACA      = 4
)

// SCSICommand carries a CDB (RFC 7143 11.3). Data behind it is immediate data.
type SCSICommand struct {
	Immediate        bool
	Final            bool // no unsolicited Data-Out follows
	Read, Write      bool
	Attr             uint8
	LUN              uint64
	ITT              uint32
	EDTL             uint32 // bytes the initiator expects to move
	CmdSN, ExpStatSN uint32
	CDB              [16]byte
	DataLen          int
}

// Put writes the header into b, at least HeaderLen bytes.
func (p *SCSICommand) Put(b []byte) {
	b = start(b, OpSCSICommand, flag(p.Final, bitFinal)|flag(p.Read, 0x40)|flag(p.Write, 0x20)|p.Attr&7, p.DataLen)
	b[0] |= flag(p.Immediate, bitImmed)
	putRequest(b, p.LUN, p.ITT, p.EDTL, p.CmdSN, p.ExpStatSN)
	copy(b[32:], p.CDB[:])
}

// Decode reads a header.
func (p *SCSICommand) Decode(b []byte) error {
	if err := expect(b, OpSCSICommand); err != nil {
		return err
	}
	*p = SCSICommand{b[0]&bitImmed != 0, b[1]&bitFinal != 0, b[1]&0x40 != 0, b[1]&0x20 != 0, b[1] & 7,
		LUN(b), ITT(b), get32(b[20:]), get32(b[24:]), get32(b[28:]), [16]byte(b[32:48]), DataLen(b)}
	return nil
}

// TMFRequest asks to end or query tasks (RFC 7143 11.5).
type TMFRequest struct {
	Immediate        bool
	Function         uint8
	LUN              uint64
	ITT              uint32
	RefTag           uint32 // of the task meant; NoTag if none
	CmdSN, ExpStatSN uint32
	RefCmdSN         uint32
	ExpDataSN        uint32
}

// Put writes the header into b, at least HeaderLen bytes.
func (p *TMFRequest) Put(b []byte) {
	b = start(b, OpTMFRequest, bitFinal|p.Function&0x7f, 0)
	b[0] |= flag(p.Immediate, bitImmed)
	putRequest(b, p.LUN, p.ITT, p.RefTag, p.CmdSN, p.ExpStatSN)
	put32(b[32:], p.RefCmdSN)
	put32(b[36:], p.ExpDataSN)
}

// Decode reads a header.
func (p *TMFRequest) Decode(b []byte) error {
	if err := expect(b, OpTMFRequest); err != nil {
		return err
	}
	*p = TMFRequest{b[0]&bitImmed != 0, b[1] & 0x7f, LUN(b), ITT(b), get32(b[20:]), get32(b[24:]),
		get32(b[28:]), get32(b[32:]), get32(b[36:])}
	return nil
}

// LoginRequest is one leg of a login (RFC 7143 11.12). It is always immediate.
type LoginRequest struct {
	Transit, Continue bool
	CSG, NSG          uint8
	VersionMax        uint8
	VersionMin        uint8
	ISID              [6]byte
	TSIH              uint16
	ITT               uint32
	CID               uint16
	CmdSN, ExpStatSN  uint32
	DataLen           int
}

// Put writes the header into b, at least HeaderLen bytes.
func (p *LoginRequest) Put(b []byte) {
	b = start(b, OpLoginRequest, loginFlags(p.Transit, p.Continue, p.CSG, p.NSG), p.DataLen)
	b[0] |= bitImmed
	b[2], b[3] = p.VersionMax, p.VersionMin
	copy(b[8:14], p.ISID[:])
	binary.BigEndian.PutUint16(b[14:], p.TSIH)
	put32(b[16:], p.ITT)
	binary.BigEndian.PutUint16(b[20:], p.CID)
	put32(b[24:], p.CmdSN)
	put32(b[28:], p.ExpStatSN)
}

// Decode reads a header.
func (p *LoginRequest) Decode(b []byte) error {
	if err := expect(b, OpLoginRequest); err != nil {
		return err
	}
	*p = LoginRequest{b[1]&bitFinal != 0, b[1]&bitContinue != 0, b[1] >> 2 & 3, b[1] & 3, b[2], b[3],
		[6]byte(b[8:14]), binary.BigEndian.Uint16(b[14:]), ITT(b), binary.BigEndian.Uint16(b[20:]),
		get32(b[24:]), get32(b[28:]), DataLen(b)}
	return nil
}

func loginFlags(transit, cont bool, csg, nsg uint8) byte {
	f := flag(transit, bitFinal) | flag(cont, bitContinue) | csg&3<<2
	if transit {
		f |= nsg & 3
	}
	return f
}

// TextRequest carries keys in the full feature phase (RFC 7143 11.10).
type TextRequest struct {
	Immediate        bool
	Final, Continue  bool
	LUN              uint64
	ITT, TTT         uint32
	CmdSN, ExpStatSN uint32
	DataLen          int
}

// Put writes the header into b, at least HeaderLen bytes.
func (p *TextRequest) Put(b []byte) {
	b = start(b, OpTextRequest, flag(p.Final, bitFinal)|flag(p.Continue, bitContinue), p.DataLen)
	b[0] |= flag(p.Immediate, bitImmed)
	putRequest(b, p.LUN, p.ITT, p.TTT, p.CmdSN, p.ExpStatSN)
}

// Decode reads a header.
func (p *TextRequest) Decode(b []byte) error {
	if err := expect(b, OpTextRequest); err != nil {
		return err
	}
	*p = TextRequest{b[0]&bitImmed != 0, b[1]&bitFinal != 0, b[1]&bitContinue != 0, LUN(b), ITT(b),
		get32(b[20:]), get32(b[24:]), get32(b[28:]), DataLen(b)}
	return nil
}

// DataOut carries write data, solicited or not (RFC 7143 11.7).
type DataOut struct {
	Final     bool
	LUN       uint64
	ITT, TTT  uint32 // TTT NoTag: unsolicited
	ExpStatSN uint32
	DataSN    uint32 // from 0 for each R2T
	Offset    uint32
	DataLen   int
}

// Put writes the header into b, at least HeaderLen bytes.
func (p *DataOut) Put(b []byte) {
	b = start(b, OpDataOut, flag(p.Final, bitFinal), p.DataLen)
	putRequest(b, p.LUN, p.ITT, p.TTT, 0, p.ExpStatSN)
	put32(b[36:], p.DataSN)
	put32(b[40:], p.Offset)
}

// Decode reads a header.
func (p *DataOut) Decode(b []byte) error {
	if err := expect(b, OpDataOut); err != nil {
		return err
	}
	*p = DataOut{b[1]&bitFinal != 0, LUN(b), ITT(b), get32(b[20:]), get32(b[28:]), get32(b[36:]), get32(b[40:]), DataLen(b)}
	return nil
}

// LogoutRequest ends a session or connection (RFC 7143 11.14).
type LogoutRequest struct {
	Immediate        bool
	Reason           uint8
	ITT              uint32
	CID              uint16
	CmdSN, ExpStatSN uint32
}

// Put writes the header into b, at least HeaderLen bytes.
func (p *LogoutRequest) Put(b []byte) {
	b = start(b, OpLogoutRequest, bitFinal|p.Reason&0x7f, 0)
	b[0] |= flag(p.Immediate, bitImmed)
	put32(b[16:], p.ITT)
	binary.BigEndian.PutUint16(b[20:], p.CID)
	put32(b[24:], p.CmdSN)
	put32(b[28:], p.ExpStatSN)
}

// Decode reads a header.
func (p *LogoutRequest) Decode(b []byte) error {
	if err := expect(b, OpLogoutRequest); err != nil {
		return err
	}
	*p = LogoutRequest{b[0]&bitImmed != 0, b[1] & 0x7f, ITT(b), binary.BigEndian.Uint16(b[20:]), get32(b[24:]), get32(b[28:])}
	return nil
}

// SNACK asks for retransmission (RFC 7143 11.16). Only for ErrorRecoveryLevel
// above 0, which neither end of ours offers: a target decodes it to reject it.
type SNACK struct {
	Type              uint8
	LUN               uint64
	ITT, TTT          uint32
	ExpStatSN         uint32
	BegRun, RunLength uint32
}

// Put writes the header into b, at least HeaderLen bytes.
func (p *SNACK) Put(b []byte) {
	b = start(b, OpSNACK, bitFinal|p.Type&0x0f, 0)
	putRequest(b, p.LUN, p.ITT, p.TTT, 0, p.ExpStatSN)
	put32(b[40:], p.BegRun)
	put32(b[44:], p.RunLength)
}

// Decode reads a header.
func (p *SNACK) Decode(b []byte) error {
	if err := expect(b, OpSNACK); err != nil {
		return err
	}
	*p = SNACK{b[1] & 0x0f, LUN(b), ITT(b), get32(b[20:]), get32(b[28:]), get32(b[40:]), get32(b[44:])}
	return nil
}
