package iscsi

import (
	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
	"github.com/csi-mpath/csi-mpath/pkg/wire"
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
	k, err := r.m.find(itt)
	if k == nil || err != nil {
		return err // answered in the meantime
	}
	if response != pdu.TMFComplete {
		return ErrCommandTimeout
	}
	if c := r.m.of(k).ctl; c != nil {
		c.Err, c.response = ErrCommandTimeout, scsi.StatusTaskAborted
	}
	r.m.Answer(k, aborted)
	return nil
}

// resetDone ends the tasks of the unit that were sent before the reset, and no
// others.
func (r *receiver) resetDone(lun uint64, seq uint64) {
	for i := range r.m.extra {
		k, x := r.m.Tasks.At(i), &r.m.extra[i]
		if !k.Live() || k.Cmd.Seq >= seq {
			continue
		}
		switch {
		case x.lun != nil && uint64(x.lun.lun) == lun:
			r.m.Answer(k, aborted)
		case x.ctl != nil && x.ctl.kind == ctlExec && x.ctl.lun == lun:
			x.ctl.response = scsi.StatusTaskAborted
			r.m.Answer(k, aborted)
		}
	}
}

// review looks for tasks that are too old. Reader only; the ticker asks for it.
func (r *receiver) review(now, commandTicks, abortTicks uint32) error {
	aborts := 0
	for i := range r.m.extra {
		k, x := r.m.Tasks.At(i), &r.m.extra[i]
		if !k.Live() {
			continue
		}
		age := k.Age(now)
		tmf := x.ctl != nil && x.ctl.kind == ctlTMF
		switch {
		case tmf && age >= abortTicks:
			return ErrCommandTimeout
		case tmf:
			aborts++
		case age < commandTicks || x.aborting:
		case x.ctl != nil && x.ctl.kind != ctlExec:
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
func (r *receiver) abort(k *wire.Task) bool {
	c := r.m.newControl(ctlTMF)
	if c == nil {
		return false
	}
	x := r.m.of(k)
	x.aborting = true
	c.function, c.refTag, c.refSN = pdu.TMFAbortTask, k.ID(), x.cmdSN
	if x.ctl != nil {
		c.lun = x.ctl.lun
	} else {
		c.lun = uint64(x.lun.lun)
	}
	r.m.queue(c)
	return true
}
