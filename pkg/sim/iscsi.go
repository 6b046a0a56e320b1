package sim

import (
	"fmt"

	"github.com/csi-mpath/csi-mpath/pkg/device"
	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
	"github.com/csi-mpath/csi-mpath/pkg/target"
	"github.com/csi-mpath/csi-mpath/pkg/target/serve"
)

// iscsiFront is the front of iSCSI.
type iscsiFront struct{ *target.Machine }

func powerISCSI(set *Setup, d *disk, size uint64) (front, error) {
	m, err := target.NewMachine(target.Config{Name: targetName, MaxBurst: uint32(set.MaxBurst), FirstBurst: uint32(set.FirstBurst),
		Depth: set.TargetDepth, InitialR2T: set.InitialR2T, NoImmediate: set.NoImmediate, PowerOn: set.PowerOn,
		LUNs: []target.LUN{{Number: lunNumber, Store: d, WriteThrough: set.WriteThrough,
			Device: target.Device{BlockSize: uint32(set.BlockSize), Size: size, MaxTransfer: uint32(set.MaxTransfer)}}}})
	return &iscsiFront{m}, err
}

func protocolISCSI(set *Setup) (device.Protocol, error) {
	lun, err := scsi.LUNFromNumber(lunNumber)
	return device.ISCSI{Target: targetName, LUN: lun, Initiator: hostName, FenceTimeout: set.Fence}, err
}

func (f *iscsiFront) jobs(run func(job func() error, done func(error))) { f.Run = run }

func (f *iscsiFront) tally() tally {
	s := f.Stats()
	return tally{s.LateWrites, s.Reinstated, s.Logins, s.Aborted}
}

var aluaStates = map[string]scsi.AccessState{optimized: scsi.Optimized, "non-optimized": scsi.NonOptimized,
	"standby": scsi.Standby, "unavailable": scsi.Unavailable, "offline": scsi.Offline, "transitioning": scsi.Transitioning}

func (f *iscsiFront) access(group uint16, state string) { f.SetALUA(group, aluaStates[state]) }

func (f *iscsiFront) busy(n int, full bool) {
	st := byte(scsi.StatusBusy)
	if full {
		st = scsi.StatusTaskSetFull
	}
	_ = f.Answer(serve.Match{Count: n}, st, scsi.Sense{})
}

func (f *iscsiFront) grow(size uint64, foreign func(portal int) bool) {
	_ = f.Resize(lunNumber, size)
	for p := 1; ; p++ { // those that were told something of their own before
		d, err := f.DeviceAt(p, lunNumber)
		if err != nil {
			return
		}
		if !foreign(p) && d.Size != size {
			d.Size = size
			_ = f.SetDevice(p, lunNumber, d)
		}
	}
}

// reused is what a target says of a number that means another volume now.
var reused = scsi.Sense{Key: scsi.KeyUnitAttention, ASC: 0x3F, ASCQ: 0x0E}

func (f *iscsiFront) swap(portal int, size uint64) (back func(size uint64) error, err error) {
	ours, err := f.DeviceAt(portal, lunNumber)
	if err != nil {
		return nil, err
	}
	show := func(d target.Device, size uint64) error {
		d.Size = size
		err := f.SetDevice(portal, lunNumber, d)
		f.Attention(portal, lunNumber, reused)
		return err
	}
	other := ours
	other.Identity = scsi.Identity{NAA: "6000000000000000000000000000000b", Serial: "OTHER"}
	return func(size uint64) error { return show(ours, size) }, show(other, size)
}

func (f *iscsiFront) tellPower(portal int) bool {
	if f.Sessions(portal) == 0 {
		return false
	}
	f.Attention(portal, lunNumber, powerOn)
	return true
}

// powerOn is POWER ON OCCURRED.
var powerOn = scsi.Sense{Key: scsi.KeyUnitAttention, ASC: 0x29, ASCQ: 0x01}

func (f *iscsiFront) dialect(*link) dialect { return iscsiDialect{} }

// iscsiDialect is the dialect of a session without digests.
type iscsiDialect struct{}

// maxSense is how much of a response's data is looked at, bytes.
const maxSense = 64

func (iscsiDialect) frame() (header, keep int) { return pdu.HeaderLen, pdu.HeaderLen + maxSense }

func (iscsiDialect) size(h []byte) int {
	d := pdu.DataLen(h)
	return pdu.HeaderLen + pdu.AHSLen(h) + d + pdu.Pad(d)
}

// hears implements dialect.
func (iscsiDialect) hears(s *spy, b []byte) {
	h := b[:pdu.HeaderLen]
	if op, _ := pdu.Op(h); op != pdu.OpSCSIResponse {
		return
	}
	sense, ok := scsi.ParseSense(pdu.Sense(b[pdu.HeaderLen:min(len(b), pdu.HeaderLen+pdu.DataLen(h))]))
	switch {
	case !ok || sense.Key != scsi.KeyUnitAttention:
	case sense.ASC == powerOn.ASC && sense.ASCQ == powerOn.ASCQ:
		s.l.array.powered[s.l.path.index] = false
		s.l.array.told.Add(1)
		s.l.array.tell("portal %s: POWER ON OCCURRED was received", s.l.path.address)
	case sense.ASC == reused.ASC && s.l.path.foreign:
		s.heard = true
		s.l.array.tell("portal %s: the evidence was received, of task %#x", s.l.path.address, pdu.ITT(h))
	}
}

// handled implements dialect: the session's own sender is held up by then.
func (iscsiDialect) handled(s *spy) { s.armed = s.l.path.foreign }

// moves implements dialect.
func (iscsiDialect) moves(_ *spy, h []byte) string {
	if op, _ := pdu.Op(h); op != pdu.OpSCSICommand {
		return ""
	}
	var p pdu.SCSICommand
	if p.Decode(h[:pdu.HeaderLen]) != nil || !movesBlocks(p.CDB[:]) {
		return ""
	}
	return fmt.Sprintf("opcode %#02x of task %#x", p.CDB[0], p.ITT)
}

func movesBlocks(cdb []byte) bool {
	cmd, _, ok := scsi.DecodeCDB(cdb)
	if !ok {
		return false
	}
	switch cmd.Op {
	case scsi.OpRead10, scsi.OpRead16, scsi.OpWrite10, scsi.OpWrite16, scsi.OpUnmap, scsi.OpWriteSame16,
		scsi.OpSyncCache10, scsi.OpSyncCache16:
		return true
	}
	return false
}
