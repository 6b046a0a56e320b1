package nvme

import (
	"encoding/binary"
	"fmt"
)

var le = binary.LittleEndian

// SGL kinds: the descriptor's type and subtype byte (Base 4.3.2).
const (
	// SGLInCapsule: the data is in the capsule, at an offset from the end of the
	// command plus ICDOFF.
	SGLInCapsule = 0x01
	// SGLTransport: the transport moves the data: R2T and data PDUs.
	SGLTransport = 0x5A
)

// SGL is the data descriptor of a command.
type SGL struct {
	Offset uint64 // SGLInCapsule only
	Len    uint32 // bytes
	Kind   uint8
}

// InCapsule describes n bytes that follow the command in its capsule.
func InCapsule(n uint32) SGL { return SGL{Len: n, Kind: SGLInCapsule} }

// ByTransport describes n bytes that data PDUs carry.
func ByTransport(n uint32) SGL { return SGL{Len: n, Kind: SGLTransport} }

// flagSGL is PSDT = 01b: SGLs, as every command over Fabrics has (Base 3.3.3.1).
const flagSGL = 0x40

// Command is a submission queue entry. Metadata and command dwords 2 and 3 are
// not carried: nothing of ours uses them.
type Command struct {
	Opcode Opcode
	Flags  uint8 // FUSE, PSDT
	CID    uint16
	// NSID; the low byte of a Fabrics command's is its type.
	NSID uint32
	SGL  SGL

	CDW10, CDW11, CDW12, CDW13, CDW14, CDW15 uint32
}

func command(op Opcode, nsid uint32) Command {
	return Command{Opcode: op, Flags: flagSGL, NSID: nsid, SGL: SGL{Kind: SGLTransport}}
}

// Put writes the entry into b, at least CommandLen bytes.
func (c *Command) Put(b []byte) {
	b = b[:CommandLen:CommandLen]
	b[0], b[1] = byte(c.Opcode), c.Flags
	le.PutUint16(b[2:], c.CID)
	le.PutUint32(b[4:], c.NSID)
	clear(b[8:24])
	le.PutUint64(b[24:], c.SGL.Offset)
	le.PutUint32(b[32:], c.SGL.Len)
	b[36], b[37], b[38], b[39] = 0, 0, 0, c.SGL.Kind
	le.PutUint32(b[40:], c.CDW10)
	le.PutUint32(b[44:], c.CDW11)
	le.PutUint32(b[48:], c.CDW12)
	le.PutUint32(b[52:], c.CDW13)
	le.PutUint32(b[56:], c.CDW14)
	le.PutUint32(b[60:], c.CDW15)
}

// Decode reads an entry, at least CommandLen bytes.
func (c *Command) Decode(b []byte) error {
	if len(b) < CommandLen {
		return fmt.Errorf("nvme: a command of %d bytes, want %d", len(b), CommandLen)
	}
	*c = Command{
		Opcode: Opcode(b[0]), Flags: b[1], CID: le.Uint16(b[2:]), NSID: le.Uint32(b[4:]),
		SGL:   SGL{Offset: le.Uint64(b[24:]), Len: le.Uint32(b[32:]), Kind: b[39]},
		CDW10: le.Uint32(b[40:]), CDW11: le.Uint32(b[44:]), CDW12: le.Uint32(b[48:]),
		CDW13: le.Uint32(b[52:]), CDW14: le.Uint32(b[56:]), CDW15: le.Uint32(b[60:]),
	}
	return nil
}

// Fabrics is the type of a Fabrics command.
func (c *Command) Fabrics() FabricsType { return FabricsType(c.NSID) }

// Direction says which way the command's data goes, if it has any.
func (c *Command) Direction() Direction {
	if c.Opcode == OpFabrics {
		return Direction(c.NSID & 3)
	}
	return Direction(c.Opcode & 3)
}

// Check is the controller's reading of what all commands share: fused
// operations and PRPs are not offered over Fabrics. Success, or what to answer with.
func (c *Command) Check() Status {
	switch {
	case c.Flags != flagSGL:
		return InvalidField.Final()
	case c.SGL.Kind == SGLTransport:
		return Success
	case c.SGL.Kind != SGLInCapsule:
		return SGLTypeInvalid.Final()
	case c.SGL.Offset != 0:
		return SGLOffsetInvalid.Final()
	}
	return Success
}

// Completion is a completion queue entry.
type Completion struct {
	// Result is dwords 0 and 1: a Fabrics Property Get needs both.
	Result uint64
	// SQHead is where the controller's reading of the submission queue is.
	SQHead uint16
	SQID   uint16 // reserved over Fabrics
	CID    uint16
	Status Status
}

// SQHeadDisabled is the SQHead of queues without flow control (Base 3.3.3.2.1).
const SQHeadDisabled = 0xFFFF

// Put writes the entry into b, at least CompletionLen bytes.
func (c *Completion) Put(b []byte) {
	b = b[:CompletionLen:CompletionLen]
	le.PutUint64(b, c.Result)
	le.PutUint16(b[8:], c.SQHead)
	le.PutUint16(b[10:], c.SQID)
	le.PutUint16(b[12:], c.CID)
	le.PutUint16(b[14:], uint16(c.Status)<<1) // the phase tag is reserved over Fabrics
}

// Decode reads an entry, at least CompletionLen bytes.
func (c *Completion) Decode(b []byte) error {
	if len(b) < CompletionLen {
		return fmt.Errorf("nvme: a completion of %d bytes, want %d", len(b), CompletionLen)
	}
	*c = Completion{Result: le.Uint64(b), SQHead: le.Uint16(b[8:]), SQID: le.Uint16(b[10:]),
		CID: le.Uint16(b[12:]), Status: Status(le.Uint16(b[14:]) >> 1)}
	return nil
}
