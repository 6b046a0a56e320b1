package nvme

import "time"

// Properties of a controller (Base 3.1.4), by offset.
const (
	RegCAP  = 0x00 // 8 bytes
	RegVS   = 0x08
	RegCC   = 0x14
	RegCSTS = 0x1C
	RegNSSR = 0x20
)

// PropertySize is the length of a property, bytes.
func PropertySize(off uint32) int {
	if off == RegCAP {
		return 8
	}
	return 4
}

// Caps are the controller capabilities (Base 3.1.4.1).
type Caps struct {
	MaxEntries uint32 // of a queue, 1..65536 (MQES + 1)
	Contiguous bool   // CQR
	// Ready is the longest time CC.EN takes to show in CSTS.RDY; steps of 500 ms.
	Ready        time.Duration
	MinPageShift uint8 // 12 + MPSMIN
	MaxPageShift uint8 // 12 + MPSMAX
	CommandSets  uint8 // CSS: bit 0 NVM, bit 6 several I/O command sets
}

// ParseCaps reads CAP.
func ParseCaps(v uint64) Caps {
	return Caps{MaxEntries: uint32(v&0xFFFF) + 1, Contiguous: v>>16&1 != 0,
		Ready:        time.Duration(v>>24&0xFF) * 500 * time.Millisecond,
		MinPageShift: 12 + uint8(v>>48&0xF), MaxPageShift: 12 + uint8(v>>52&0xF),
		CommandSets: uint8(v >> 37)}
}

// Value is CAP as the controller gives it.
func (c Caps) Value() uint64 {
	v := uint64(c.MaxEntries-1)&0xFFFF | uint64(min(c.Ready/(500*time.Millisecond), 255))<<24 |
		uint64(c.MinPageShift-12)&0xF<<48 | uint64(c.MaxPageShift-12)&0xF<<52 | uint64(c.CommandSets)<<37
	if c.Contiguous {
		v |= 1 << 16
	}
	return v
}

// ControllerConfig is CC (Base 3.1.4.5).
type ControllerConfig struct {
	Enable     bool
	CommandSet uint8 // CSS: 0 NVM, 6 all that are supported, 7 admin only
	PageShift  uint8 // 12 + MPS
	// Shutdown is SHN: ShutdownNone, ShutdownNormal or ShutdownAbrupt.
	Shutdown uint8
	SQShift  uint8 // IOSQES: 6
	CQShift  uint8 // IOCQES: 4
}

// Values of ControllerConfig.Shutdown.
const (
	ShutdownNone   = 0
	ShutdownNormal = 1
	ShutdownAbrupt = 2
)

// ParseConfig reads CC.
func ParseConfig(v uint32) ControllerConfig {
	return ControllerConfig{Enable: v&1 != 0, CommandSet: uint8(v >> 4 & 7), PageShift: 12 + uint8(v>>7&0xF),
		Shutdown: uint8(v >> 14 & 3), SQShift: uint8(v >> 16 & 0xF), CQShift: uint8(v >> 20 & 0xF)}
}

// Value is CC as the host sets it.
func (c ControllerConfig) Value() uint32 {
	v := uint32(c.CommandSet&7)<<4 | uint32(c.PageShift-12)&0xF<<7 | uint32(c.Shutdown&3)<<14 |
		uint32(c.SQShift&0xF)<<16 | uint32(c.CQShift&0xF)<<20
	if c.Enable {
		v |= 1
	}
	return v
}

// ControllerState is CSTS (Base 3.1.4.6).
type ControllerState struct {
	Ready bool
	Fatal bool // CFS: only a reset helps
	// Shutdown is SHST: ShutdownNotBegun, ShutdownRunning or ShutdownComplete.
	Shutdown uint8
	Paused   bool // PP: processing paused
}

// Values of ControllerState.Shutdown.
const (
	ShutdownNotBegun = 0
	ShutdownRunning  = 1
	ShutdownComplete = 2
)

// ParseState reads CSTS.
func ParseState(v uint32) ControllerState {
	return ControllerState{Ready: v&1 != 0, Fatal: v&2 != 0, Shutdown: uint8(v >> 2 & 3), Paused: v&0x20 != 0}
}

// Value is CSTS as the controller gives it.
func (s ControllerState) Value() uint32 {
	v := uint32(s.Shutdown&3) << 2
	for i, on := range [...]bool{0: s.Ready, 1: s.Fatal, 5: s.Paused} {
		if on {
			v |= 1 << i
		}
	}
	return v
}

// Version makes the value of VS and of Identify's VER.
func Version(major uint16, minor, tertiary uint8) uint32 {
	return uint32(major)<<16 | uint32(minor)<<8 | uint32(tertiary)
}
