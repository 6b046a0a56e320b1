package scsi

import (
	"encoding/binary"
	"errors"
)

// ReserveType is the type of a persistent reservation (SPC-4 6.15.3).
type ReserveType uint8

// The types.
const (
	WriteExclusive                ReserveType = 0x1
	ExclusiveAccess               ReserveType = 0x3
	WriteExclusiveRegistrantsOnly ReserveType = 0x5
	ExclusiveRegistrantsOnly      ReserveType = 0x6
	WriteExclusiveAllRegistrants  ReserveType = 0x7
	ExclusiveAllRegistrants       ReserveType = 0x8
)

// ReserveParamLen is the length of a PERSISTENT RESERVE OUT parameter list, bytes.
const ReserveParamLen = 24

// PutReserveParam writes a basic parameter list to b[:ReserveParamLen]. key is
// the registered key, action the service action key; aptpl asks to persist
// through power loss.
func PutReserveParam(b []byte, key, action uint64, aptpl bool) {
	b = b[:ReserveParamLen]
	clear(b)
	binary.BigEndian.PutUint64(b, key)
	binary.BigEndian.PutUint64(b[8:], action)
	if aptpl {
		b[20] = 1
	}
}

var errReserve = errors.New("scsi: PERSISTENT RESERVE data is cut short")

// ParseReserveParam reads a basic parameter list.
func ParseReserveParam(b []byte) (key, action uint64, aptpl bool, err error) {
	if len(b) < ReserveParamLen {
		return 0, 0, false, errReserve
	}
	return binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:]), b[20]&1 != 0, nil
}

// ParseKeys reads READ KEYS data: the generation and, appended to dst, as many
// keys as are both claimed and there, at most MaxKeys.
func ParseKeys(dst []uint64, b []byte) (gen uint32, keys []uint64, err error) {
	if len(b) < 8 {
		return 0, dst, errReserve
	}
	n := min(int(binary.BigEndian.Uint32(b[4:])), len(b)-8, MaxKeys*8) / 8
	for i := range n {
		dst = append(dst, binary.BigEndian.Uint64(b[8+8*i:]))
	}
	return binary.BigEndian.Uint32(b), dst, nil
}

// Reservation is READ RESERVATION data.
type Reservation struct {
	Generation uint32
	Held       bool
	Key        uint64
	Type       ReserveType
}

// ParseReservation reads READ RESERVATION data.
func ParseReservation(b []byte) (r Reservation, err error) {
	if len(b) < 8 {
		return r, errReserve
	}
	r.Generation = binary.BigEndian.Uint32(b)
	if binary.BigEndian.Uint32(b[4:]) < 16 {
		return r, nil
	}
	if len(b) < 24 {
		return r, errReserve
	}
	r.Held, r.Key, r.Type = true, binary.BigEndian.Uint64(b[8:]), ReserveType(b[21]&0x0f)
	return r, nil
}
