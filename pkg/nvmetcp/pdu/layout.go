package pdu

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// Type of a PDU.
type Type uint8

// The types.
const (
	TypeICReq       Type = 0x00
	TypeICResp      Type = 0x01
	TypeH2CTerm     Type = 0x02
	TypeC2HTerm     Type = 0x03
	TypeCapsuleCmd  Type = 0x04
	TypeCapsuleResp Type = 0x05
	TypeH2CData     Type = 0x06
	TypeC2HData     Type = 0x07
	TypeR2T         Type = 0x09
)

var typeNames = [...]string{"ICReq", "ICResp", "H2CTermReq", "C2HTermReq", "CapsuleCmd", "CapsuleResp",
	"H2CData", "C2HData", "", "R2T"}

// String names the type as the specification does.
func (t Type) String() string {
	if int(t) < len(typeNames) && typeNames[t] != "" {
		return typeNames[t]
	}
	return fmt.Sprintf("PDU type %02Xh", uint8(t))
}

// headerLens are HLEN by type; 0: no such type.
var headerLens = [...]uint8{InitLen, InitLen, HeaderLen, HeaderLen, CommandLen, HeaderLen, HeaderLen, HeaderLen, 0, HeaderLen}

// Flags of the common header.
const (
	flagHeaderDigest = 1 << 0
	flagDataDigest   = 1 << 1
	flagLast         = 1 << 2
	flagSuccess      = 1 << 3
)

// Layout says how the PDUs of one direction of a connection look. The zero
// value is that of a connection before ICResp.
type Layout struct {
	HeaderDigest, DataDigest bool
	// Align is the receiver's HPDA or CPDA: data begins at a multiple of
	// (Align+1)*4 bytes.
	Align uint8
}

// DataStart is the offset of the data in a PDU with a header of n bytes.
func (l Layout) DataStart(n int) int {
	n += l.headerDigest()
	unit := (int(l.Align&MaxAlign) + 1) * 4
	return (n + unit - 1) / unit * unit
}

func (l Layout) headerDigest() int {
	if l.HeaderDigest {
		return DigestLen
	}
	return 0
}

