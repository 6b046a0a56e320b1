package scsi

import (
	"errors"
	"strings"
)

// Inquiry is standard INQUIRY data (SPC-4 6.6.2).
type Inquiry struct {
	// Qualifier: 0 connected, 1 not connected, 3 no such unit.
	Qualifier byte
	// DeviceType: 0 disk, 0x1f unknown.
	DeviceType byte
	Version    byte
	// TPGS: bit 0 implicit, bit 1 explicit asymmetric access.
	TPGS     byte
	CmdQueue bool
	// Vendor (8), Product (16) and Revision (4 characters), trimmed.
	Vendor, Product, Revision string
}

var errInquiry = errors.New("scsi: standard INQUIRY data is shorter than 36 bytes")

// Present reports whether the logical unit is there and is a disk.
func (i *Inquiry) Present() bool { return i.Qualifier == 0 && i.DeviceType == 0 }

// ParseInquiry reads standard INQUIRY data of at least 36 bytes.
func ParseInquiry(b []byte) (i Inquiry, err error) {
	if len(b) < 36 {
		return i, errInquiry
	}
	return Inquiry{
		Qualifier: b[0] >> 5, DeviceType: b[0] & 0x1f, Version: b[2],
		TPGS: b[5] >> 4 & 3, CmdQueue: b[7]&2 != 0,
		Vendor: text(b[8:16]), Product: text(b[16:32]), Revision: text(b[32:36]),
	}, nil
}

// Append appends 96 bytes of standard INQUIRY data that claims SAM-5, SPC-4,
// SBC-3 and iSCSI.
func (i *Inquiry) Append(b []byte) []byte {
	f := make([]byte, 96)
	f[0] = i.Qualifier<<5 | i.DeviceType&0x1f
	f[2], f[3], f[4] = i.Version, 0x12, 96-5 // HISUP, response format 2
	f[5] = i.TPGS & 3 << 4
	if i.CmdQueue {
		f[7] = 2
	}
	pad(f[8:16], i.Vendor)
	pad(f[16:32], i.Product)
	pad(f[32:36], i.Revision)
	// Version descriptors: SAM-5, iSCSI, SPC-4, SBC-3 (no version claimed).
	copy(f[58:], []byte{0x00, 0xA0, 0x09, 0x60, 0x04, 0x60, 0x04, 0xC0})
	return append(b, f...)
}

// text reads a space-padded ASCII field; bytes outside printable ASCII become '?'.
func text(b []byte) string {
	s := strings.Map(func(r rune) rune {
		if r < 0x20 || r > 0x7e {
			return '?'
		}
		return r
	}, strings.Trim(string(b), "\x00 "))
	return strings.TrimSpace(s)
}

func pad(f []byte, s string) {
	n := copy(f, s)
	for i := n; i < len(f); i++ {
		f[i] = ' '
	}
}
