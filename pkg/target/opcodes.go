package target

import (
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
)

// Pieces of CDB usage maps. The last byte of a CDB is CONTROL: nothing of it is
// looked at but NACA, which is refused.
const (
	all     = 0xff
	control = 0x04
	dpoFUA  = 0x18
)

// commands are what a unit does, for REPORT SUPPORTED OPERATION CODES. A test
// holds that the decoder takes these and no other.
var commands = []scsi.CommandUsage{
	{Usage: []byte{scsi.OpTestUnitReady, 0, 0, 0, 0, control}},
	{Usage: []byte{scsi.OpRequestSense, 1, 0, 0, all, control}},
	{Usage: []byte{scsi.OpRead6, 0x1f, all, all, all, control}},
	{Usage: []byte{scsi.OpWrite6, 0x1f, all, all, all, control}},
	{Usage: []byte{scsi.OpInquiry, 1, all, all, all, control}},
	{Usage: []byte{scsi.OpModeSelect6, 0x11, 0, 0, all, control}},
	{Usage: []byte{scsi.OpModeSense6, 0, all, 0, all, control}},
	{Usage: []byte{scsi.OpStartStopUnit, 1, 0, 0, 0xf7, control}},
	{Usage: []byte{scsi.OpPreventAllow, 0, 0, 0, 3, control}},
	{Usage: []byte{scsi.OpReadCapacity10, 0, 0, 0, 0, 0, 0, 0, 0, control}},
	{Usage: []byte{scsi.OpRead10, 0xe0 | dpoFUA, all, all, all, all, 0, all, all, control}},
	{Usage: []byte{scsi.OpWrite10, 0xe0 | dpoFUA, all, all, all, all, 0, all, all, control}},
	{Usage: []byte{scsi.OpWriteVerify10, 0xf6, all, all, all, all, 0, all, all, control}},
	{Usage: []byte{scsi.OpVerify10, 0xf6, all, all, all, all, 0, all, all, control}},
	{Usage: []byte{scsi.OpPrefetch10, 0x02, all, all, all, all, 0, all, all, control}},
	{Usage: []byte{scsi.OpSyncCache10, 0x02, all, all, all, all, 0, all, all, control}},
	{Usage: []byte{scsi.OpReadDefectData10, 0, 0x1f, 0, 0, 0, 0, all, all, control}},
	{Usage: []byte{scsi.OpWriteSame10, 0xf8, all, all, all, all, 0, all, all, control}},
	{Usage: []byte{scsi.OpUnmap, 1, 0, 0, 0, 0, 0, all, all, control}},
	{Usage: []byte{scsi.OpModeSelect10, 0x11, 0, 0, 0, 0, 0, all, all, control}},
	{Usage: []byte{scsi.OpModeSense10, 0, all, 0, 0, 0, 0, all, all, control}},
	reserveIn(scsi.ActionReadKeys), reserveIn(scsi.ActionReadReservation),
	reserveIn(scsi.ActionReportCaps), reserveIn(scsi.ActionReadFullStatus),
	reserveOut(scsi.ActionRegister), reserveOut(scsi.ActionReserve), reserveOut(scsi.ActionRelease),
	reserveOut(scsi.ActionClear), reserveOut(scsi.ActionPreempt), reserveOut(scsi.ActionPreemptAbort),
	reserveOut(scsi.ActionRegisterAndIgnore),
	long(scsi.OpRead16, 0xe0|dpoFUA), long(scsi.OpWrite16, 0xe0|dpoFUA), long(scsi.OpOrWrite16, 0xe0|dpoFUA),
	{Usage: []byte{scsi.OpCompareAndWrite, 0xe0 | dpoFUA, all, all, all, all, all, all, all, all, 0, 0, 0, all, 0, control}},
	long(scsi.OpWriteVerify16, 0xf6), long(scsi.OpVerify16, 0xf6), long(scsi.OpPrefetch16, 0x02),
	long(scsi.OpSyncCache16, 0x02), long(scsi.OpWriteSame16, 0xf9),
	{HasAction: true, Action: scsi.ActionReadCapacity16,
		Usage: []byte{scsi.OpServiceActionIn16, scsi.ActionReadCapacity16, 0, 0, 0, 0, 0, 0, 0, 0, all, all, all, all, 0, control}},
	{HasAction: true, Action: scsi.ActionGetLBAStatus,
		Usage: []byte{scsi.OpServiceActionIn16, scsi.ActionGetLBAStatus, all, all, all, all, all, all, all, all, all, all, all, all, 0, control}},
	{Usage: []byte{scsi.OpReportLUNs, 0, all, 0, 0, 0, all, all, all, all, 0, control}},
	{HasAction: true, Action: scsi.ActionReportTPG,
		Usage: []byte{scsi.OpMaintenanceIn, 0xe0 | scsi.ActionReportTPG, 0, 0, 0, 0, all, all, all, all, 0, control}},
	{HasAction: true, Action: scsi.ActionReportOpcodes,
		Usage: []byte{scsi.OpMaintenanceIn, scsi.ActionReportOpcodes, 0x87, all, all, all, all, all, all, all, 0, control}},
	{Usage: []byte{scsi.OpRead12, 0xe0 | dpoFUA, all, all, all, all, all, all, all, all, 0, control}},
	{Usage: []byte{scsi.OpWrite12, 0xe0 | dpoFUA, all, all, all, all, all, all, all, all, 0, control}},
	{Usage: []byte{scsi.OpWriteVerify12, 0xf6, all, all, all, all, all, all, all, all, 0, control}},
	{Usage: []byte{scsi.OpVerify12, 0xf6, all, all, all, all, all, all, all, all, 0, control}},
	{Usage: []byte{scsi.OpReadDefectData12, 0x1f, 0, 0, 0, 0, all, all, all, all, 0, control}},
}

