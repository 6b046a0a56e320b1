package pdu

import "encoding/binary"

// Residual says how much the data moved differs from what was expected
// (RFC 7143 11.4.5).
type Residual struct {
	Overflow, Underflow bool
	Count               uint32 // bytes
}

// NOPIn is a ping from the target, or the answer to one (RFC 7143 11.19).
type NOPIn struct {
	LUN      uint64
	ITT, TTT uint32 // ITT NoTag: the target's own; TTT NoTag: no answer wanted
	Window
	DataLen int
}

// Put writes the header into b, at least HeaderLen bytes.
func (p *NOPIn) Put(b []byte) {
	b = start(b, OpNOPIn, bitFinal, p.DataLen)
	putResponse(b, p.LUN, p.ITT, p.TTT, p.Window)
}

// Decode reads a header.
func (p *NOPIn) Decode(b []byte) error {
	if err := expect(b, OpNOPIn); err != nil {
		return err
	}
	*p = NOPIn{LUN(b), ITT(b), get32(b[20:]), GetWindow(b), DataLen(b)}
	return nil
}

// putResponse writes bytes 8-35, which most responses share.
func putResponse(b []byte, lun uint64, itt, word20 uint32, w Window) {
	binary.BigEndian.PutUint64(b[8:], lun)
	put32(b[16:], itt)
	put32(b[20:], word20)
	w.put(b)
}

// SCSIResponse ends a command (RFC 7143 11.4). Its data segment holds sense:
// see Sense.
type SCSIResponse struct {
	Response, Status uint8
	Residual
	BidiOverflow, BidiUnderflow bool
	ITT                         uint32
	SNACKTag                    uint32
	Window
	ExpDataSN    uint32
	BidiResidual uint32
	DataLen      int
}

// Put writes the header into b, at least HeaderLen bytes.
func (p *SCSIResponse) Put(b []byte) {
	b = start(b, OpSCSIResponse, bitFinal|flag(p.BidiOverflow, 0x10)|flag(p.BidiUnderflow, 0x08)|
		flag(p.Overflow, 0x04)|flag(p.Underflow, 0x02), p.DataLen)
	b[2], b[3] = p.Response, p.Status
	putResponse(b, 0, p.ITT, p.SNACKTag, p.Window)
	put32(b[36:], p.ExpDataSN)
	put32(b[40:], p.BidiResidual)
	put32(b[44:], p.Count)
}

// Decode reads a header.
func (p *SCSIResponse) Decode(b []byte) error {
	if err := expect(b, OpSCSIResponse); err != nil {
		return err
	}
	*p = SCSIResponse{b[2], b[3], Residual{b[1]&0x04 != 0, b[1]&0x02 != 0, get32(b[44:])},
		b[1]&0x10 != 0, b[1]&0x08 != 0, ITT(b), get32(b[20:]), GetWindow(b), get32(b[36:]), get32(b[40:]), DataLen(b)}
	return nil
}

// Sense cuts the sense data out of a SCSI Response's data segment: its first
// two bytes say its length. What is missing is left out; nil when there is
// none (RFC 7143 11.4.7).
func Sense(data []byte) []byte {
	if len(data) < 3 {
		return nil
	}
	n := min(int(binary.BigEndian.Uint16(data)), len(data)-2)
	return data[2 : 2+n : 2+n]
}

// TMFResponse answers a TMFRequest (RFC 7143 11.6).
type TMFResponse struct {
	Response uint8
	ITT      uint32
	Window
}

// Put writes the header into b, at least HeaderLen bytes.
func (p *TMFResponse) Put(b []byte) {
	b = start(b, OpTMFResponse, bitFinal, 0)
	b[2] = p.Response
	putResponse(b, 0, p.ITT, 0, p.Window)
}

// Decode reads a header.
func (p *TMFResponse) Decode(b []byte) error {
	if err := expect(b, OpTMFResponse); err != nil {
		return err
	}
	*p = TMFResponse{b[2], ITT(b), GetWindow(b)}
	return nil
}

