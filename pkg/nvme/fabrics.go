package nvme

import (
	"bytes"
	"errors"
	"fmt"
)

func fabrics(t FabricsType) Command { return command(OpFabrics, uint32(t)) }

// Attributes of Connect (CATTR, Base 6.3).
const (
	// ConnectNoFlowControl asks for a queue whose SQHead is not updated.
	ConnectNoFlowControl = 1 << 2
	// ConnectDeletable says that the host can delete single I/O queues.
	ConnectDeletable = 1 << 3
)

// ConnectCommand opens a queue: the admin queue (0) makes the controller.
type ConnectCommand struct {
	QueueID    uint16
	SQSize     uint16 // entries - 1
	Attributes uint8
	KeepAlive  uint32 // KATO, ms; 0 none. Admin queue only
}

// Command is the entry; its data is ConnectData, in the capsule.
func (c ConnectCommand) Command() Command {
	e := fabrics(Connect)
	e.SGL = InCapsule(ConnectDataLen)
	e.CDW10 = uint32(c.QueueID) << 16
	e.CDW11 = uint32(c.SQSize) | uint32(c.Attributes)<<16
	e.CDW12 = c.KeepAlive
	return e
}

// ParseConnect reads Connect; the record format must be 0.
func ParseConnect(e *Command) (ConnectCommand, Status) {
	if e.CDW10&0xFFFF != 0 {
		return ConnectCommand{}, IncompatibleFormat.Final()
	}
	return ConnectCommand{QueueID: uint16(e.CDW10 >> 16), SQSize: uint16(e.CDW11),
		Attributes: uint8(e.CDW11 >> 16), KeepAlive: e.CDW12}, Success
}

// AnyController in ConnectData asks for a new controller of the dynamic model.
const AnyController = 0xFFFF

// ConnectData is the data of Connect (Base 6.3).
type ConnectData struct {
	HostID       [16]byte
	ControllerID uint16 // AnyController, or the admin queue's on an I/O queue
	Subsystem    string // NQN
	Host         string // NQN
}

// Append appends the data, ConnectDataLen bytes. Names longer than MaxNQN are refused.
func (d *ConnectData) Append(b []byte) ([]byte, error) {
	if err := errors.Join(CheckNQN(d.Subsystem), CheckNQN(d.Host)); err != nil {
		return b, err
	}
	at := len(b)
	b = append(b, make([]byte, ConnectDataLen)...)
	f := b[at:]
	copy(f, d.HostID[:])
	le.PutUint16(f[16:], d.ControllerID)
	copy(f[256:], d.Subsystem)
	copy(f[512:], d.Host)
	return b, nil
}

// Decode reads the data; both names must be whole.
func (d *ConnectData) Decode(b []byte) error {
	if len(b) < ConnectDataLen {
		return fmt.Errorf("nvme: Connect data of %d bytes, want %d", len(b), ConnectDataLen)
	}
	*d = ConnectData{HostID: [16]byte(b), ControllerID: le.Uint16(b[16:])}
	var err1, err2 error
	d.Subsystem, err1 = parseNQN(b[256:512])
	d.Host, err2 = parseNQN(b[512:768])
	return errors.Join(err1, err2)
}

// parseNQN reads a name that ends with a zero.
func parseNQN(f []byte) (string, error) {
	n := bytes.IndexByte(f, 0)
	if n < 0 {
		return "", errors.New("nvme: an NQN without an end")
	}
	s := string(f[:n])
	return s, CheckNQN(s)
}

// CheckNQN refuses a name that no party could have (Base 4.7): empty, longer
// than MaxNQN, with control characters, or not "nqn." at its front.
func CheckNQN(s string) error {
	if len(s) <= len("nqn.") || len(s) > MaxNQN || s[:4] != "nqn." {
		return fmt.Errorf("nvme: %.60q is no NQN: want nqn.YYYY-MM.domain:name of at most %d bytes", s, MaxNQN)
	}
	for _, c := range []byte(s) {
		if c <= ' ' || c == 0x7F {
			return fmt.Errorf("nvme: %.60q is no NQN: it holds a space or a control character", s)
		}
	}
	return nil
}

// ConnectResult is Dword 0 of a successful Connect.
type ConnectResult struct {
	ControllerID uint16
	AuthRequired bool // ATR: DH-HMAC-CHAP on this queue before anything else
	SecureChan   bool // ASCR: authentication and then a secure channel
}

