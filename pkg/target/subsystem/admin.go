package subsystem

import (
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/nvme"
)

// adminWants is the data that an admin command moves, bytes.
func (t *task) adminWants() (uint32, nvme.Status) {
	switch t.cmd.Opcode {
	case nvme.AdminIdentify:
		return nvme.IdentifyLen, nvme.Success
	case nvme.AdminGetLog:
		n := nvme.ParseLogRequest(&t.cmd).Len
		if n == 0 || n > maxLogRead {
			return 0, nvme.InvalidField.Final()
		}
		return n, nvme.Success
	case nvme.AdminSetFeatures:
		if t.cmd.Feature() == nvme.FeatureHostBehavior {
			return nvme.HostBehaviorLen, nvme.Success
		}
	case nvme.AdminGetFeatures:
		if t.cmd.Feature() == nvme.FeatureHostID {
			return 16, nvme.Success
		}
	}
	return 0, nvme.Success
}

// executeAdmin does an admin command.
func (t *task) executeAdmin() {
	switch t.cmd.Opcode {
	case nvme.AdminIdentify:
		t.identify()
	case nvme.AdminGetLog:
		t.getLog()
	case nvme.AdminSetFeatures:
		t.setFeature()
	case nvme.AdminGetFeatures:
		t.getFeature()
	case nvme.AdminAsyncEvent:
		t.asyncEvent()
	case nvme.AdminAbort:
		t.abortCommand()
	case nvme.AdminKeepAlive:
		x := t.q.ctrl
		x.seen = t.m.Now()
		t.answer(nvme.Success)
	default:
		t.answer(nvme.InvalidOpcode.Final())
	}
}

// abortCommand does Abort (Base 5.1.1): what is under way in a store, or still
// gets its data, is not aborted.
func (t *task) abortCommand() {
	sqid, cid := t.cmd.AbortTarget()
	missed := uint64(1)
	if q := t.q.ctrl.queues[sqid]; q != nil {
		o := q.tasks[cid]
		if o != nil && o != t && o.Waits() && !o.Running {
			t.m.Cancel(&o.Task)
			o.answer(nvme.AbortRequested)
			missed = 0
		}
	}
	t.complete(nvme.Success, missed)
}

// value reads a feature; ok false: there is none such.
func (t *task) value(id uint8) (v uint32, ok bool) {
	x := t.q.ctrl
	switch id {
	case nvme.FeatureQueues:
		return nvme.Queues(x.granted), !x.discovery
	case nvme.FeatureAsyncConfig:
		return x.events, true
	case nvme.FeatureKeepAlive:
		return uint32(x.keepAlive / time.Millisecond), true
	case nvme.FeatureWriteCache:
		return 1, !x.discovery
	case nvme.FeatureReserveNotice:
		return x.reserveMask, !x.discovery
	case nvme.FeatureHostBehavior:
		return 0, true
	case nvme.FeatureReservePersistent:
		return 0, !x.discovery && t.m.namespaces[t.cmd.NSID] != nil
	}
	return 0, false
}

func (t *task) getFeature() {
	x := t.q.ctrl
	if t.cmd.Feature() == nvme.FeatureHostID {
		if t.cmd.CDW11&nvme.HostIDExtended == 0 {
			t.answer(nvme.InvalidField.Final())
			return
		}
		t.reply(x.hostID[:])
		return
	}
	v, ok := t.value(t.cmd.Feature())
	if !ok || t.cmd.FeatureSelect() > 1 {
		t.answer(nvme.InvalidField.Final())
		return
	}
	t.complete(nvme.Success, uint64(v))
}

func (t *task) setFeature() {
	x, v := t.q.ctrl, t.cmd.CDW11
	if _, ok := t.value(t.cmd.Feature()); !ok {
		bad := nvme.InvalidField.Final()
		if t.cmd.Feature() == nvme.FeatureHostID {
			bad = nvme.SequenceError.Final() // Connect has set it
		}
		t.answer(bad)
		return
	}
	if t.cmd.FeatureSave() {
		t.answer(nvme.NotSaveable.Final())
		return
	}
	result := uint64(0)
	switch t.cmd.Feature() {
	case nvme.FeatureQueues:
		if len(x.queues) > 1 || v&0xFFFF == 0xFFFF || v>>16 == 0xFFFF {
			t.answer(nvme.SequenceError.Final())
			return
		}
		x.granted = min(nvme.ParseQueues(v), t.m.cfg.Queues)
		result = uint64(nvme.Queues(x.granted))
	case nvme.FeatureAsyncConfig:
		x.events = v
		t.m.tell(x)
	case nvme.FeatureKeepAlive:
		if v > maxKeepAlive {
			t.answer(nvme.KeepAliveInvalid.Final())
			return
		}
		x.setKeepAlive(v)
		x.seen = t.m.Now()
		t.m.Rouse()
	case nvme.FeatureReserveNotice:
		x.reserveMask = v
	case nvme.FeatureHostBehavior:
		x.retryDelays = nvme.TakesRetryDelays(t.data)
	default:
		t.answer(nvme.NotChangeable.Final())
		return
	}
	t.complete(nvme.Success, result)
}

