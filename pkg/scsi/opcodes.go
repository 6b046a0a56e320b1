package scsi

import "encoding/binary"

// CommandUsage describes one command for REPORT SUPPORTED OPERATION CODES
// (SPC-4 6.35): Usage is the CDB with a one for each bit that is looked at, its
// first byte the operation code, its service action field the service action.
type CommandUsage struct {
	Action    uint16
	HasAction bool
	Usage     []byte
}

// Op is the operation code.
func (u *CommandUsage) Op() byte { return u.Usage[0] }

// timeouts is a command timeouts descriptor that names none (SPC-4 6.35.4).
var timeouts = []byte{0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

// AppendAllCommands appends the answer to reporting option 000b.
func AppendAllCommands(b []byte, list []CommandUsage, withTimeouts bool) []byte {
	at := len(b)
	b = append(b, 0, 0, 0, 0)
	for _, u := range list {
		var flags byte
		if u.HasAction {
			flags |= 1
		}
		if withTimeouts {
			flags |= 2
		}
		b = append(b, u.Op(), 0, byte(u.Action>>8), byte(u.Action), 0, flags, 0, byte(len(u.Usage)))
		if withTimeouts {
			b = append(b, timeouts...)
		}
	}
	binary.BigEndian.PutUint32(b[at:], uint32(len(b)-at-4))
	return b
}

// AppendOneCommand appends the answer about one command; nil says that it is
// not supported.
func AppendOneCommand(b []byte, u *CommandUsage, withTimeouts bool) []byte {
	support := byte(1) // not supported
	if u == nil {
		return append(b, 0, support, 0, 0)
	}
	support = 3 // as the standard says
	if withTimeouts {
		support |= 0x80
	}
	b = append(b, 0, support, 0, byte(len(u.Usage)))
	b = append(b, u.Usage...)
	if withTimeouts {
		b = append(b, timeouts...)
	}
	return b
}
