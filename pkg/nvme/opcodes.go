package nvme

// Opcode of a command. Admin and I/O opcodes are two spaces of numbers.
type Opcode uint8

// I/O opcodes (NVM 3).
const (
	OpFlush              Opcode = 0x00
	OpWrite              Opcode = 0x01
	OpRead               Opcode = 0x02
	OpWriteUncorrectable Opcode = 0x04
	OpCompare            Opcode = 0x05
	OpWriteZeroes        Opcode = 0x08
	OpDataset            Opcode = 0x09
	OpVerify             Opcode = 0x0C
	OpReserveRegister    Opcode = 0x0D
	OpReserveReport      Opcode = 0x0E
	OpReserveAcquire     Opcode = 0x11
	OpReserveRelease     Opcode = 0x15
)

// Admin opcodes (Base 5).
const (
	AdminGetLog      Opcode = 0x02
	AdminIdentify    Opcode = 0x06
	AdminAbort       Opcode = 0x08
	AdminSetFeatures Opcode = 0x09
	AdminGetFeatures Opcode = 0x0A
	AdminAsyncEvent  Opcode = 0x0C
	AdminKeepAlive   Opcode = 0x18
)

// OpFabrics is a Fabrics command on either kind of queue; its type says which.
const OpFabrics Opcode = 0x7F

// FabricsType tells Fabrics commands apart (Base 6).
type FabricsType uint8

// The Fabrics commands.
const (
	PropertySet FabricsType = 0x00
	Connect     FabricsType = 0x01
	PropertyGet FabricsType = 0x04
	AuthSend    FabricsType = 0x05
	AuthReceive FabricsType = 0x06
	Disconnect  FabricsType = 0x08
)

// Direction of a command's data, as its opcode (Fabrics: its type) says in
// bits 1:0 (Base 3.3.3.1).
type Direction uint8

// The directions.
const (
	NoData           Direction = 0
	HostToController Direction = 1
	ControllerToHost Direction = 2
)

// AllNamespaces is the NSID that means each of them.
const AllNamespaces = 0xFFFFFFFF
