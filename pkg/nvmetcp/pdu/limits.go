package pdu

// Every bound of the wire format, in one place.
const (
	// CommonLen is the common header, bytes (3.6.1): enough to know a PDU's size.
	CommonLen = 8
	// DigestLen is a CRC32C digest on the wire, bytes.
	DigestLen = 4
	// InitLen is the length of ICReq and ICResp, bytes.
	InitLen = 128
	// CommandLen is the header of a command capsule, bytes: the entry is in it.
	CommandLen = 72
	// HeaderLen is the header of every other PDU, bytes.
	HeaderLen = 24
	// MaxAlign is the largest HPDA and CPDA: units of 4 bytes, 0's based.
	MaxAlign = 31
	// MaxHeader is the most bytes in front of a PDU's data, digest and padding
	// included: PDO is one byte, and rounding up to any legal alignment stays in it.
	MaxHeader = 255
	// MaxTermData is the most of an offending PDU that a terminate request shows, bytes.
	MaxTermData = 128
	// MaxData is the most data one PDU may carry, bytes; a command moves less.
	MaxData = 32 << 20
	// MinH2CData is the least MAXH2CDATA a controller may name, bytes (3.6.2.3).
	MinH2CData = 4096
	// AdminCapsuleData is the most data in a capsule on an admin queue, and of
	// Connect on any, bytes (3.3.2): IOCCSZ is not known yet.
	AdminCapsuleData = 8192
)
