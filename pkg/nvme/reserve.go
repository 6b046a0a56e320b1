package nvme

import "fmt"

// ReserveType is the type of a reservation (NVM 4.3.1.2).
type ReserveType uint8

// The types.
const (
	NoReservation                 ReserveType = 0
	WriteExclusive                ReserveType = 1
	ExclusiveAccess               ReserveType = 2
	WriteExclusiveRegistrantsOnly ReserveType = 3
	ExclusiveRegistrantsOnly      ReserveType = 4
	WriteExclusiveAllRegistrants  ReserveType = 5
	ExclusiveAllRegistrants       ReserveType = 6
)

// Valid reports whether t is a type that the command set knows.
func (t ReserveType) Valid() bool { return t >= WriteExclusive && t <= ExclusiveAllRegistrants }

// AllRegistrants reports whether every registrant holds the reservation.
func (t ReserveType) AllRegistrants() bool {
	return t == WriteExclusiveAllRegistrants || t == ExclusiveAllRegistrants
}

// Registrants reports whether registrants may write.
func (t ReserveType) Registrants() bool {
	return t >= WriteExclusiveRegistrantsOnly && t <= ExclusiveAllRegistrants
}

// ReadsConflict reports whether those shut out may not read either.
func (t ReserveType) ReadsConflict() bool {
	return t == ExclusiveAccess || t == ExclusiveRegistrantsOnly || t == ExclusiveAllRegistrants
}

// Actions of the reservation commands.
const (
	ActionRegister   = 0 // of OpReserveRegister
	ActionUnregister = 1
	ActionReplace    = 2

	ActionAcquire      = 0 // of OpReserveAcquire
	ActionPreempt      = 1
	ActionPreemptAbort = 2

	ActionRelease = 0 // of OpReserveRelease
	ActionClear   = 1
)

// Persistence through power loss (CPTPL of Reservation Register).
const (
	PersistKeep = 0
	PersistOff  = 2
	PersistOn   = 3
)

// ReserveKeysLen is the data of Register and Acquire, bytes; Release has the first half.
const ReserveKeysLen = 16

// ReserveCommand is a decoded Reservation Register, Acquire or Release.
type ReserveCommand struct {
	Op      Opcode
	Action  uint8
	Ignore  bool        // IEKEY: the current key is not checked
	Type    ReserveType // Acquire, Release
	Persist uint8       // Register
}

// Command is the entry; its data is that of AppendKeys. The caller sets SGL.
func (r ReserveCommand) Command(nsid uint32) Command {
	e := command(r.Op, nsid)
	e.CDW10 = uint32(r.Action & 7)
	if r.Ignore {
		e.CDW10 |= 1 << 3
	}
	if r.Op == OpReserveRegister {
		e.CDW10 |= uint32(r.Persist&3) << 30
	} else {
		e.CDW10 |= uint32(r.Type) << 8
	}
	return e
}

// KeysLen is the length of the command's data, bytes.
func (r ReserveCommand) KeysLen() int {
	if r.Op == OpReserveRelease {
		return ReserveKeysLen / 2
	}
	return ReserveKeysLen
}

// AppendKeys appends the command's data: the current key, and the new
// (Register) or preempted (Acquire) one.
func (r ReserveCommand) AppendKeys(b []byte, current, other uint64) []byte {
	b = le.AppendUint64(b, current)
	if r.Op != OpReserveRelease {
		b = le.AppendUint64(b, other)
	}
	return b
}

// ParseReserve reads Register, Acquire or Release; what is reserved is refused.
func ParseReserve(e *Command) (ReserveCommand, Status) {
	r := ReserveCommand{Op: e.Opcode, Action: uint8(e.CDW10 & 7), Ignore: e.CDW10&8 != 0}
	most := uint8(ActionPreemptAbort)
	switch e.Opcode {
	case OpReserveRegister:
		r.Persist = uint8(e.CDW10 >> 30)
	case OpReserveRelease:
		most = ActionClear
		fallthrough
	default:
		r.Type = ReserveType(e.CDW10 >> 8)
	}
	needsType := e.Opcode == OpReserveAcquire || e.Opcode == OpReserveRelease && r.Action == ActionRelease
	if r.Action > most || r.Persist == 1 || needsType && !r.Type.Valid() {
		return r, InvalidField.Final()
	}
	return r, Success
}