// ParseConnectResult reads it.
func ParseConnectResult(v uint64) ConnectResult {
	return ConnectResult{uint16(v), v>>17&1 != 0, v>>18&1 != 0}
}

// Value is the result as the controller gives it.
func (r ConnectResult) Value() uint64 {
	v := uint64(r.ControllerID)
	if r.AuthRequired {
		v |= 1 << 17
	}
	if r.SecureChan {
		v |= 1 << 18
	}
	return v
}

// ConnectRefusal is Dword 0 of ConnectInvalid: the offset of the first bad
// field, in the data or in the command.
type ConnectRefusal struct {
	Offset uint16 // bytes
	InData bool
}

// ParseConnectRefusal reads it.
func ParseConnectRefusal(v uint64) ConnectRefusal {
	return ConnectRefusal{uint16(v), v>>16&1 != 0}
}

// Value is the refusal as the controller gives it.
func (r ConnectRefusal) Value() uint64 {
	if r.InData {
		return uint64(r.Offset) | 1<<16
	}
	return uint64(r.Offset)
}

// String names the field, for the fields that Connect has.
func (r ConnectRefusal) String() string {
	name := map[ConnectRefusal]string{{42, false}: "queue ID", {44, false}: "queue size",
		{48, false}: "keep alive timeout", {0, true}: "host identifier", {16, true}: "controller ID",
		{256, true}: "subsystem NQN", {512, true}: "host NQN"}[r]
	if name == "" {
		name = "field"
	}
	where := "command"
	if r.InData {
		where = "data"
	}
	return fmt.Sprintf("%s (byte %d of the Connect %s)", name, r.Offset, where)
}

// GetProperty reads a property: see the Reg constants.
func GetProperty(off uint32) Command {
	e := fabrics(PropertyGet)
	e.CDW10, e.CDW11 = attribute(off), off
	return e
}

// SetProperty writes one.
func SetProperty(off uint32, v uint64) Command {
	e := fabrics(PropertySet)
	e.CDW10, e.CDW11, e.CDW12, e.CDW13 = attribute(off), off, uint32(v), uint32(v>>32)
	return e
}

func attribute(off uint32) uint32 {
	if PropertySize(off) == 8 {
		return 1
	}
	return 0
}

// Property is a decoded Property Get or Set.
type Property struct {
	Offset uint32
	Size   int // bytes: 4 or 8
	Value  uint64
}

// ParseProperty reads Property Get (its Value is 0) or Set.
func ParseProperty(e *Command) (Property, Status) {
	p := Property{Offset: e.CDW11, Size: 4}
	switch e.CDW10 & 7 {
	case 0:
	case 1:
		p.Size = 8
	default:
		return p, InvalidField.Final()
	}
	if e.Fabrics() == PropertySet {
		p.Value = uint64(e.CDW12)
		if p.Size == 8 {
			p.Value |= uint64(e.CDW13) << 32
		}
	}
	return p, Success
}

// Auth is a decoded Authentication Send or Receive (Base 6.1, 6.2).
type Auth struct {
	Protocol uint8  // SECP
	Specific uint16 // SPSP1, SPSP0
	Len      uint32 // bytes sent, or at most received
}

// Security protocol of DH-HMAC-CHAP messages (Base 8.3.4).
const (
	AuthProtocol = 0xE9
	AuthSpecific = 0x0101
)

// SendAuth carries n bytes of an authentication message; its SGL is set by the
// caller who knows whether they fit the capsule.
func SendAuth(n uint32) Command { return auth(AuthSend, n) }

// ReceiveAuth asks for an authentication message of up to n bytes.
func ReceiveAuth(n uint32) Command { return auth(AuthReceive, n) }

func auth(t FabricsType, n uint32) Command {
	e := fabrics(t)
	e.SGL = ByTransport(n)
	e.CDW10 = AuthSpecific<<8 | AuthProtocol<<24
	e.CDW11 = n
	return e
}

// ParseAuth reads one.
func ParseAuth(e *Command) Auth {
	return Auth{Protocol: uint8(e.CDW10 >> 24), Specific: uint16(e.CDW10 >> 8), Len: e.CDW11}
}

// EndQueue is Disconnect: it deletes the I/O queue it comes on (Base 6.4).
func EndQueue() Command { return fabrics(Disconnect) }
