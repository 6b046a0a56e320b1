package pdu

import (
	"errors"
	"fmt"
)

// ErrDataDigest says that the digest of a PDU's data does not match.
var ErrDataDigest = errors.New("nvme/tcp: data digest mismatch")

// Fault is a fatal transport error: what a terminate request says (3.6.2.4).
type Fault struct {
	Status uint16 // FES
	Info   uint32 // FEI: the offset of the field at fault, or the digest received
	Text   string
}

// Fatal error status (FES).
const (
	InvalidField         = 0x01
	SequenceError        = 0x02
	HeaderDigestError    = 0x03
	OutOfRange           = 0x04 // data transfer out of range
	TransferLimit        = 0x05 // R2T or data limit exceeded
	UnsupportedParameter = 0x06
)

// Error says what was wrong.
func (f *Fault) Error() string {
	if f.Text == "" {
		return "nvme/tcp: " + faultName(f.Status)
	}
	return "nvme/tcp: " + f.Text
}

func faultName(s uint16) string {
	switch s {
	case InvalidField:
		return "invalid PDU header field"
	case SequenceError:
		return "PDU sequence error"
	case HeaderDigestError:
		return "header digest error"
	case OutOfRange:
		return "data transfer out of range"
	case TransferLimit:
		return "data transfer limit exceeded"
	case UnsupportedParameter:
		return "unsupported parameter"
	}
	return fmt.Sprintf("fatal error status %02Xh", s)
}

// field is an invalid header field at byte off.
func field(off uint32, format string, args ...any) *Fault {
	return &Fault{Status: InvalidField, Info: off, Text: fmt.Sprintf(format, args...)}
}

// TermReq ends a connection and says why (3.6.2.4, 3.6.2.5).
type TermReq struct {
	FromController bool
	Status         uint16
	Info           uint32
	Offender       []byte // the start of the PDU at fault, at most MaxTermData bytes are sent
}

// Append appends the whole PDU.
func (p *TermReq) Append(b []byte) []byte {
	t := TypeH2CTerm
	if p.FromController {
		t = TypeC2HTerm
	}
	data := p.Offender[:min(len(p.Offender), MaxTermData)]
	var h [HeaderLen]byte
	h[0], h[2] = byte(t), HeaderLen
	put32(h[4:], uint32(HeaderLen+len(data)))
	put16(h[8:], p.Status)
	put32(h[10:], p.Info)
	return append(append(b, h[:]...), data...)
}

// Decode reads the whole PDU; Offender is part of b.
func (p *TermReq) Decode(b []byte) error {
	h, more, err := Layout{}.Open(b)
	switch {
	case err != nil:
		return err
	case more > 0 || len(b) < h.Size:
		return fmt.Errorf("nvme/tcp: a terminate request of %d bytes is cut short", len(b))
	case h.Type != TypeH2CTerm && h.Type != TypeC2HTerm:
		return &Fault{Status: SequenceError, Text: fmt.Sprintf("got %v, want a terminate request", h.Type)}
	}
	*p = TermReq{h.Type == TypeC2HTerm, get16(b[8:]), get32(b[10:]), b[HeaderLen:h.Size]}
	return nil
}

// Fault is what the request says, as an error.
func (p *TermReq) Fault() *Fault {
	who := "the host"
	if p.FromController {
		who = "the controller"
	}
	return &Fault{p.Status, p.Info, fmt.Sprintf("%s ended the connection: %s at %d", who, faultName(p.Status), p.Info)}
}
