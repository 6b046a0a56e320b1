package sim

import (
	"fmt"
	"math/bits"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/device"
	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	"github.com/csi-mpath/csi-mpath/pkg/nvmetcp/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/target/serve"
	"github.com/csi-mpath/csi-mpath/pkg/target/subsystem"
)

// nvmeFront is the front of NVMe/TCP.
type nvmeFront struct{ *subsystem.Machine }

func powerNVMe(set *Setup, d *disk, size uint64) (front, error) {
	capsule := int(min(set.FirstBurst, subsystem.MaxInCapsule))
	if set.NoImmediate {
		capsule = subsystem.NoInCapsule
	}
	m, err := subsystem.NewMachine(subsystem.Config{Name: subsystemName, Depth: set.TargetDepth, Queues: set.Queues,
		InCapsule: capsule, MaxH2CData: pieces(set.FirstBurst), MaxC2HData: pieces(set.FirstBurst), R2TSize: pieces(set.MaxBurst),
		TransferShift: set.transferShift(), Align: uint8(set.Align), NoSuccess: set.NoSuccess, NoTBKAS: set.NoTBKAS, Quiesce: set.Quiesce,
		Namespaces: []subsystem.Namespace{{ID: lunNumber, Store: d, WriteThrough: set.WriteThrough,
			Device: subsystem.Device{BlockSize: uint32(set.BlockSize), Size: size}}}})
	return &nvmeFront{m}, err
}

// pieces makes a length of a setup one that data PDUs may have.
func pieces(n uint) uint32 { return uint32(max(n&^3, pdu.MinH2CData)) }

// transferShift is MDTS for MaxTransfer, which is 8 KiB at least.
func (s *Setup) transferShift() uint8 {
	return uint8(max(bits.Len(s.MaxTransfer/4096), 2) - 1)
}

// keepAlive is the keep alive timeout of a fence by time.
func (s *Setup) keepAlive() time.Duration {
	ticks := time.Duration(3)
	if s.NoTBKAS {
		ticks = 2
	}
	return ((s.Fence - s.Quiesce) / ticks).Truncate(keepAliveStep)
}

func protocolNVMe(set *Setup) (device.Protocol, error) {
	return device.NVMe{Subsystem: subsystemName, NSID: lunNumber, HostNQN: hostNQN, KeepAlive: set.keepAlive(), Queues: set.HostQueues,
		HeaderDigest: set.Digests, DataDigest: set.Digests}, nil
}

// windowNVMe: a queue of n entries holds one command less, and the host keeps up
// to keptBack of those, half of them at most, for what is no request's.
func windowNVMe(set *Setup) int {
	most := min(set.Depth+keptBack, set.TargetDepth-1)
	return min(set.Depth, most-min(keptBack, most/2))
}

func (f *nvmeFront) jobs(run func(job func() error, done func(error))) { f.Run = run }

func (f *nvmeFront) tally() tally {
	s := f.Stats()
	return tally{late: s.LateWrites, logins: s.Connects, aborted: s.Aborted}
}

// anaStates: what is neither usable nor in transition does not differ much.
var anaStates = map[string]nvme.AccessState{optimized: nvme.Optimized, "non-optimized": nvme.NonOptimized, "standby": nvme.Inaccessible,
	"unavailable": nvme.Inaccessible, "offline": nvme.PersistentLoss, "transitioning": nvme.Changing}

func (f *nvmeFront) access(group uint16, state string) { f.SetANA(group, 0, anaStates[state]) }

func (f *nvmeFront) busy(n int, full bool) {
	st := nvme.NamespaceNotReady
	if full {
		st = nvme.CommandInterrupted.After(1)
	}
	_ = f.Answer(serve.Match{Count: n}, st)
}

func (f *nvmeFront) grow(size uint64, foreign func(portal int) bool) {
	_ = f.Resize(lunNumber, size)
	for p := 1; ; p++ { // those that were told something of their own before
		d, err := f.DeviceAt(p, lunNumber)
		if err != nil {
			return
		}
		if !foreign(p) && d.Size != size {
			d.Size = size
			_ = f.SetDevice(p, lunNumber, d)
			f.NamespaceChanged(p, lunNumber)
		}
	}
}

func (f *nvmeFront) swap(portal int, size uint64) (back func(size uint64) error, err error) {
	ours, err := f.DeviceAt(portal, lunNumber)
	if err != nil {
		return nil, err
	}
	show := func(d subsystem.Device, size uint64) error {
		d.Size = size
		err := f.SetDevice(portal, lunNumber, d)
		f.NamespaceChanged(portal, lunNumber)
		return err
	}
	other := ours
	other.Identity = subsystem.Derive(subsystemName, lunNumber+1)
	return func(size uint64) error { return show(ours, size) }, show(other, size)
}

// tellPower implements front: there is no word for it.
func (f *nvmeFront) tellPower(int) bool { return true }

func (f *nvmeFront) dialect(*link) dialect { return &nvmeDialect{events: map[uint16]bool{}} }

// nvmeDialect is the dialect of one queue's connection.
type nvmeDialect struct {
	admin  bool
	events map[uint16]bool // CIDs of event requests that are not answered
}

func (*nvmeDialect) frame() (header, keep int) { return pdu.CommonLen, pdu.CommandLen }

func (*nvmeDialect) size(h []byte) int {
	return int(h[4]) | int(h[5])<<8 | int(h[6])<<16 | int(h[7])<<24
}

// hears implements dialect: the news of another volume are an event.
func (d *nvmeDialect) hears(s *spy, b []byte) {
	var c nvme.Completion
	if pdu.Type(b[0]) != pdu.TypeCapsuleResp || c.Decode(pdu.Entry(b)) != nil || !d.events[c.CID] {
		return
	}
	delete(d.events, c.CID)
	if c.Status.OK() && nvme.ParseEvent(c.Result) == nvme.NamespaceChanged && s.l.path.foreign {
		s.heard = true
		s.l.array.tell("portal %s: the evidence was received", s.l.path.address)
	}
}

// handled implements dialect. The controller's other connections have senders of
// their own, which may have gathered by now what they are about to send: it is on
// its way once nothing moves any more, and time does.
func (*nvmeDialect) handled(s *spy) {
	p := s.l.path
	s.l.w.after(1, func() {
		for _, l := range p.links {
			l.spy.armed = p.foreign
		}
	})
}

// moves implements dialect.
func (d *nvmeDialect) moves(s *spy, b []byte) string {
	var c nvme.Command
	switch pdu.Type(b[0]) {
	case pdu.TypeH2CTerm:
		if !s.l.spoiled {
			s.l.array.broken("portal %s: the host ended a connection for an error of the target", s.l.path.address)
		}
		return ""
	case pdu.TypeCapsuleCmd:
	default:
		return ""
	}
	if c.Decode(pdu.Entry(b)) != nil {
		return ""
	}
	switch {
	case c.Opcode == nvme.OpFabrics && c.Fabrics() == nvme.Connect:
		if v, bad := nvme.ParseConnect(&c); bad.OK() && v.QueueID == 0 {
			d.admin = true
		}
	case c.Opcode == nvme.OpFabrics:
	case d.admin && c.Opcode == nvme.AdminAsyncEvent:
		d.events[c.CID] = true
	case !d.admin:
		return fmt.Sprintf("opcode %#02x of command %#x", uint8(c.Opcode), c.CID)
	}
	return ""
}
