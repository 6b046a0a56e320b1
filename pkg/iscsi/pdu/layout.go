package pdu

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// ErrShort says that fewer than HeaderLen bytes were given.
var ErrShort = errors.New("iscsi pdu: header shorter than 48 bytes")

// Layout says which digests a connection uses (RFC 7143 13.1).
type Layout struct {
	HeaderDigest, DataDigest bool
}

// Op returns the opcode of a header and whether it is marked immediate. The
// header must be HeaderLen bytes.
func Op(h []byte) (op Opcode, immediate bool) {
	return Opcode(h[0] & 0x3f), h[0]&bitImmed != 0
}

// ITT returns the Initiator Task Tag of a header.
func ITT(h []byte) uint32 { return binary.BigEndian.Uint32(h[16:]) }

// LUN returns bytes 8-15 of a header as they are: the LUN where there is one.
func LUN(h []byte) uint64 { return binary.BigEndian.Uint64(h[8:]) }

// AHSLen is the length of the additional header segments, bytes.
func AHSLen(h []byte) int { return int(h[4]) * 4 }

// DataLen is the DataSegmentLength, bytes, without padding.
func DataLen(h []byte) int { return int(h[5])<<16 | int(h[6])<<8 | int(h[7]) }

// Pad is how many bytes follow n data bytes to fill a 4-byte word.
func Pad(n int) int { return -n & 3 }

// DataStart is the offset of the data segment from the start of a PDU whose
// additional headers take ahs bytes.
func (l Layout) DataStart(ahs int) int {
	n := HeaderLen + ahs
	if l.HeaderDigest {
		n += DigestLen
	}
	return n
}

// Trailer is the length of padding and data digest behind n data bytes.
func (l Layout) Trailer(n int) int {
	t := Pad(n)
	if l.DataDigest && n > 0 {
		t += DigestLen
	}
	return t
}

// Size is the whole length on the wire of the PDU with header h.
func (l Layout) Size(h []byte) int {
	n := DataLen(h)
	return l.DataStart(AHSLen(h)) + n + l.Trailer(n)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// CRC continues a CRC32C over b; start with 0.
func CRC(sum uint32, b []byte) uint32 { return crc32.Update(sum, castagnoli, b) }

var zeros [3]byte

// PutTrailer writes padding and, if data digests are on, the digest for n data
// bytes whose CRC is sum. It returns how many bytes of b it used: Trailer(n).
func (l Layout) PutTrailer(b []byte, n int, sum uint32) int {
	pad := Pad(n)
	copy(b[:pad], zeros[:])
	if !l.DataDigest || n == 0 {
		return pad
	}
	binary.LittleEndian.PutUint32(b[pad:], CRC(sum, zeros[:pad]))
	return pad + DigestLen
}

// PutHeaderDigest writes the digest behind the header h, if header digests
// are on, and returns its length. No additional header segments are sent.
func (l Layout) PutHeaderDigest(h []byte) int {
	if !l.HeaderDigest {
		return 0
	}
	binary.LittleEndian.PutUint32(h[HeaderLen:], CRC(0, h[:HeaderLen]))
	return DigestLen
}

// ErrHeaderDigest and ErrDataDigest say that a digest does not match.
var (
	ErrHeaderDigest = errors.New("iscsi pdu: header digest mismatch")
	ErrDataDigest   = errors.New("iscsi pdu: data digest mismatch")
)

// CheckHeader verifies the header digest, if on, of a PDU whose first
// DataStart bytes are b.
func (l Layout) CheckHeader(b []byte) error {
	if !l.HeaderDigest {
		return nil
	}
	n := HeaderLen + AHSLen(b)
	if binary.LittleEndian.Uint32(b[n:]) != CRC(0, b[:n]) {
		return ErrHeaderDigest
	}
	return nil
}

// CheckTrailer verifies padding's digest: trailer is the Trailer(n) bytes
// behind n data bytes whose CRC is sum.
func (l Layout) CheckTrailer(trailer []byte, n int, sum uint32) error {
	if !l.DataDigest || n == 0 {
		return nil
	}
	pad := Pad(n)
	if binary.LittleEndian.Uint32(trailer[pad:]) != CRC(sum, trailer[:pad]) {
		return ErrDataDigest
	}
	return nil
}

// start zeroes a header and writes what all PDUs share.
func start(b []byte, op Opcode, flags byte, dataLen int) []byte {
	b = b[:HeaderLen:HeaderLen]
	clear(b)
	b[0], b[1] = byte(op), flags
	b[5], b[6], b[7] = byte(dataLen>>16), byte(dataLen>>8), byte(dataLen)
	return b
}

// expect checks length and opcode of a header.
func expect(b []byte, op Opcode) error {
	if len(b) < HeaderLen {
		return ErrShort
	}
	if got, _ := Op(b); got != op {
		return fmt.Errorf("iscsi pdu: got %v, want %v", got, op)
	}
	return nil
}

func flag(on bool, bit byte) byte {
	if on {
		return bit
	}
	return 0
}

func put32(b []byte, v uint32) { binary.BigEndian.PutUint32(b, v) }
func get32(b []byte) uint32    { return binary.BigEndian.Uint32(b) }

// Window is what every PDU from a target says about sequence numbers
// (RFC 7143 4.2.2): bytes 24-35.
type Window struct {
	StatSN, ExpCmdSN, MaxCmdSN uint32
}

func (w Window) put(b []byte) {
	put32(b[24:], w.StatSN)
	put32(b[28:], w.ExpCmdSN)
	put32(b[32:], w.MaxCmdSN)
}

// GetWindow reads the sequence numbers of a PDU from a target.
func GetWindow(h []byte) Window {
	return Window{get32(h[24:]), get32(h[28:]), get32(h[32:])}
}

// SNLess is serial number comparison of 32 bits (RFC 1982): a comes before b.
func SNLess(a, b uint32) bool { return int32(a-b) < 0 }
