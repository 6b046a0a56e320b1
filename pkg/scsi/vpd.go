package scsi

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Vital product data pages.
const (
	PageSupported       = 0x00
	PageSerial          = 0x80
	PageDeviceID        = 0x83
	PageBlockLimits     = 0xB0
	PageCharacteristics = 0xB1
	PageProvisioning    = 0xB2
)

// VPDLen is the length the page itself claims, header included, so that a
// caller can ask again with a larger allocation. b must hold 4 bytes, else 0.
func VPDLen(b []byte) int {
	if len(b) < 4 {
		return 0
	}
	return 4 + int(binary.BigEndian.Uint16(b[2:]))
}

// vpd checks the header and returns the page's body, as much as is there.
func vpd(b []byte, page byte) ([]byte, error) {
	if len(b) < 4 {
		return nil, fmt.Errorf("scsi: VPD page %02Xh: %d bytes, want at least 4", page, len(b))
	}
	if b[1] != page {
		return nil, fmt.Errorf("scsi: asked for VPD page %02Xh, got page %02Xh", page, b[1])
	}
	return b[4:min(len(b), VPDLen(b))], nil
}

func beginVPD(b []byte, page byte) []byte { return append(b, 0, page, 0, 0) }

// endVPD fills in the length of the page that began at b[at].
func endVPD(b []byte, at int) []byte {
	binary.BigEndian.PutUint16(b[at+2:], uint16(len(b)-at-4))
	return b
}

// ParseSupportedPages reads VPD page 00h; the result aliases b.
func ParseSupportedPages(b []byte) ([]byte, error) { return vpd(b, PageSupported) }

// AppendSupportedPages appends VPD page 00h.
func AppendSupportedPages(b []byte, pages ...byte) []byte {
	at := len(b)
	return endVPD(append(beginVPD(b, PageSupported), pages...), at)
}

// ParseSerial reads VPD page 80h, the unit serial number, trimmed.
func ParseSerial(b []byte) (string, error) {
	body, err := vpd(b, PageSerial)
	return text(body), err
}

// AppendSerial appends VPD page 80h.
func AppendSerial(b []byte, serial string) []byte {
	at := len(b)
	return endVPD(append(beginVPD(b, PageSerial), serial...), at)
}

// Designator associations (SPC-4 7.8.6.1).
const (
	OfLUN    = 0
	OfPort   = 1
	OfDevice = 2
)

// Designator types (SPC-4 7.8.6.1).
const (
	DesignT10Vendor    = 0x1
	DesignEUI64        = 0x2
	DesignNAA          = 0x3
	DesignRelativePort = 0x4
	DesignPortGroup    = 0x5
	DesignSCSIName     = 0x8
)

// Designator is one entry of VPD page 83h.
type Designator struct {
	CodeSet     byte // 1 binary, 2 ASCII, 3 UTF-8
	Association byte
	Type        byte
	ID          []byte // aliases the page it was parsed from
}

var errDesignator = errors.New("scsi: VPD page 83h: a designator runs past the end of the page")

// ParseDeviceID appends the designators of VPD page 83h to dst, at most
// MaxDesignators. A page that was cut by the allocation length is an error:
// an identity must be whole (I1).
func ParseDeviceID(dst []Designator, b []byte) ([]Designator, error) {
	body, err := vpd(b, PageDeviceID)
	if err != nil {
		return dst, err
	}
	if len(b) < VPDLen(b) {
		return dst, fmt.Errorf("scsi: VPD page 83h: %d of %d bytes", len(b), VPDLen(b))
	}
	for n := 0; len(body) > 0 && n < MaxDesignators; n++ {
		if len(body) < 4 || len(body) < 4+int(body[3]) {
			return dst, errDesignator
		}
		end := 4 + int(body[3])
		dst = append(dst, Designator{body[0] & 0x0f, body[1] >> 4 & 3, body[1] & 0x0f, body[4:end]})
		body = body[end:]
	}
	return dst, nil
}

// AppendDeviceID appends VPD page 83h. Each ID is at most 255 bytes. Port
// designators carry the iSCSI protocol identifier.
func AppendDeviceID(b []byte, ds ...Designator) []byte {
	at := len(b)
	b = beginVPD(b, PageDeviceID)
	for _, d := range ds {
		proto, piv := byte(0), byte(0)
		if d.Association != OfLUN {
			proto, piv = 0x50, 0x80
		}
		b = append(b, proto|d.CodeSet&0x0f, piv|d.Association&3<<4|d.Type&0x0f, 0, byte(len(d.ID)))
		b = append(b, d.ID...)
	}
	return endVPD(b, at)
}
