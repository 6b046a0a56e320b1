package target

import (
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
	"github.com/csi-mpath/csi-mpath/pkg/target/serve"
)

// kindOf sorts a command.
func kindOf(c *scsi.Command) Kind {
	switch c.Op {
	case scsi.OpRead10, scsi.OpRead16, scsi.OpRead12, scsi.OpRead6:
		return Reads
	case scsi.OpWrite10, scsi.OpWrite16, scsi.OpWrite12, scsi.OpWrite6, scsi.OpCompareAndWrite, scsi.OpOrWrite16,
		scsi.OpWriteVerify10, scsi.OpWriteVerify12, scsi.OpWriteVerify16:
		return Writes
	case scsi.OpSyncCache10, scsi.OpSyncCache16:
		return Flushes
	case scsi.OpUnmap:
		return Trims
	case scsi.OpWriteSame10, scsi.OpWriteSame16:
		if c.Flags&scsi.Unmap != 0 {
			return Trims
		}
		return Zeroes
	}
	return Others
}

// Traits implements serve.Command.
func (t *task) Traits() serve.Traits {
	k := kindOf(&t.cmd)
	v := serve.Traits{Kind: k, Portal: t.sess.portal.index, First: t.cmd.LBA, End: t.cmd.LBA + uint64(t.cmd.Blocks)}
	v.Ranged = k != Others && k != Flushes && t.cmd.Op != scsi.OpUnmap
	if t.unit != nil {
		v.Unit, v.HasUnit = t.unit.Number, true
	}
	return v
}

// NoSpace is the sense of a write that found no space, for Answer. A RAM store
// with SetSpace is out of space on its own.
var NoSpace = senseNoSpace

// Answer answers the commands of match with status, and sense if that is CHECK
// CONDITION, without executing them.
func (m *Machine) Answer(match Match, status byte, sense scsi.Sense) error {
	return m.AnswerWith(match, func(c serve.Command) {
		t := c.(*task) // as all tasks of this machine
		if status == scsi.StatusCheckCondition {
			m.check(t, sense)
		} else {
			m.answer(t, status, nil)
		}
	})
}