func reserveIn(action byte) scsi.CommandUsage {
	return scsi.CommandUsage{HasAction: true, Action: uint16(action),
		Usage: []byte{scsi.OpPersistentReserveIn, action, 0, 0, 0, 0, 0, all, all, control}}
}

func reserveOut(action byte) scsi.CommandUsage {
	return scsi.CommandUsage{HasAction: true, Action: uint16(action),
		Usage: []byte{scsi.OpPersistentReserveOut, action, all, 0, 0, all, all, all, all, control}}
}

// long is a media access command of 16 bytes.
func long(op, flags byte) scsi.CommandUsage {
	return scsi.CommandUsage{Usage: []byte{op, flags, all, all, all, all, all, all, all, all, all, all, all, all, 0, control}}
}

// offers reports whether the unit does a command.
func (u *unit) offers(c *scsi.CommandUsage) bool { return c.Op() != scsi.OpUnmap || !u.Thick }

// reportCommands does REPORT SUPPORTED OPERATION CODES (SPC-4 6.35).
func (m *Machine) reportCommands(t *task) {
	option, timeouts := t.cmd.Bits&^scsi.ReportTimeouts, t.cmd.Bits&scsi.ReportTimeouts != 0
	var list []scsi.CommandUsage
	var found *scsi.CommandUsage
	known, acts := false, false // the operation code is, and has service actions
	for i := range commands {
		c := &commands[i]
		if !t.unit.offers(c) {
			continue
		}
		list = append(list, *c)
		if c.Op() == t.cmd.Of {
			known, acts = true, c.HasAction
			if !acts && t.cmd.OfAction == 0 || option == scsi.ReportOpcode || acts && c.Action == t.cmd.OfAction {
				found = c
			}
		}
	}
	switch {
	case option == scsi.ReportAll:
		m.reply(t, scsi.AppendAllCommands(nil, list, timeouts))
	case option == scsi.ReportOpcode && acts, option == scsi.ReportAction && known && !acts:
		m.check(t, scsi.SenseInvalidCDB)
	default:
		m.reply(t, scsi.AppendOneCommand(nil, found, timeouts))
	}
}

// defects does READ DEFECT DATA: there are none.
func (m *Machine) defects(t *task) {
	b := []byte{0, t.cmd.Bits, 0, 0}
	if t.cmd.Extended {
		b = append(b, 0, 0, 0, 0)
	}
	m.reply(t, b)
}
