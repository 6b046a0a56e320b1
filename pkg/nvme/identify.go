package nvme

import "time"

// Identify structures (CNS, Base 5.1.13).
const (
	CNSNamespace     = 0x00
	CNSController    = 0x01
	CNSActive        = 0x02 // list of active namespaces
	CNSDescriptors   = 0x03 // namespace identification descriptors
	CNSNVMController = 0x06 // I/O command set specific controller data, of CSI 0
)

// Identify asks for a structure of IdentifyLen bytes. For CNSActive the list
// begins behind nsid.
func Identify(cns uint8, nsid uint32) Command {
	e := command(AdminIdentify, nsid)
	e.SGL = ByTransport(IdentifyLen)
	e.CDW10 = uint32(cns)
	return e
}

// CNS is the structure an Identify command asks for.
func (c *Command) CNS() uint8 { return uint8(c.CDW10) }

// CommandSetID is the I/O command set an Identify command asks about: 0 NVM.
func (c *Command) CommandSetID() uint8 { return uint8(c.CDW11 >> 24) }

// Bits of Controller fields.
const (
	CMICPorts       = 1 << 0 // several ports
	CMICControllers = 1 << 1 // several controllers
	CMICANA         = 1 << 3 // ANA is reported

	CtrattHostID128 = 1 << 0
	CtrattTBKAS     = 1 << 6

	ONCSCompare     = 1 << 0
	ONCSDataset     = 1 << 2
	ONCSWriteZeroes = 1 << 3
	ONCSReserve     = 1 << 5

	SGLSupported = 1 << 0 // SGLS, byte aligned

	ControllerIO        = 1 // CNTRLTYPE
	ControllerDiscovery = 2
)

// Controller is Identify Controller (Base 5.1.13.2.1), as far as it matters
// over Fabrics.
type Controller struct {
	VendorID        uint16
	Serial, Model   string
	Firmware        string
	CMIC            uint8
	MDTS            uint8 // 0: no limit named; see MaxTransfer
	ControllerID    uint16
	Version         uint32
	ShutdownLatency uint32 // RTD3E, microseconds; 0 not reported
	Events          uint32 // OAES: AsyncNamespace ...
	Attributes      uint32 // CTRATT
	Kind            uint8  // CNTRLTYPE; 0 not reported
	// RetryDelays are CRDT1..CRDT3, in 100 ms: see Classify.
	RetryDelays [3]uint16
	AdminOps    uint16 // OACS
	Aborts      uint8  // ACL, 0's based
	AsyncEvents uint8  // AERL, 0's based
	LogBits     uint8  // LPA
	Errors      uint8  // ELPE, 0's based
	// KeepAliveStep is KAS, in 100 ms; 0: Keep Alive is not supported.
	KeepAliveStep uint16
	ANATransition uint8  // ANATT, seconds
	ANACaps       uint8  // ANACAP
	ANAGroupMax   uint32 // ANAGRPMAX
	ANAGroups     uint32 // NANAGRPID
	Quiesce       uint16 // CQT, ms: commands end so long after communication is lost
	SQES, CQES    uint8
	MaxCommands   uint16 // MAXCMD: of one I/O queue; 0 not reported
	Namespaces    uint32 // NN: the highest NSID
	ONCS          uint16
	VolatileCache uint8  // VWC: bit 0 there is one
	AtomicPower   uint16 // AWUPF, blocks, 0's based
	SGLS          uint32
	MaxAllowed    uint32 // MNAN: most namespaces; 0: NN
	Subsystem     string // SUBNQN
	CapsuleUnits  uint32 // IOCCSZ, in 16 bytes; see InCapsuleMax
	ResponseUnits uint32 // IORCSZ, in 16 bytes
	DataOffset    uint16 // ICDOFF, in 16 bytes
	CapsuleBits   uint8  // FCATT: bit 0 static controllers
	MaxSGLs       uint8  // MSDBD
}

