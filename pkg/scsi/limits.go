package scsi

// Bounds of what this package takes from a peer and gives to one.
const (
	// CDBLen is the length of the CDB field builders fill, bytes.
	CDBLen = 16
	// MaxSense is the longest sense data SPC-4 allows, bytes.
	MaxSense = 252
	// SenseLen is the length of the fixed-format sense AppendFixed writes, bytes.
	SenseLen = 18
	// MaxDesignators bounds the designators kept of one VPD page 83h.
	MaxDesignators = 64
	// MaxLUNs bounds the entries kept of one REPORT LUNS answer.
	MaxLUNs = 16384
	// MaxPortGroups bounds the groups kept of one REPORT TARGET PORT GROUPS answer.
	MaxPortGroups = 256
	// MaxPorts bounds the ports kept of one target port group.
	MaxPorts = 255
	// MaxKeys bounds the registrations kept of one PERSISTENT RESERVE IN answer.
	MaxKeys = 1024
	// MaxUnmapBlocks is the most blocks one UNMAP descriptor can name.
	MaxUnmapBlocks = 1<<32 - 1
	// InquiryLen is the allocation length to ask of standard INQUIRY and VPD
	// pages first; VPD answers say how long they really are.
	InquiryLen = 255
	// unreportedWriteSame bounds one WRITE SAME, bytes, when the target has the
	// command and names no limit: a longer one could outlast the command timeout.
	unreportedWriteSame = 32 << 20
	maxBlockSize        = 1 << 20 // bytes; larger block sizes are nonsense
)