// LoginResponse answers one leg of a login (RFC 7143 11.13).
type LoginResponse struct {
	Transit, Continue         bool
	CSG, NSG                  uint8
	VersionMax, VersionActive uint8
	ISID                      [6]byte
	TSIH                      uint16
	ITT                       uint32
	Window
	StatusClass, StatusDetail uint8
	DataLen                   int
}

// Put writes the header into b, at least HeaderLen bytes.
func (p *LoginResponse) Put(b []byte) {
	b = start(b, OpLoginResponse, loginFlags(p.Transit, p.Continue, p.CSG, p.NSG), p.DataLen)
	b[2], b[3] = p.VersionMax, p.VersionActive
	copy(b[8:14], p.ISID[:])
	binary.BigEndian.PutUint16(b[14:], p.TSIH)
	put32(b[16:], p.ITT)
	p.put(b)
	b[36], b[37] = p.StatusClass, p.StatusDetail
}

// Decode reads a header.
func (p *LoginResponse) Decode(b []byte) error {
	if err := expect(b, OpLoginResponse); err != nil {
		return err
	}
	*p = LoginResponse{b[1]&bitFinal != 0, b[1]&bitContinue != 0, b[1] >> 2 & 3, b[1] & 3, b[2], b[3],
		[6]byte(b[8:14]), binary.BigEndian.Uint16(b[14:]), ITT(b), GetWindow(b), b[36], b[37], DataLen(b)}
	return nil
}

// TextResponse answers a TextRequest (RFC 7143 11.11).
type TextResponse struct {
	Final, Continue bool
	LUN             uint64
	ITT, TTT        uint32 // TTT not NoTag: more is to come, ask with it
	Window
	DataLen int
}

// Put writes the header into b, at least HeaderLen bytes.
func (p *TextResponse) Put(b []byte) {
	b = start(b, OpTextResponse, flag(p.Final, bitFinal)|flag(p.Continue, bitContinue), p.DataLen)
	putResponse(b, p.LUN, p.ITT, p.TTT, p.Window)
}

// Decode reads a header.
func (p *TextResponse) Decode(b []byte) error {
	if err := expect(b, OpTextResponse); err != nil {
		return err
	}
	*p = TextResponse{b[1]&bitFinal != 0, b[1]&bitContinue != 0, LUN(b), ITT(b), get32(b[20:]), GetWindow(b), DataLen(b)}
	return nil
}

// DataIn carries read data, and the status if HasStatus (RFC 7143 11.7).
type DataIn struct {
	Final, Ack bool
	HasStatus  bool
	Status     uint8 // valid with HasStatus, as are Residual and StatSN
	Residual
	LUN      uint64
	ITT, TTT uint32
	Window
	DataSN, Offset uint32
	DataLen        int
}

// Put writes the header into b, at least HeaderLen bytes.
func (p *DataIn) Put(b []byte) {
	b = start(b, OpDataIn, flag(p.Final, bitFinal)|flag(p.Ack, 0x40)|flag(p.Overflow, 0x04)|
		flag(p.Underflow, 0x02)|flag(p.HasStatus, 0x01), p.DataLen)
	b[3] = p.Status
	putResponse(b, p.LUN, p.ITT, p.TTT, p.Window)
	put32(b[36:], p.DataSN)
	put32(b[40:], p.Offset)
	put32(b[44:], p.Count)
}

// Decode reads a header.
func (p *DataIn) Decode(b []byte) error {
	if err := expect(b, OpDataIn); err != nil {
		return err
	}
	*p = DataIn{b[1]&bitFinal != 0, b[1]&0x40 != 0, b[1]&0x01 != 0, b[3],
		Residual{b[1]&0x04 != 0, b[1]&0x02 != 0, get32(b[44:])},
		LUN(b), ITT(b), get32(b[20:]), GetWindow(b), get32(b[36:]), get32(b[40:]), DataLen(b)}
	return nil
}