// field is where one number of an Identify structure lies.
type field struct {
	off, size int
	get       func(*Controller) uint64
	set       func(*Controller, uint64)
}

// num makes the field of any number of a Controller.
func num[T ~uint8 | ~uint16 | ~uint32](off, size int, p func(*Controller) *T) field {
	return field{off, size,
		func(c *Controller) uint64 { return uint64(*p(c)) },
		func(c *Controller, v uint64) { *p(c) = T(v) }}
}

// controllerFields is the layout of the structure, for both directions.
var controllerFields = []field{
	num(0, 2, func(c *Controller) *uint16 { return &c.VendorID }),
	num(76, 1, func(c *Controller) *uint8 { return &c.CMIC }),
	num(77, 1, func(c *Controller) *uint8 { return &c.MDTS }),
	num(78, 2, func(c *Controller) *uint16 { return &c.ControllerID }),
	num(80, 4, func(c *Controller) *uint32 { return &c.Version }),
	num(88, 4, func(c *Controller) *uint32 { return &c.ShutdownLatency }),
	num(92, 4, func(c *Controller) *uint32 { return &c.Events }),
	num(96, 4, func(c *Controller) *uint32 { return &c.Attributes }),
	num(111, 1, func(c *Controller) *uint8 { return &c.Kind }),
	num(128, 2, func(c *Controller) *uint16 { return &c.RetryDelays[0] }),
	num(130, 2, func(c *Controller) *uint16 { return &c.RetryDelays[1] }),
	num(132, 2, func(c *Controller) *uint16 { return &c.RetryDelays[2] }),
	num(256, 2, func(c *Controller) *uint16 { return &c.AdminOps }),
	num(258, 1, func(c *Controller) *uint8 { return &c.Aborts }),
	num(259, 1, func(c *Controller) *uint8 { return &c.AsyncEvents }),
	num(261, 1, func(c *Controller) *uint8 { return &c.LogBits }),
	num(262, 1, func(c *Controller) *uint8 { return &c.Errors }),
	num(320, 2, func(c *Controller) *uint16 { return &c.KeepAliveStep }),
	num(342, 1, func(c *Controller) *uint8 { return &c.ANATransition }),
	num(343, 1, func(c *Controller) *uint8 { return &c.ANACaps }),
	num(344, 4, func(c *Controller) *uint32 { return &c.ANAGroupMax }),
	num(348, 4, func(c *Controller) *uint32 { return &c.ANAGroups }),
	num(386, 2, func(c *Controller) *uint16 { return &c.Quiesce }),
	num(512, 1, func(c *Controller) *uint8 { return &c.SQES }),
	num(513, 1, func(c *Controller) *uint8 { return &c.CQES }),
	num(514, 2, func(c *Controller) *uint16 { return &c.MaxCommands }),
	num(516, 4, func(c *Controller) *uint32 { return &c.Namespaces }),
	num(520, 2, func(c *Controller) *uint16 { return &c.ONCS }),
	num(525, 1, func(c *Controller) *uint8 { return &c.VolatileCache }),
	num(528, 2, func(c *Controller) *uint16 { return &c.AtomicPower }),
	num(536, 4, func(c *Controller) *uint32 { return &c.SGLS }),
	num(540, 4, func(c *Controller) *uint32 { return &c.MaxAllowed }),
	num(1792, 4, func(c *Controller) *uint32 { return &c.CapsuleUnits }),
	num(1796, 4, func(c *Controller) *uint32 { return &c.ResponseUnits }),
	num(1800, 2, func(c *Controller) *uint16 { return &c.DataOffset }),
	num(1802, 1, func(c *Controller) *uint8 { return &c.CapsuleBits }),
	num(1803, 1, func(c *Controller) *uint8 { return &c.MaxSGLs }),
}