// Trailer is the length of the digest behind n data bytes.
func (l Layout) Trailer(n int) int {
	if l.DataDigest && n > 0 {
		return DigestLen
	}
	return 0
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// CRC continues a CRC32C over b; start with 0.
func CRC(sum uint32, b []byte) uint32 { return crc32.Update(sum, castagnoli, b) }

// PutTrailer writes the digest of n data bytes whose CRC is sum, if data
// digests are on. It returns how many bytes of b it used: Trailer(n).
func (l Layout) PutTrailer(b []byte, n int, sum uint32) int {
	if l.Trailer(n) != 0 {
		put32(b, sum)
	}
	return l.Trailer(n)
}

// CheckTrailer verifies the digest: trailer is the Trailer(n) bytes behind n
// data bytes whose CRC is sum. The connection survives a mismatch, the command
// fails (3.3.1.1).
func (l Layout) CheckTrailer(trailer []byte, n int, sum uint32) error {
	if l.Trailer(n) != 0 && get32(trailer) != sum {
		return ErrDataDigest
	}
	return nil
}

// seal writes the common header of a PDU whose header is otherwise in b, then
// header digest and padding. It returns the bytes in front of n data bytes.
func (l Layout) seal(b []byte, t Type, flags byte, n int) int {
	h := int(headerLens[t])
	end, off := h+l.headerDigest(), 0
	if l.HeaderDigest {
		flags |= flagHeaderDigest
	}
	size := end
	if n > 0 {
		off = l.DataStart(h)
		size = off + n + l.Trailer(n)
		if l.DataDigest {
			flags |= flagDataDigest
		}
	}
	b[0], b[1], b[2], b[3] = byte(t), flags, byte(h), byte(off)
	put32(b[4:], uint32(size))
	if l.HeaderDigest {
		put32(b[h:], CRC(0, b[:h]))
	}
	if n == 0 {
		return end
	}
	clear(b[end:off])
	return off
}

// Header is what the common header says, checked against the layout.
type Header struct {
	Type Type
	// Len is the header's length without digest, bytes.
	Len int
	// DataOff is where the data begins; without data, where the PDU ends.
	DataOff int
	Data    int // bytes
	Size    int // of the whole PDU, bytes
}

// Parse reads the common header: the first CommonLen bytes of a PDU, or more.
// It refuses what does not fit the layout: the error is a *Fault for the
// terminate request.
func (l Layout) Parse(b []byte) (h Header, err error) {
	if len(b) < CommonLen {
		return h, fmt.Errorf("nvme/tcp: a PDU header of %d bytes, want %d", len(b), CommonLen)
	}
	h = Header{Type: Type(b[0]), Len: int(b[2])}
	size := get32(b[4:])
	switch {
	case int(b[0]) >= len(headerLens) || headerLens[b[0]] == 0:
		return h, field(0, "%v is unknown", h.Type)
	case b[2] != headerLens[b[0]]:
		return h, field(2, "%v: header length %d, want %d", h.Type, b[2], headerLens[b[0]])
	case size > MaxHeader+MaxData+DigestLen:
		return h, field(4, "%v of %d bytes is longer than anything asked for", h.Type, size)
	}
	h.Size = int(size)
	switch h.Type {
	case TypeICReq, TypeICResp:
		return h, h.bare(h.Len, h.Len)
	case TypeH2CTerm, TypeC2HTerm:
		return h, h.bare(h.Len, h.Len+MaxTermData)
	}
	return h, l.parseDigested(&h, b)
}

// bare is a PDU without digests and padding.
func (h *Header) bare(least, most int) error {
	if h.Size < least || h.Size > most {
		return field(4, "%v of %d bytes, want %d..%d", h.Type, h.Size, least, most)
	}
	h.DataOff, h.Data = h.Len, h.Size-h.Len
	return nil
}

func (l Layout) parseDigested(h *Header, b []byte) error {
	if on := b[1]&flagHeaderDigest != 0; on != l.HeaderDigest {
		return field(1, "%v: header digest flag %t, agreed on %t", h.Type, on, l.HeaderDigest)
	}
	end := h.Len + l.headerDigest()
	if h.Size == end && h.Type != TypeH2CData && h.Type != TypeC2HData {
		h.DataOff = end
		return nil
	}
	if h.Type == TypeCapsuleResp || h.Type == TypeR2T {
		return field(4, "%v of %d bytes, want %d", h.Type, h.Size, end)
	}
	h.DataOff = int(b[3])
	unit := (int(l.Align&MaxAlign) + 1) * 4
	if h.DataOff < end || h.DataOff%unit != 0 {
		return field(3, "%v: data at byte %d, want a multiple of %d from %d", h.Type, h.DataOff, unit, end)
	}
	if on := b[1]&flagDataDigest != 0; on != l.DataDigest {
		return field(1, "%v: data digest flag %t, agreed on %t", h.Type, on, l.DataDigest)
	}
	h.Data = h.Size - h.DataOff
	if l.DataDigest {
		h.Data -= DigestLen
	}
	if h.Data < 1 || h.Data > MaxData {
		return field(4, "%v of %d bytes has %d of data", h.Type, h.Size, h.Data)
	}
	return nil
}

// Open parses the PDU that b begins with and verifies its header digest. more
// is how many bytes have to be there before it can go on, counted from b's
// start; 0: the header is whole, and the data begins at b[h.DataOff].
func (l Layout) Open(b []byte) (h Header, more int, err error) {
	if len(b) < CommonLen {
		return h, CommonLen, nil
	}
	if h, err = l.Parse(b); err != nil {
		return h, 0, err
	}
	if len(b) < h.DataOff {
		return h, h.DataOff, nil
	}
	if l.HeaderDigest && h.Type >= TypeCapsuleCmd {
		if want := CRC(0, b[:h.Len]); get32(b[h.Len:]) != want {
			return h, 0, &Fault{Status: HeaderDigestError, Info: get32(b[h.Len:]), Text: h.Type.String() + ": header digest mismatch"}
		}
	}
	return h, 0, nil
}

// expect checks length and type of a header.
func expect(b []byte, t Type) error {
	if len(b) < int(headerLens[t]) {
		return fmt.Errorf("nvme/tcp: a header of %d bytes is too short for %v", len(b), t)
	}
	if Type(b[0]) != t {
		return &Fault{Status: SequenceError, Text: fmt.Sprintf("got %v, want %v", Type(b[0]), t)}
	}
	return nil
}

func put16(b []byte, v uint16) { binary.LittleEndian.PutUint16(b, v) }
func put32(b []byte, v uint32) { binary.LittleEndian.PutUint32(b, v) }
func get16(b []byte) uint16    { return binary.LittleEndian.Uint16(b) }
func get32(b []byte) uint32    { return binary.LittleEndian.Uint32(b) }