// identify does Identify (Base 5.1.13).
func (t *task) identify() {
	if t.q.ctrl.discovery && t.cmd.CNS() != nvme.CNSController {
		t.answer(nvme.InvalidField.Final())
		return
	}
	switch t.cmd.CNS() {
	case nvme.CNSController:
		t.reply(t.m.identifyController(t.q.ctrl).Append(nil))
	case nvme.CNSActive:
		t.identifyActive()
	case nvme.CNSNVMController:
		if t.cmd.CommandSetID() != 0 {
			t.answer(nvme.InvalidField.Final())
			return
		}
		l := nvme.CommandLimits{Ranges: nvme.MaxRanges - 1, RangeBlocks: maxZero / 4096, DatasetBlocks: maxZero / 4096}
		t.reply(l.Append(nil))
	case nvme.CNSNamespace, nvme.CNSDescriptors:
		t.identifyNamespace()
	default:
		t.answer(nvme.InvalidField.Final())
	}
}

func (t *task) identifyActive() {
	if t.cmd.NSID >= nvme.AllNamespaces-1 {
		t.answer(nvme.InvalidNamespace.Final())
		return
	}
	var ids []uint32
	for _, id := range t.m.ids {
		if id > t.cmd.NSID {
			ids = append(ids, id)
		}
	}
	t.reply(nvme.AppendActive(nil, ids...))
}

func (t *task) identifyNamespace() {
	id, descriptors := t.cmd.NSID, t.cmd.CNS() == nvme.CNSDescriptors
	n := t.m.namespaces[id]
	switch {
	case n == nil && (id == 0 || id > MaxNamespace || descriptors):
		t.answer(nvme.InvalidNamespace.Final())
	case n == nil: // one that might be, but is not active
		t.reply(make([]byte, nvme.IdentifyLen))
	case descriptors:
		d := nvme.Descriptors{Identity: t.q.ctrl.portal.device(n).Identity}
		t.reply(d.Append(nil))
	default:
		v := describe(n, t.q.ctrl.portal.device(n))
		v.WriteProtected = t.m.readOnly(n, t.q.ctrl.host)
		t.reply(v.Append(nil))
	}
}

// describe is Identify Namespace of n that looks like d.
func describe(n *namespace, d *Device) nvme.Namespace {
	v := nvme.Namespace{BlockShift: 9, Shared: true, Reservations: nvme.ReserveAll | nvme.ReserveIgnore,
		Group: n.ANAGroup}
	if d.BlockSize == 4096 {
		v.BlockShift = 12
	}
	v.Size = d.Size / uint64(d.BlockSize)
	v.Capacity, v.Used = v.Size, v.Size
	if !n.Thick {
		v.Features, v.Deallocate = nvme.FeatureThin, nvme.DeallocatedZero|nvme.DeallocateZeroes
	}
	copyHex(v.NGUID[:], d.NGUID)
	copyHex(v.EUI64[:], d.EUI64)
	return v
}

// identifyController is Identify Controller.
func (m *Machine) identifyController(x *controller) *nvme.Controller {
	v := &nvme.Controller{Serial: m.cfg.Serial, Model: m.cfg.Model, Firmware: "1", ControllerID: x.id, Version: version,
		MDTS: m.cfg.TransferShift, Attributes: nvme.CtrattHostID128, Aborts: 3, AsyncEvents: maxAsync - 1, LogBits: 1 << 2, // extended offsets
		Errors: maxErrors - 1, KeepAliveStep: uint16(keepAliveStep / (100 * time.Millisecond)), Quiesce: uint16(m.cfg.Quiesce / time.Millisecond),
		MaxCommands: uint16(m.cfg.Depth), SGLS: nvme.SGLSupported | 1<<20, // offsets in capsules
		Subsystem: m.cfg.Name, CapsuleUnits: uint32(nvme.CommandLen+m.cfg.InCapsule) / 16, ResponseUnits: 1, MaxSGLs: 1}
	v.RetryDelays[0] = uint16((m.cfg.RetryDelay + 99*time.Millisecond) / (100 * time.Millisecond))
	if !m.cfg.NoTBKAS {
		v.Attributes |= nvme.CtrattTBKAS
	}
	if x.discovery {
		v.Kind, v.Events, v.Subsystem = nvme.ControllerDiscovery, nvme.AsyncDiscovery, nvme.DiscoveryNQN
		return v
	}
	v.Kind, v.Events = nvme.ControllerIO, nvme.AsyncNamespace|nvme.AsyncANA
	v.CMIC = nvme.CMICPorts | nvme.CMICControllers | nvme.CMICANA
	v.ANATransition, v.ANACaps = uint8(m.cfg.TransitionTime/time.Second), anaCaps
	v.ANAGroupMax, v.ANAGroups = MaxANAGroup, MaxANAGroup
	v.Namespaces, v.MaxAllowed = MaxNamespace, MaxNamespace
	v.SQES, v.CQES = 0x66, 0x44
	v.ONCS = nvme.ONCSCompare | nvme.ONCSDataset | nvme.ONCSWriteZeroes | nvme.ONCSReserve
	v.VolatileCache = 3 << 1 // Flush of all namespaces too
	if !m.cfg.NoCache {
		v.VolatileCache |= 1
	}
	return v
}

// anaCaps is ANACAP: all five states are reported, and a namespace's group does
// not change.
const anaCaps = 0x1F | 1<<6

func copyHex(dst []byte, s string) {
	for i := 0; i+1 < len(s) && i/2 < len(dst); i += 2 {
		dst[i/2] = nibble(s[i])<<4 | nibble(s[i+1])
	}
}

// nibble is the value of a hex digit; the identity was checked.
func nibble(c byte) byte {
	if c >= 'a' {
		return c - 'a' + 10
	}
	return c - '0'
}
