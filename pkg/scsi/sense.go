package scsi

import (
	"encoding/binary"
	"fmt"
)

// Status codes (SAM-5 5.3.1).
const (
	StatusGood                = 0x00
	StatusCheckCondition      = 0x02
	StatusConditionMet        = 0x04
	StatusBusy                = 0x08
	StatusReservationConflict = 0x18
	StatusTaskSetFull         = 0x28
	StatusACAActive           = 0x30
	StatusTaskAborted         = 0x40
)

// Sense keys (SPC-4 4.5.6).
const (
	KeyNoSense        = 0x0
	KeyRecovered      = 0x1
	KeyNotReady       = 0x2
	KeyMedium         = 0x3
	KeyHardware       = 0x4
	KeyIllegalRequest = 0x5
	KeyUnitAttention  = 0x6
	KeyDataProtect    = 0x7
	KeyBlankCheck     = 0x8
	KeyVendor         = 0x9
	KeyCopyAborted    = 0xA
	KeyAborted        = 0xB
	KeyVolumeOverflow = 0xD
	KeyMiscompare     = 0xE
	KeyCompleted      = 0xF
)

// Sense is what sense data says. A comparable value.
type Sense struct {
	Key, ASC, ASCQ byte
	// Deferred: the error belongs to an earlier command, not to the one that
	// carried it (response codes 71h, 73h).
	Deferred bool
	// HasInfo and Info: the INFORMATION field, usually the first failing LBA.
	HasInfo bool
	Info    uint64
}

// String prints key/ASC/ASCQ as manuals write them.
func (s Sense) String() string {
	d := ""
	if s.Deferred {
		d = " (deferred)"
	}
	return fmt.Sprintf("%Xh/%02Xh/%02Xh%s", s.Key, s.ASC, s.ASCQ, d)
}

// ParseSense reads fixed (70h, 71h) or descriptor (72h, 73h) sense data of any
// length. Fields that are not there are zero; ok is false when there is no
// sense key at all.
func ParseSense(b []byte) (s Sense, ok bool) {
	if len(b) > MaxSense {
		b = b[:MaxSense]
	}
	if len(b) == 0 {
		return s, false
	}
	switch b[0] & 0x7f {
	case 0x70, 0x71:
		return parseFixed(b)
	case 0x72, 0x73:
		return parseDescriptor(b)
	}
	return s, false
}

func parseFixed(b []byte) (s Sense, ok bool) {
	if len(b) < 3 {
		return s, false
	}
	s.Deferred, s.Key = b[0]&1 != 0, b[2]&0x0f
	if len(b) >= 7 && b[0]&0x80 != 0 {
		s.HasInfo, s.Info = true, uint64(binary.BigEndian.Uint32(b[3:]))
	}
	if len(b) >= 8 {
		b = b[:min(len(b), 8+int(b[7]))]
	}
	if len(b) > 12 {
		s.ASC = b[12]
	}
	if len(b) > 13 {
		s.ASCQ = b[13]
	}
	return s, true
}

func parseDescriptor(b []byte) (s Sense, ok bool) {
	if len(b) < 2 {
		return s, false
	}
	s.Deferred, s.Key = b[0]&1 != 0, b[1]&0x0f
	if len(b) > 2 {
		s.ASC = b[2]
	}
	if len(b) > 3 {
		s.ASCQ = b[3]
	}
	if len(b) < 8 {
		return s, true
	}
	b = b[:min(len(b), 8+int(b[7]))]
	for d := b[8:]; len(d) >= 2 && len(d) >= 2+int(d[1]); d = d[2+int(d[1]):] {
		if d[0] == 0 && d[1] == 10 && d[2]&0x80 != 0 {
			s.HasInfo, s.Info = true, binary.BigEndian.Uint64(d[4:])
		}
	}
	return s, true
}

// AppendFixed appends SenseLen bytes of fixed-format sense data. An Info that
// does not fit in 32 bits is left out, as SPC-4 4.5.3 says.
func (s Sense) AppendFixed(b []byte) []byte {
	var f [SenseLen]byte
	f[0] = 0x70
	if s.Deferred {
		f[0] = 0x71
	}
	if s.HasInfo && s.Info <= 0xffffffff {
		f[0] |= 0x80
		binary.BigEndian.PutUint32(f[3:], uint32(s.Info))
	}
	f[2], f[7], f[12], f[13] = s.Key&0x0f, SenseLen-8, s.ASC, s.ASCQ
	return append(b, f[:]...)
}

// AppendDescriptor appends descriptor-format sense data, 8 or 20 bytes.
func (s Sense) AppendDescriptor(b []byte) []byte {
	code := byte(0x72)
	if s.Deferred {
		code = 0x73
	}
	if !s.HasInfo {
		return append(b, code, s.Key&0x0f, s.ASC, s.ASCQ, 0, 0, 0, 0)
	}
	b = append(b, code, s.Key&0x0f, s.ASC, s.ASCQ, 0, 0, 0, 12, 0, 10, 0x80, 0)
	return binary.BigEndian.AppendUint64(b, s.Info)
}
