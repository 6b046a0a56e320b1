package nvme

import (
	"errors"
	"fmt"
)

// Log page identifiers (Base 5.1.12.1).
const (
	LogError             = 0x01
	LogChangedNamespaces = 0x04
	LogANA               = 0x0C
	LogDiscovery         = 0x70
	LogReservation       = 0x80
)

// LogRequest is Get Log Page.
type LogRequest struct {
	Page     uint8
	Specific uint8 // LSP: LogANA: 1 leaves the namespaces out
	Retain   bool  // RAE: the event stays masked
	Len      uint32
	Offset   uint64 // bytes, a multiple of 4
	NSID     uint32
}

// Command is the entry; Len is rounded up to dwords, at least one.
func (r LogRequest) Command() Command {
	e := command(AdminGetLog, r.NSID)
	n := uint32((max(uint64(r.Len), 1) + 3) / 4)
	e.SGL = ByTransport(n * 4)
	e.CDW10 = uint32(r.Page) | uint32(r.Specific&0x7F)<<8 | (n-1)<<16
	if r.Retain {
		e.CDW10 |= 1 << 15
	}
	e.CDW11 = (n - 1) >> 16
	e.CDW12, e.CDW13 = uint32(r.Offset), uint32(r.Offset>>32)
	return e
}

// ParseLogRequest reads Get Log Page. Len 0 means 2^32 bytes or more: refuse it.
func ParseLogRequest(e *Command) LogRequest {
	n := uint64(e.CDW10>>16|e.CDW11<<16) + 1
	r := LogRequest{Page: uint8(e.CDW10), Specific: uint8(e.CDW10 >> 8 & 0x7F), Retain: e.CDW10&(1<<15) != 0,
		Offset: uint64(e.CDW13)<<32 | uint64(e.CDW12), NSID: e.NSID}
	if n*4 < 1<<32 {
		r.Len = uint32(n * 4)
	}
	return r
}

// ParseChanged reads the changed-namespace log (Base 5.1.12.1.5) and appends
// the namespaces to dst. all says that there were more than the log can name.
func ParseChanged(dst []uint32, b []byte) (ids []uint32, all bool) {
	for i := 0; len(b) >= 4 && i < MaxListed; i, b = i+1, b[4:] {
		v := le.Uint32(b)
		if v == AllNamespaces {
			return dst, true
		}
		if v == 0 {
			break
		}
		dst = append(dst, v)
	}
	return dst, false
}

// AppendChanged appends the log, IdentifyLen bytes; more than MaxListed
// namespaces become "too many".
func AppendChanged(b []byte, ids ...uint32) []byte {
	if len(ids) > MaxListed {
		ids = []uint32{AllNamespaces}
	}
	return appendList(b, ids)
}

func appendList(b []byte, ids []uint32) []byte {
	at := len(b)
	b = append(b, make([]byte, IdentifyLen)...)
	for i, id := range ids {
		le.PutUint32(b[at+4*i:], id)
	}
	return b
}

// ErrorEntry is one entry of the error log (Base 5.1.12.1.2).
type ErrorEntry struct {
	Count    uint64 // 0: the entry is empty
	SQID     uint16
	CID      uint16
	Status   Status
	Location uint16 // of the parameter at fault: byte 7:0, bit 10:8
	LBA      uint64
	NSID     uint32
}

// ErrorEntryLen is one entry on the wire, bytes.
const ErrorEntryLen = 64

// ParseErrors reads the error log and appends its entries to dst, newest
// first, up to the first empty one.
func ParseErrors(dst []ErrorEntry, b []byte) []ErrorEntry {
	for i := 0; len(b) >= ErrorEntryLen && i < MaxErrors; i, b = i+1, b[ErrorEntryLen:] {
		e := ErrorEntry{le.Uint64(b), le.Uint16(b[8:]), le.Uint16(b[10:]), Status(le.Uint16(b[12:]) >> 1),
			le.Uint16(b[14:]), le.Uint64(b[16:]), le.Uint32(b[24:])}
		if e.Count == 0 {
			break
		}
		dst = append(dst, e)
	}
	return dst
}

// Append appends the entry, ErrorEntryLen bytes.
func (e *ErrorEntry) Append(b []byte) []byte {
	at := len(b)
	b = append(b, make([]byte, ErrorEntryLen)...)
	f := b[at:]
	le.PutUint64(f, e.Count)
	le.PutUint16(f[8:], e.SQID)
	le.PutUint16(f[10:], e.CID)
	le.PutUint16(f[12:], uint16(e.Status)<<1)
	le.PutUint16(f[14:], e.Location)
	le.PutUint64(f[16:], e.LBA)
	le.PutUint32(f[24:], e.NSID)
	return b
}

// ReservationNotice is the reservation notification log (NVM 4.1.4.4).
type ReservationNotice struct {
	Count     uint64 // 0: no notification
	Kind      uint8  // 1 registration preempted, 2 released, 3 preempted
	Available uint8  // further ones
	NSID      uint32
}

// ReservationNoticeLen is the log's length, bytes.
const ReservationNoticeLen = 64

// ParseReservationNotice reads it.
func ParseReservationNotice(b []byte) (n ReservationNotice, err error) {
	if len(b) < ReservationNoticeLen {
		return n, errors.New("nvme: the reservation notification log is cut short")
	}
	return ReservationNotice{le.Uint64(b), b[8], b[9], le.Uint32(b[12:])}, nil
}

// Append appends the log.
func (n *ReservationNotice) Append(b []byte) []byte {
	at := len(b)
	b = append(b, make([]byte, ReservationNoticeLen)...)
	le.PutUint64(b[at:], n.Count)
	b[at+8], b[at+9] = n.Kind, n.Available
	le.PutUint32(b[at+12:], n.NSID)
	return b
}

func cut(what string, have, want int) error {
	return fmt.Errorf("nvme: %s is cut short: %d bytes, want %d", what, have, want)
}