// ParseKeys reads the data of such a command.
func (r ReserveCommand) ParseKeys(b []byte) (current, other uint64, err error) {
	if len(b) < r.KeysLen() {
		return 0, 0, cut("reservation data", len(b), r.KeysLen())
	}
	if r.Op != OpReserveRelease {
		other = le.Uint64(b[8:])
	}
	return le.Uint64(b), other, nil
}

// ReserveReport is Reservation Report for up to n bytes, a multiple of 4.
// extended asks for 128-bit host identifiers, which hosts that Connect with
// one must (B-23).
func ReserveReport(nsid uint32, n uint32, extended bool) Command {
	e := command(OpReserveReport, nsid)
	e.SGL = ByTransport(n)
	e.CDW10 = n/4 - 1
	if extended {
		e.CDW11 = 1
	}
	return e
}

// ReportLen and ReportExtended are what a Reservation Report asks for. 0 means
// 2^32 bytes or more: refuse it.
func (c *Command) ReportLen() uint32 {
	if c.CDW10 >= 1<<30-1 {
		return 0
	}
	return (c.CDW10 + 1) * 4
}

// ReportExtended is EDS.
func (c *Command) ReportExtended() bool { return c.CDW11&1 != 0 }

// Registrant is one registered controller of a Reservation Report.
type Registrant struct {
	ControllerID uint16 // 0xFFFF: of no controller now
	Holds        bool
	Key          uint64
	HostID       [16]byte // 8 bytes of it where not extended
}

// ReservationStatus is what Reservation Report returns (NVM 3.3.4).
type ReservationStatus struct {
	Generation  uint32
	Type        ReserveType
	Persist     bool
	Registrants []Registrant
}

// Lengths of a report on the wire, bytes: header, and each registrant.
const (
	reportHead, reportEach                 = 24, 24
	reportExtendedHead, reportExtendedEach = 64, 64
)

func reportShape(extended bool) (head, each int) {
	if extended {
		return reportExtendedHead, reportExtendedEach
	}
	return reportHead, reportEach
}

// ReservationStatusLen is the length of a report with n registrants, bytes.
func ReservationStatusLen(n int, extended bool) int {
	head, each := reportShape(extended)
	return head + n*each
}

// ParseReservationStatus reads a report: the registrants that are both claimed
// and there, at most MaxRegistrants. total is the length of the whole report,
// bytes: larger than len(b) means ask again.
func ParseReservationStatus(b []byte, extended bool) (s ReservationStatus, total int, err error) {
	head, each := reportShape(extended)
	if len(b) < head {
		return s, 0, cut("Reservation Report", len(b), head)
	}
	s.Generation, s.Type, s.Persist = le.Uint32(b), ReserveType(b[4]), b[9]&1 != 0
	if s.Type != NoReservation && !s.Type.Valid() {
		return ReservationStatus{}, 0, fmt.Errorf("nvme: reservation of type %d", s.Type)
	}
	n := int(le.Uint16(b[5:]))
	for d := b[head:]; len(s.Registrants) < min(n, MaxRegistrants) && len(d) >= each; d = d[each:] {
		s.Registrants = append(s.Registrants, parseRegistrant(d, extended))
	}
	return s, head + n*each, nil
}

func parseRegistrant(d []byte, extended bool) Registrant {
	r := Registrant{ControllerID: le.Uint16(d), Holds: d[2]&1 != 0}
	if extended {
		r.Key = le.Uint64(d[8:])
		copy(r.HostID[:], d[16:32])
	} else {
		copy(r.HostID[:], d[8:16])
		r.Key = le.Uint64(d[16:])
	}
	return r
}

// Append appends the report.
func (s *ReservationStatus) Append(b []byte, extended bool) []byte {
	head, each := reportShape(extended)
	at := len(b)
	b = append(b, make([]byte, head+each*len(s.Registrants))...)
	f := b[at:]
	le.PutUint32(f, s.Generation)
	f[4] = byte(s.Type)
	le.PutUint16(f[5:], uint16(len(s.Registrants)))
	if s.Persist {
		f[9] = 1
	}
	for i, r := range s.Registrants {
		r.put(f[head+i*each:], extended)
	}
	return b
}

func (r *Registrant) put(d []byte, extended bool) {
	le.PutUint16(d, r.ControllerID)
	if r.Holds {
		d[2] = 1
	}
	if extended {
		le.PutUint64(d[8:], r.Key)
		copy(d[16:32], r.HostID[:])
		return
	}
	copy(d[8:16], r.HostID[:8])
	le.PutUint64(d[16:], r.Key)
}
