package scsi

import (
	"encoding/binary"
	"errors"
	"time"
)

// AccessState is the asymmetric access state of a target port group (SPC-4 5.15.2).
type AccessState uint8

// The states.
const (
	Optimized     AccessState = 0x0
	NonOptimized  AccessState = 0x1
	Standby       AccessState = 0x2
	Unavailable   AccessState = 0x3
	LBADependent  AccessState = 0x4
	Offline       AccessState = 0xE
	Transitioning AccessState = 0xF
)

// String names the state as tables print it.
func (s AccessState) String() string {
	switch s {
	case Optimized:
		return "optimized"
	case NonOptimized:
		return "non-optimized"
	case Standby:
		return "standby"
	case Unavailable:
		return "unavailable"
	case LBADependent:
		return "lba-dependent"
	case Offline:
		return "offline"
	case Transitioning:
		return "transitioning"
	}
	return "reserved"
}

// Usable reports whether I/O is accepted in the state.
func (s AccessState) Usable() bool { return s == Optimized || s == NonOptimized || s == LBADependent }

// PortGroup is one descriptor of REPORT TARGET PORT GROUPS (SPC-4 6.37).
type PortGroup struct {
	ID        uint16
	State     AccessState
	Preferred bool
	Supported byte // bits of the states the group can be in, as on the wire
	Status    byte // 0 none, 1 by SET TARGET PORT GROUPS, 2 by itself
	Ports     []uint16
}

// PortGroups is a REPORT TARGET PORT GROUPS answer.
type PortGroups struct {
	Groups []PortGroup
	// TransitionTime is how long an implicit transition may take; 0 when not reported.
	TransitionTime time.Duration
}

// Find returns the group with the given identifier, or nil.
func (g *PortGroups) Find(id uint16) *PortGroup {
	for i := range g.Groups {
		if g.Groups[i].ID == id {
			return &g.Groups[i]
		}
	}
	return nil
}

var errTPG = errors.New("scsi: REPORT TARGET PORT GROUPS: a descriptor runs past the end of the data")

// TPGLen is the length the answer itself claims, header included; larger than
// len(b) means ask again with more. b must hold 4 bytes, else 0.
func TPGLen(b []byte) int {
	if len(b) < 4 {
		return 0
	}
	return 4 + int(min(binary.BigEndian.Uint32(b), 1<<24))
}

// ParseReportTPG reads a REPORT TARGET PORT GROUPS answer with either header.
// A cut answer gives its whole groups and an error.
func ParseReportTPG(b []byte) (g PortGroups, err error) {
	if len(b) < 4 {
		return g, errTPG
	}
	cut := TPGLen(b) > len(b)
	d := b[4:min(len(b), TPGLen(b))]
	// Extended header: return data format 1 in bits 6..4 of byte 4 (which in the
	// plain form are reserved bits of the first descriptor), SPC-4 table 310.
	if len(d) >= 4 && d[0]>>4&7 == 1 {
		g.TransitionTime = time.Duration(d[1]) * time.Second
		d = d[4:]
	}
	for len(d) >= 8 && len(g.Groups) < MaxPortGroups {
		end := 8 + 4*int(d[7])
		if len(d) < end {
			return g, errTPG
		}
		g.Groups = append(g.Groups, parsePortGroup(d[:end]))
		d = d[end:]
	}
	if cut || len(d) != 0 && len(g.Groups) < MaxPortGroups {
		return g, errTPG
	}
	return g, nil
}

func parsePortGroup(d []byte) PortGroup {
	p := PortGroup{
		State: AccessState(d[0] & 0x0f), Preferred: d[0]&0x80 != 0, Supported: d[1],
		ID: binary.BigEndian.Uint16(d[2:]), Status: d[5],
	}
	for d = d[8:]; len(d) >= 4; d = d[4:] {
		p.Ports = append(p.Ports, binary.BigEndian.Uint16(d[2:]))
	}
	return p
}

// Append appends the answer, with the extended header if asked for. Groups
// have at most MaxPorts ports.
func (g *PortGroups) Append(b []byte, extended bool) []byte {
	at := len(b)
	b = append(b, 0, 0, 0, 0)
	if extended {
		b = append(b, 0x10, byte(min(g.TransitionTime/time.Second, 255)), 0, 0)
	}
	for _, p := range g.Groups {
		s := byte(p.State) & 0x0f
		if p.Preferred {
			s |= 0x80
		}
		b = append(b, s, p.Supported, byte(p.ID>>8), byte(p.ID), 0, p.Status, 0, byte(len(p.Ports)))
		for _, id := range p.Ports {
			b = append(b, 0, 0, byte(id>>8), byte(id))
		}
	}
	binary.BigEndian.PutUint32(b[at:], uint32(len(b)-at-4))
	return b
}