// ParseController reads the structure, IdentifyLen bytes.
func ParseController(b []byte) (c Controller, err error) {
	if len(b) < IdentifyLen {
		return c, cut("Identify Controller", len(b), IdentifyLen)
	}
	for _, f := range controllerFields {
		var w [8]byte
		copy(w[:], b[f.off:f.off+f.size])
		f.set(&c, le.Uint64(w[:]))
	}
	c.Serial, c.Model, c.Firmware = text(b[4:24]), text(b[24:64]), text(b[64:72])
	c.Subsystem = text(b[768 : 768+MaxNQN])
	return c, nil
}

// Append appends the structure, IdentifyLen bytes.
func (c *Controller) Append(b []byte) []byte {
	at := len(b)
	b = append(b, make([]byte, IdentifyLen)...)
	d := b[at:]
	for _, f := range controllerFields {
		var w [8]byte
		le.PutUint64(w[:], f.get(c))
		copy(d[f.off:f.off+f.size], w[:])
	}
	putText(d[4:24], c.Serial)
	putText(d[24:64], c.Model)
	putText(d[64:72], c.Firmware)
	copy(d[768:768+MaxNQN], c.Subsystem)
	return b
}

// MaxTransfer is the most bytes of one Read or Write; minPageShift is
// CAP's. Without a limit of the controller's it is OwnMaxTransfer (B-09).
func (c *Controller) MaxTransfer(minPageShift uint8) uint32 {
	if c.MDTS == 0 {
		return OwnMaxTransfer
	}
	return 1 << min(uint(c.MDTS)+uint(minPageShift), maxTransferShift)
}

// InCapsuleMax is the most data an I/O command may bring in its capsule,
// bytes: what IOCCSZ leaves behind the command itself (B-06).
func (c *Controller) InCapsuleMax() uint32 {
	n := uint64(c.CapsuleUnits) * 16
	if n < CommandLen || c.DataOffset != 0 {
		return 0
	}
	return uint32(min(n-CommandLen, 1<<maxTransferShift))
}

// TrafficKeepsAlive is TBKAS: any command restarts the keep alive timer.
func (c *Controller) TrafficKeepsAlive() bool { return c.Attributes&CtrattTBKAS != 0 }

// ReportsANA says whether the ANA log is there.
func (c *Controller) ReportsANA() bool { return c.CMIC&CMICANA != 0 }

// ANATransitionTime is how long a transition may take.
func (c *Controller) ANATransitionTime() time.Duration {
	return time.Duration(c.ANATransition) * time.Second
}

// QuiesceTime is CQT.
func (c *Controller) QuiesceTime() time.Duration {
	return time.Duration(c.Quiesce) * time.Millisecond
}

// ANALogLen is the longest its ANA log can be, bytes.
func (c *Controller) ANALogLen() int {
	n := c.Namespaces
	if c.MaxAllowed != 0 {
		n = c.MaxAllowed
	}
	return ANALogLen(c.ANAGroups, n)
}

// CommandLimits is the NVM command set's part of Identify Controller
// (CNSNVMController, NVM 4.1.5.4). Zero means not reported.
type CommandLimits struct {
	VerifySize      uint8 // VSL, like MDTS
	WriteZeroesSize uint8 // WZSL, like MDTS
	Ranges          uint8 // DMRL: ranges of one Dataset Management
	RangeBlocks     uint32
	DatasetBlocks   uint64 // DMSL: of all ranges together
}

// ParseCommandLimits reads the structure.
func ParseCommandLimits(b []byte) (l CommandLimits, err error) {
	if len(b) < 16 {
		return l, cut("Identify NVM Controller", len(b), 16)
	}
	return CommandLimits{b[0], b[1], b[3], le.Uint32(b[4:]), le.Uint64(b[8:])}, nil
}

// Append appends the structure, IdentifyLen bytes.
func (l *CommandLimits) Append(b []byte) []byte {
	at := len(b)
	b = append(b, make([]byte, IdentifyLen)...)
	b[at], b[at+1], b[at+3] = l.VerifySize, l.WriteZeroesSize, l.Ranges
	le.PutUint32(b[at+4:], l.RangeBlocks)
	le.PutUint64(b[at+8:], l.DatasetBlocks)
	return b
}
