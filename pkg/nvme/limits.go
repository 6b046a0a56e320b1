package nvme

// Bounds of what this package takes from a peer and gives to one.
const (
	// CommandLen and CompletionLen are the queue entries' lengths, bytes.
	CommandLen    = 64
	CompletionLen = 16
	// IdentifyLen is the length of every Identify answer, bytes.
	IdentifyLen = 4096
	// ConnectDataLen is the length of the data of Connect, bytes.
	ConnectDataLen = 1024
	// HostBehaviorLen is the length of the data of FeatureHostBehavior, bytes.
	HostBehaviorLen = 512
	// NQNLen is the field of a name in Connect and discovery data, bytes.
	NQNLen = 256
	// MaxNQN is the longest name, bytes (Base 4.7).
	MaxNQN = 223
	// MaxQueueEntries is the largest queue CAP.MQES can name.
	MaxQueueEntries = 1 << 16
	// MaxBlocks is the most blocks of one Read, Write or Write Zeroes: NLB has 16 bits.
	MaxBlocks = 1 << 16
	// MaxRanges is the most ranges of one Dataset Management command.
	MaxRanges = 256
	// RangeLen is one range of Dataset Management on the wire, bytes.
	RangeLen = 16
	// MaxListed is the most namespaces of one Identify list or changed-namespace log.
	MaxListed = 1024
	// MaxGroups bounds the ANA groups kept of one log, and MaxGroupMembers the
	// namespaces kept of all of them together.
	MaxGroups       = 1024
	MaxGroupMembers = 65536
	// MaxRecords bounds the records kept of one discovery log.
	MaxRecords = 4096
	// MaxErrors bounds the entries kept of one error log: ELPE has 8 bits.
	MaxErrors = 256
	// MaxRegistrants bounds the registrants kept of one Reservation Report.
	MaxRegistrants = 1024
	// OwnMaxTransfer is the most bytes of one Read or Write where the
	// controller names no limit: targets that say "no limit" fail large ones (B-09).
	OwnMaxTransfer = 1 << 20
	// unreportedWriteZeroes bounds one Write Zeroes, bytes, where neither WZSL
	// nor MDTS does: a longer one could outlast the command timeout.
	unreportedWriteZeroes = 32 << 20
	minBlockShift         = 9
	maxBlockShift         = 20 // larger block sizes are nonsense
	maxTransferShift      = 31 // a transfer limit is kept within 2^31 bytes
)