// LogoutResponse answers a LogoutRequest (RFC 7143 11.15).
type LogoutResponse struct {
	Response uint8
	ITT      uint32
	Window
	Time2Wait, Time2Retain uint16 // seconds
}

// Put writes the header into b, at least HeaderLen bytes.
func (p *LogoutResponse) Put(b []byte) {
	b = start(b, OpLogoutResponse, bitFinal, 0)
	b[2] = p.Response
	putResponse(b, 0, p.ITT, 0, p.Window)
	binary.BigEndian.PutUint16(b[40:], p.Time2Wait)
	binary.BigEndian.PutUint16(b[42:], p.Time2Retain)
}

// Decode reads a header.
func (p *LogoutResponse) Decode(b []byte) error {
	if err := expect(b, OpLogoutResponse); err != nil {
		return err
	}
	*p = LogoutResponse{b[2], ITT(b), GetWindow(b), binary.BigEndian.Uint16(b[40:]), binary.BigEndian.Uint16(b[42:])}
	return nil
}

// R2T asks for write data (RFC 7143 11.8).
type R2T struct {
	LUN      uint64
	ITT, TTT uint32
	Window
	R2TSN, Offset uint32
	Length        uint32 // bytes wanted
}

// Put writes the header into b, at least HeaderLen bytes.
func (p *R2T) Put(b []byte) {
	b = start(b, OpR2T, bitFinal, 0)
	putResponse(b, p.LUN, p.ITT, p.TTT, p.Window)
	put32(b[36:], p.R2TSN)
	put32(b[40:], p.Offset)
	put32(b[44:], p.Length)
}

// Decode reads a header.
func (p *R2T) Decode(b []byte) error {
	if err := expect(b, OpR2T); err != nil {
		return err
	}
	*p = R2T{LUN(b), ITT(b), get32(b[20:]), GetWindow(b), get32(b[36:]), get32(b[40:]), get32(b[44:])}
	return nil
}

// Async is an asynchronous message (RFC 7143 11.9). With AsyncSCSI its data
// segment holds sense in the form of a SCSI Response's.
type Async struct {
	LUN uint64
	Window
	Event, VendorCode      uint8
	Param1, Param2, Param3 uint16
	DataLen                int
}

// Put writes the header into b, at least HeaderLen bytes.
func (p *Async) Put(b []byte) {
	b = start(b, OpAsync, bitFinal, p.DataLen)
	putResponse(b, p.LUN, NoTag, 0, p.Window)
	b[36], b[37] = p.Event, p.VendorCode
	binary.BigEndian.PutUint16(b[38:], p.Param1)
	binary.BigEndian.PutUint16(b[40:], p.Param2)
	binary.BigEndian.PutUint16(b[42:], p.Param3)
}

// Decode reads a header.
func (p *Async) Decode(b []byte) error {
	if err := expect(b, OpAsync); err != nil {
		return err
	}
	*p = Async{LUN(b), GetWindow(b), b[36], b[37], binary.BigEndian.Uint16(b[38:]),
		binary.BigEndian.Uint16(b[40:]), binary.BigEndian.Uint16(b[42:]), DataLen(b)}
	return nil
}

// Reject refuses a PDU (RFC 7143 11.17). Its data segment is the header refused.
type Reject struct {
	Reason uint8
	Window
	DataSN  uint32
	DataLen int
}

// Put writes the header into b, at least HeaderLen bytes.
func (p *Reject) Put(b []byte) {
	b = start(b, OpReject, bitFinal, p.DataLen)
	b[2] = p.Reason
	putResponse(b, 0, NoTag, 0, p.Window)
	put32(b[36:], p.DataSN)
}

// Decode reads a header.
func (p *Reject) Decode(b []byte) error {
	if err := expect(b, OpReject); err != nil {
		return err
	}
	*p = Reject{b[2], GetWindow(b), get32(b[36:]), DataLen(b)}
	return nil
}
