package scsi

import (
	"encoding/binary"
	"errors"
	"fmt"
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

// ErrConflict is status RESERVATION CONFLICT as an error: the same on every path.
var ErrConflict = errors.New("reservation conflict")

// ErrNoReservations: the unit knows no persistent reservations.
var ErrNoReservations = errors.New("the unit has no persistent reservations")

// ReservationLen is the length of READ RESERVATION data, bytes.
const ReservationLen = 24

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

// AppendKeys appends READ KEYS data.
func AppendKeys(b []byte, gen uint32, keys ...uint64) []byte {
	b = binary.BigEndian.AppendUint32(b, gen)
	b = binary.BigEndian.AppendUint32(b, uint32(8*len(keys)))
	for _, k := range keys {
		b = binary.BigEndian.AppendUint64(b, k)
	}
	return b
}

// Append appends READ RESERVATION data.
func (r *Reservation) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, r.Generation)
	if !r.Held {
		return append(b, 0, 0, 0, 0)
	}
	b = append(b, 0, 0, 0, 16)
	b = binary.BigEndian.AppendUint64(b, r.Key)
	return append(b, 0, 0, 0, 0, 0, byte(r.Type), 0, 0)
}

// AppendFullStatus appends one descriptor of READ FULL STATUS data (SPC-4
// 6.15.5) for an iSCSI initiator port. r.Held: that port holds the reservation.
func AppendFullStatus(b []byte, r Reservation, port uint16, initiator string, isid [6]byte) []byte {
	id := fmt.Appendf(nil, "%s,i,0x%x", initiator, isid)
	for id = append(id, 0); len(id) < 20 || len(id)%4 != 0; {
		id = append(id, 0)
	}
	b = binary.BigEndian.AppendUint64(b, r.Key)
	b = append(b, 0, 0, 0, 0)
	if r.Held {
		b = append(b, 1, byte(r.Type))
	} else {
		b = append(b, 0, 0)
	}
	b = append(b, 0, 0, 0, 0, byte(port>>8), byte(port))
	b = binary.BigEndian.AppendUint32(b, uint32(4+len(id)))
	b = append(b, 0x45, 0, byte(len(id)>>8), byte(len(id))) // format 01b, iSCSI
	return append(b, id...)
}

// Valid reports whether t is a type SPC-4 knows.
func (t ReserveType) Valid() bool {
	switch t {
	case WriteExclusive, ExclusiveAccess, WriteExclusiveRegistrantsOnly, ExclusiveRegistrantsOnly,
		WriteExclusiveAllRegistrants, ExclusiveAllRegistrants:
		return true
	}
	return false
}

// AllRegistrants reports whether every registrant holds the reservation.
func (t ReserveType) AllRegistrants() bool {
	return t == WriteExclusiveAllRegistrants || t == ExclusiveAllRegistrants
}

// Registrants reports whether registrants may write.
func (t ReserveType) Registrants() bool {
	return t == WriteExclusiveRegistrantsOnly || t == ExclusiveRegistrantsOnly || t.AllRegistrants()
}

// ReadsConflict reports whether those shut out may not read either.
func (t ReserveType) ReadsConflict() bool {
	return t == ExclusiveAccess || t == ExclusiveRegistrantsOnly || t == ExclusiveAllRegistrants
}
