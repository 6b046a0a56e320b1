package iscsi

import (
	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
)

// Recovery within a session: ABORT TASK for a command that is too old, LOGICAL
// UNIT RESET on request. What these cannot end, the end of the session does.

// aborted is a command ended by our own abort, acknowledged: not in doubt.
var aborted = blk.Verdict{Class: blk.Aborted, Status: blk.IOError}

func (r *receiver) tmfResponse(h []byte) error {
	var p pdu.TMFResponse
	if err := p.Decode(h); err != nil {
		return violation("%v", err)
	}
	r.m.window(p.Window, true)
	return r.tmfDone(p.ITT, p.Response)
}

// tmfDone ends a task management function and the tasks it was for.
func (r *receiver) tmfDone(itt uint32, response uint8) error {
	var tmf control
	err := r.finish(itt, ctlTMF, func(c *control) {
		c.response = response
		tmf.function, tmf.refTag, tmf.lun, tmf.seq = c.function, c.refTag, c.lun, c.seq
	})
	if err != nil || tmf.function == 0 {
		return err
	}
	if tmf.function == pdu.TMFAbortTask {
		return r.abortDone(tmf.refTag, response)
	}
	if tmf.function == pdu.TMFLUNReset && response == pdu.TMFComplete {
		r.resetDone(tmf.lun, tmf.seq)
	}
	return nil
}

// abortDone ends the command of an acknowledged abort. A target that does not
// know a command it has not answered has lost it: only the end of the session
// makes that certain.
func (r *receiver) abortDone(itt uint32, response uint8) error {
	k, err := r.m.tasks.find(itt)
	if k == nil || err != nil {
		return err // answered in the meantime
	}
	if response != pdu.TMFComplete {
		return ErrCommandTimeout
	}
	if k.ctl != nil {
		k.ctl.err, k.ctl.response = ErrCommandTimeout, scsi.StatusTaskAborted
	}
	r.m.answer(k, aborted)
	return nil
}

// resetDone ends the tasks of the unit that were sent before the reset, and no
// others.
func (r *receiver) resetDone(lun uint64, seq uint64) {
	for i := range r.m.tasks.table {
		k := &r.m.tasks.table[i]
		if k.live.Load() == 0 || k.cmd.Seq >= seq {
			continue
		}
		switch {
		case k.lun != nil && uint64(k.lun.lun) == lun:
			r.m.answer(k, aborted)
		case k.ctl != nil && k.ctl.kind == ctlExec && k.ctl.lun == lun:
			k.ctl.response = scsi.StatusTaskAborted
			r.m.answer(k, aborted)
		}
	}
}

// review looks for tasks that are too old. Reader only; the ticker asks for it.
func (r *receiver) review(now, commandTicks, abortTicks uint32) error {
	aborts := 0
	for i := range r.m.tasks.table {
		k := &r.m.tasks.table[i]
		live := k.live.Load()
		if live == 0 {
			continue
		}
		age := now - uint32(live>>32)
		tmf := k.ctl != nil && k.ctl.kind == ctlTMF
		switch {
		case tmf && age >= abortTicks:
			return ErrCommandTimeout
		case tmf:
			aborts++
		case age < commandTicks || k.aborting:
		case k.ctl != nil && k.ctl.kind != ctlExec:
			return ErrCommandTimeout
		case aborts < maxAborts:
			if !r.abort(k) {
				return ErrCommandTimeout
			}
			aborts++
		}
	}
	return nil
}

// abort queues an ABORT TASK for k.
func (r *receiver) abort(k *task) bool {
	c := r.m.newControl(ctlTMF)
	if c == nil {
		return false
	}
	k.aborting = true
	c.function, c.refTag, c.refSN = pdu.TMFAbortTask, uint32(k.live.Load()), k.cmdSN
	if k.ctl != nil {
		c.lun = k.ctl.lun
	} else {
		c.lun = uint64(k.lun.lun)
	}
	r.m.queue(c)
	return true
}

// touch notes that l wants a BatchEnd for a lane.
func (r *receiver) touch(l *LUN, lane uint64) {
	if l.touched == 0 {
		r.touched = append(r.touched, l)
	}
	l.touched |= lane
}

// endBatch tells the units that completed something.
func (r *receiver) endBatch() {
	for i, l := range r.touched {
		lanes := l.touched
		l.touched = 0
		r.touched[i] = nil
		l.sink.BatchEnd(lanes)
	}
	r.touched = r.touched[:0]
}
