package nvme

import (
	"errors"
	"fmt"
)

// AccessState is the asymmetric namespace access state of a group (Base 8.1.1).
type AccessState uint8

// The states.
const (
	Optimized      AccessState = 0x1
	NonOptimized   AccessState = 0x2
	Inaccessible   AccessState = 0x3
	PersistentLoss AccessState = 0x4
	Changing       AccessState = 0xF
)

// String names the state as tables print it.
func (s AccessState) String() string {
	switch s {
	case Optimized:
		return "optimized"
	case NonOptimized:
		return "non-optimized"
	case Inaccessible:
		return "inaccessible"
	case PersistentLoss:
		return "persistent-loss"
	case Changing:
		return "change"
	}
	return "reserved"
}

// Usable reports whether I/O is accepted in the state.
func (s AccessState) Usable() bool { return s == Optimized || s == NonOptimized }

// Valid reports whether s is a state that Base knows.
func (s AccessState) Valid() bool { return s >= Optimized && s <= PersistentLoss || s == Changing }

// Refusal is the status with which a controller refuses I/O in the state;
// Success where it does not.
func (s AccessState) Refusal() Status {
	switch s {
	case Inaccessible:
		return ANAInaccessible
	case PersistentLoss:
		return ANAPersistentLoss
	case Changing:
		return ANATransition
	}
	return Success
}

// ANAGroup is one descriptor of the ANA log (Base 5.1.12.1.13).
type ANAGroup struct {
	ID     uint32
	Change uint64
	State  AccessState
	NSIDs  []uint32
}

// ANALog is the ANA log page.
type ANALog struct {
	Change uint64
	Groups []ANAGroup
}

// Header and descriptor of the ANA log on the wire, bytes.
const (
	anaHeaderLen = 16
	anaGroupLen  = 32
)

// ANALogLen is the longest the log of a controller can be, bytes: a read of so
// much is never torn. groups and namespaces are NANAGRPID and MNAN (or NN).
func ANALogLen(groups, namespaces uint32) int {
	return anaHeaderLen + int(min(groups, MaxGroups))*anaGroupLen + int(min(namespaces, MaxGroupMembers))*4
}

// ParseANA reads the log. maxGroup is the controller's ANAGRPMAX. It refuses
// group 0 or one above maxGroup, an unknown state, a group or namespace named
// twice, and what runs past the end; a group without namespaces is legal.
func ParseANA(b []byte, maxGroup uint32) (l ANALog, err error) {
	if len(b) < anaHeaderLen {
		return l, cut("the ANA log", len(b), anaHeaderLen)
	}
	n := int(le.Uint16(b[8:]))
	if n > MaxGroups {
		return l, fmt.Errorf("nvme: the ANA log has %d groups, more than %d", n, MaxGroups)
	}
	l.Change = le.Uint64(b)
	seen := anaSeen{groups: map[uint32]bool{}, namespaces: map[uint32]bool{}}
	for b = b[anaHeaderLen:]; n > 0; n-- {
		g, size, err := parseANAGroup(b, maxGroup)
		if err == nil {
			err = seen.add(&g)
		}
		if err != nil {
			return ANALog{}, err
		}
		l.Groups = append(l.Groups, g)
		b = b[size:]
	}
	return l, nil
}

func parseANAGroup(b []byte, maxGroup uint32) (g ANAGroup, size int, err error) {
	if len(b) < anaGroupLen {
		return g, 0, cut("an ANA group", len(b), anaGroupLen)
	}
	g = ANAGroup{ID: le.Uint32(b), Change: le.Uint64(b[8:]), State: AccessState(b[16] & 0xF)}
	members := uint64(le.Uint32(b[4:]))
	switch {
	case g.ID == 0 || g.ID > maxGroup:
		return g, 0, fmt.Errorf("nvme: ANA group %d: want 1..%d", g.ID, maxGroup)
	case !g.State.Valid():
		return g, 0, fmt.Errorf("nvme: ANA group %d: state %Xh is reserved", g.ID, uint8(g.State))
	case members > uint64(len(b)-anaGroupLen)/4:
		return g, 0, fmt.Errorf("nvme: ANA group %d: %d namespaces run past the end of the log", g.ID, members)
	}
	size = anaGroupLen + 4*int(members)
	for d := b[anaGroupLen:size]; len(d) > 0; d = d[4:] {
		g.NSIDs = append(g.NSIDs, le.Uint32(d))
	}
	return g, size, nil
}

// anaSeen finds what the log names twice.
type anaSeen struct{ groups, namespaces map[uint32]bool }

func (s anaSeen) add(g *ANAGroup) error {
	if s.groups[g.ID] {
		return fmt.Errorf("nvme: ANA group %d is there twice", g.ID)
	}
	s.groups[g.ID] = true
	for _, id := range g.NSIDs {
		if id == 0 || s.namespaces[id] {
			return fmt.Errorf("nvme: ANA group %d: namespace %d is zero or in two groups", g.ID, id)
		}
		s.namespaces[id] = true
	}
	if len(s.namespaces) > MaxGroupMembers {
		return errors.New("nvme: the ANA log names too many namespaces")
	}
	return nil
}

// Group returns the group with that identifier, or nil.
func (l *ANALog) Group(id uint32) *ANAGroup {
	for i := range l.Groups {
		if l.Groups[i].ID == id {
			return &l.Groups[i]
		}
	}
	return nil
}

// Append appends the log; without says that the namespaces are left out (LSP 1).
func (l *ANALog) Append(b []byte, without bool) []byte {
	b = le.AppendUint64(b, l.Change)
	b = append(le.AppendUint16(b, uint16(len(l.Groups))), 0, 0, 0, 0, 0, 0)
	for _, g := range l.Groups {
		ids := g.NSIDs
		if without {
			ids = nil
		}
		b = le.AppendUint32(b, g.ID)
		b = le.AppendUint32(b, uint32(len(ids)))
		b = le.AppendUint64(b, g.Change)
		b = append(b, byte(g.State))
		b = append(b, make([]byte, 15)...)
		for _, id := range ids {
			b = le.AppendUint32(b, id)
		}
	}
	return b
}
