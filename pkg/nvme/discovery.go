package nvme

import (
	"fmt"
	"strings"
)

// DiscoveryNQN is the well-known name of discovery subsystems.
const DiscoveryNQN = "nqn.2014-08.org.nvmexpress.discovery"

// Values of discovery records (Base 5.1.12.2.1).
const (
	TransportRDMA  = 1
	TransportFC    = 2
	TransportTCP   = 3
	TransportLocal = 254

	FamilyIPv4 = 1
	FamilyIPv6 = 2

	SubtypeReferral  = 1 // another discovery subsystem
	SubtypeNVM       = 2
	SubtypeDiscovery = 3 // the discovery subsystem itself

	// SecureRequired and SecureNotRequired are TREQ bits 1:0.
	SecureRequired    = 1
	SecureNotRequired = 2
	// NoFlowControl is TREQ bit 2: queues without flow control are to be had.
	NoFlowControl = 4

	// SecurityNone and SecurityTLS13 are SECTYPE of TCP records.
	SecurityNone  = 0
	SecurityTLS13 = 2

	// FlagDuplicateInfo: records reached by other ports say the same (EFLAGS).
	FlagDuplicateInfo = 1 << 0
	// FlagExplicitPersistent: the discovery controller can be kept.
	FlagExplicitPersistent = 1 << 1
)

// Record is one entry of the discovery log.
type Record struct {
	Transport, Family, Subtype uint8
	Requirements               uint8 // TREQ
	PortID                     uint16
	ControllerID               uint16 // AnyController: dynamic
	AdminQueue                 uint16 // ASQSZ: most entries of the admin queue
	Flags                      uint16
	Service                    string // TRSVCID, trimmed
	Subsystem                  string // NQN
	Address                    string // TRADDR, trimmed
	Security                   uint8  // SECTYPE, TCP only
}

// DiscoveryHeader is the first part of the log: a change of Generation
// between two reads means that what lies between them may be torn.
type DiscoveryHeader struct {
	Generation uint64
	Records    uint64
}

// Header and record of the discovery log on the wire, bytes.
const (
	DiscoveryHeaderLen = 1024
	RecordLen          = 1024
)

// ParseDiscoveryHeader reads it; 18 bytes are enough. It refuses more than
// MaxRecords and record formats other than 0.
func ParseDiscoveryHeader(b []byte) (h DiscoveryHeader, err error) {
	if len(b) < 18 {
		return h, cut("the discovery log", len(b), 18)
	}
	h = DiscoveryHeader{le.Uint64(b), le.Uint64(b[8:])}
	if f := le.Uint16(b[16:]); f != 0 {
		return h, fmt.Errorf("nvme: discovery log of record format %d, want 0", f)
	}
	if h.Records > MaxRecords {
		return h, fmt.Errorf("nvme: the discovery log claims %d records, more than %d", h.Records, MaxRecords)
	}
	return h, nil
}

// Append appends the header, DiscoveryHeaderLen bytes.
func (h DiscoveryHeader) Append(b []byte) []byte {
	at := len(b)
	b = append(b, make([]byte, DiscoveryHeaderLen)...)
	le.PutUint64(b[at:], h.Generation)
	le.PutUint64(b[at+8:], h.Records)
	return b
}

// ParseRecords reads whole records and appends them to dst, at most
// MaxRecords together. Those of transports other than TCP are there too.
func ParseRecords(dst []Record, b []byte) []Record {
	for ; len(b) >= RecordLen && len(dst) < MaxRecords; b = b[RecordLen:] {
		dst = append(dst, Record{b[0], b[1], b[2], b[3], le.Uint16(b[4:]), le.Uint16(b[6:]), le.Uint16(b[8:]),
			le.Uint16(b[10:]), text(b[32:64]), text(b[256 : 256+MaxNQN]), text(b[512:768]), b[768]})
	}
	return dst
}

// Append appends the record, RecordLen bytes. Text that does not fit is cut.
func (r *Record) Append(b []byte) []byte {
	at := len(b)
	b = append(b, make([]byte, RecordLen)...)
	f := b[at:]
	f[0], f[1], f[2], f[3] = r.Transport, r.Family, r.Subtype, r.Requirements
	le.PutUint16(f[4:], r.PortID)
	le.PutUint16(f[6:], r.ControllerID)
	le.PutUint16(f[8:], r.AdminQueue)
	le.PutUint16(f[10:], r.Flags)
	putText(f[32:64], r.Service)
	copy(f[256:256+MaxNQN], r.Subsystem) // ends with a zero
	putText(f[512:768], r.Address)
	f[768] = r.Security
	return b
}

// text reads an ASCII field: it ends at a zero, and is padded with spaces
// (B-21). What cannot be printed becomes a question mark.
func text(f []byte) string {
	s, _, _ := strings.Cut(string(f), "\x00")
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, strings.Trim(s, " "))
}

// putText writes an ASCII field padded with spaces.
func putText(f []byte, s string) {
	for i := copy(f, s); i < len(f); i++ {
		f[i] = ' '
	}
}
