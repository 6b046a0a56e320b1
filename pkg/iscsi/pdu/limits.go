package pdu

// Every bound of the wire format, in one place.
const (
	// HeaderLen is the basic header segment, bytes (RFC 7143 11.2.1).
	HeaderLen = 48
	// DigestLen is a CRC32C digest on the wire, bytes.
	DigestLen = 4
	// MaxDataSegment is what the 24-bit DataSegmentLength can say, bytes.
	MaxDataSegment = 1<<24 - 1
	// MaxAHS is what the 8-bit TotalAHSLength can say, bytes.
	MaxAHS = 255 * 4
	// MinRecvDataSegment and DefaultRecvDataSegment bound and default
	// MaxRecvDataSegmentLength, bytes (RFC 7143 13.12).
	MinRecvDataSegment     = 512
	DefaultRecvDataSegment = 8192

	// MaxKeyLen is the longest key name, bytes (RFC 7143 6.1).
	MaxKeyLen = 63
	// MaxValueLen is the longest value taken, bytes: room for a binary value of
	// MaxBinary bytes in hex. RFC 7143 6.1 asks for at least 255.
	MaxValueLen = 8192
	// MaxBinary is the longest decoded binary value, bytes (RFC 7143 12.1.3).
	MaxBinary = 1024
	// MaxKeys is the most keys of one text exchange that ParseKeys takes.
	MaxKeys = 128
	// MaxNameLen is the longest iSCSI name, bytes (RFC 7143 4.2.7.1).
	MaxNameLen = 223
)
