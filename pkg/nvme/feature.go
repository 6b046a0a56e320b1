package nvme

// Feature identifiers (Base 5.1.25.1).
const (
	FeatureWriteCache        = 0x06
	FeatureQueues            = 0x07
	FeatureAsyncConfig       = 0x0B
	FeatureKeepAlive         = 0x0F
	FeatureHostBehavior      = 0x16
	FeatureHostID            = 0x81
	FeatureReserveNotice     = 0x82
	FeatureReservePersistent = 0x83
)

// SetFeature sets a feature whose value is one dword. Some have data: the
// caller sets SGL then.
func SetFeature(nsid uint32, id uint8, value uint32) Command {
	e := command(AdminSetFeatures, nsid)
	e.CDW10, e.CDW11 = uint32(id), value
	return e
}

// GetFeature asks for the current value of a feature.
func GetFeature(nsid uint32, id uint8) Command {
	e := command(AdminGetFeatures, nsid)
	e.CDW10 = uint32(id)
	return e
}

// Feature is the identifier of a Get or Set Features.
func (c *Command) Feature() uint8 { return uint8(c.CDW10) }

// FeatureSave is SV of Set Features.
func (c *Command) FeatureSave() bool { return c.CDW10>>31 != 0 }

// FeatureSelect is SEL of Get Features: 0 current, 1 default, 2 saved, 3 supported.
func (c *Command) FeatureSelect() uint8 { return uint8(c.CDW10 >> 8 & 7) }

// Queues is the value of FeatureQueues for n I/O queues each way, 1..65535.
func Queues(n int) uint32 {
	v := uint32(max(1, min(n, 65535)) - 1)
	return v | v<<16
}

// ParseQueues reads how many I/O queues the value grants, 1..65536: the lesser
// of the two numbers, since a Fabrics queue is a pair.
func ParseQueues(v uint32) int { return int(min(v&0xFFFF, v>>16)) + 1 }

// HostBehavior is the data of FeatureHostBehavior (Base 5.1.25.1.14): a host
// that waits where a status asks for that (ACRE). Controllers never ask others.
func HostBehavior() []byte { return append([]byte{1}, make([]byte, HostBehaviorLen-1)...) }

// TakesRetryDelays reads it.
func TakesRetryDelays(b []byte) bool { return len(b) > 0 && b[0]&1 != 0 }

// HostIDExtended is the value of FeatureHostID for 16 bytes.
const HostIDExtended = 1

// Asynchronous event configuration, the value of FeatureAsyncConfig, and
// Identify's OAES, which has the same bits.
const (
	AsyncNamespace uint32 = 1 << 8
	AsyncANA       uint32 = 1 << 11
	AsyncDiscovery uint32 = 1 << 31
)

// KeepAlive is the Keep Alive command (Base 5.1.14).
func KeepAlive() Command { return command(AdminKeepAlive, 0) }

// AsyncEvent asks for one event (Base 5.1.2).
func AsyncEvent() Command { return command(AdminAsyncEvent, 0) }

// Abort asks to abort command cid of queue sqid (Base 5.1.1).
func Abort(sqid, cid uint16) Command {
	e := command(AdminAbort, 0)
	e.CDW10 = uint32(sqid) | uint32(cid)<<16
	return e
}

// AbortTarget is the command that an Abort means.
func (c *Command) AbortTarget() (sqid, cid uint16) { return uint16(c.CDW10), uint16(c.CDW10 >> 16) }

// Aborted reads Dword 0 of an Abort's completion: whether the command was aborted.
func Aborted(result uint64) bool { return result&1 == 0 }
