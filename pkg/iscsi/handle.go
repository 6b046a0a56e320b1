package iscsi

import (
	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
	"github.com/csi-mpath/csi-mpath/pkg/wire"
)

// handle takes one whole PDU that is not Data-In.
func (r *receiver) handle(op pdu.Opcode, h, data []byte) error {
	switch op {
	case pdu.OpSCSIResponse:
		return r.scsiResponse(h, data)
	case pdu.OpR2T:
		return r.r2t(h)
	case pdu.OpNOPIn:
		return r.nopIn(h)
	case pdu.OpTMFResponse:
		return r.tmfResponse(h)
	case pdu.OpTextResponse:
		return r.textResponse(h, data)
	case pdu.OpLogoutResponse:
		return r.logoutResponse(h)
	case pdu.OpAsync:
		return r.async(h, data)
	case pdu.OpReject:
		return r.reject(h, data)
	}
	return violation("%v in the full feature phase", op)
}

// scsiResponse ends a command (RFC 7143 11.4).
func (r *receiver) scsiResponse(h, data []byte) error {
	var p pdu.SCSIResponse
	if err := p.Decode(h); err != nil {
		return violation("%v", err)
	}
	r.m.window(p.Window, true)
	k, err := r.m.find(p.ITT)
	if k == nil || err != nil {
		return err
	}
	return r.status(k, p.Response, p.Status, p.Residual, pdu.Sense(data))
}

// shortTransfer is the verdict on GOOD status for less data than asked for:
// never a success. Another path may do better.
var shortTransfer = blk.Verdict{Class: blk.OtherPathOnce, Status: blk.IOError}

// status ends task k with what the target says of it.
func (r *receiver) status(k *wire.Task, response, status uint8, res pdu.Residual, sense []byte) error {
	if c := r.m.of(k).ctl; c != nil {
		if c.kind != ctlExec {
			return violation("SCSI status for a task that is no SCSI command")
		}
		c.response, c.residual = status, res
		c.sense = append([]byte(nil), sense...)
		if response != pdu.ResponseCompleted {
			c.Err = violation("iSCSI response code %#x", response)
		}
		// A unit attention is told once, with whichever command comes first: its
		// evidence is the unit's, whoever sent that one (I1, I4).
		if v := scsi.Classify(blk.Read, status, sense); v.Class == blk.Retry && v.Evidence != 0 {
			r.m.evidence(c.lun, false, v.Evidence)
		}
		r.m.Answer(k, blk.Verdict{})
		return nil
	}
	if response != pdu.ResponseCompleted {
		r.m.Answer(k, shortTransfer)
		return nil
	}
	v := scsi.Classify(k.Cmd.Op, status, sense)
	if v.Class == blk.Good {
		var err error
		if v, err = r.whole(k, v, res); err != nil {
			return err
		}
	}
	r.m.Answer(k, v)
	return nil
}

// whole checks that a read or write called good moved all its data. The
// others carry parameters, and tgt reports an underflow for every UNMAP.
func (r *receiver) whole(k *wire.Task, v blk.Verdict, res pdu.Residual) (blk.Verdict, error) {
	if op := k.Cmd.Op; op != blk.Read && op != blk.Write {
		return v, nil
	}
	want, got := k.Expected(), k.Cmd.Moved
	short := res.Count > 0 && (res.Underflow || res.Overflow)
	switch {
	case got == want && !short:
		return v, nil
	case short && (res.Overflow || res.Count <= want):
		return shortTransfer, nil
	}
	return v, violation("GOOD status for a %v of %d bytes after %d (residual %d)", k.Cmd.Op, want, got, res.Count)
}

// r2t queues the answer to a request for data (RFC 7143 11.8). The reader
// never sends: the job waits for the next holder of the sender flag.
func (r *receiver) r2t(h []byte) error {
	var p pdu.R2T
	if err := p.Decode(h); err != nil {
		return violation("%v", err)
	}
	r.m.window(p.Window, false)
	k, err := r.m.find(p.ITT)
	if k == nil || err != nil {
		return err
	}
	c := k.Cmd
	left := uint32(k.Size) - c.Moved
	switch {
	case k.Size == 0:
		return violation("R2T for a %v", c.Op)
	case p.TTT == pdu.NoTag:
		return violation("R2T without a target task tag")
	case p.R2TSN != k.Asked:
		return violation("R2T with R2TSN %d, expected %d", p.R2TSN, k.Asked)
	case p.Offset != c.Moved || p.Length == 0 || p.Length > left || p.Length > r.m.p.MaxBurst:
		return violation("R2T for %d bytes at %d; %d of %d bytes are asked for, MaxBurstLength is %d",
			p.Length, p.Offset, c.Moved, k.Size, r.m.p.MaxBurst)
	case k.Unsent() >= r.m.p.MaxOutstandingR2T:
		return violation("more than %d R2T outstanding", r.m.p.MaxOutstandingR2T)
	}
	r.m.Ask(k, p.TTT, p.Offset, p.Length)
	return nil
}

// nopIn is a ping or the answer to ours (RFC 7143 11.19).
func (r *receiver) nopIn(h []byte) error {
	var p pdu.NOPIn
	if err := p.Decode(h); err != nil {
		return violation("%v", err)
	}
	if p.ITT != pdu.NoTag {
		r.m.window(p.Window, true)
		return r.finish(p.ITT, ctlPing, func(*control) {})
	}
	// Its StatSN is the next one and is not used up.
	r.m.window(p.Window, false)
	if p.TTT == pdu.NoTag {
		return nil
	}
	if r.pongs.Add(1) > maxPings {
		return violation("more than %d pings at once", maxPings)
	}
	r.m.queue(&control{kind: ctlPong, lun: p.LUN, ttt: p.TTT})
	return nil
}

// finish ends the control with the given ITT; fill takes over the answer.
func (r *receiver) finish(itt uint32, kind controlKind, fill func(*control)) error {
	k, err := r.m.find(itt)
	if k == nil || err != nil {
		return err
	}
	c := r.m.of(k).ctl
	if c == nil || c.kind != kind {
		return violation("answer of the wrong kind to task %#x", itt)
	}
	fill(c)
	r.m.FinishControl(k, c.Err)
	return nil
}

// textResponse is one leg of a text exchange. Its tag stays taken: the next
// leg must use the same; who runs the exchange gives it back.
func (r *receiver) textResponse(h, data []byte) error {
	var p pdu.TextResponse
	if err := p.Decode(h); err != nil {
		return violation("%v", err)
	}
	r.m.window(p.Window, true)
	k, err := r.m.find(p.ITT)
	if k == nil || err != nil {
		return err
	}
	c := r.m.of(k).ctl
	if c == nil || c.kind != ctlText {
		return violation("Text Response to task %#x, which is no text exchange", p.ITT)
	}
	if !c.Fate.CompareAndSwap(wire.FateOpen, wire.FateAnswered) {
		r.m.FinishControl(k, nil)
		return nil
	}
	c.text, c.final, c.more, c.nextTTT = append([]byte(nil), data...), p.Final, p.Continue, p.TTT
	k.Unpublish()
	c.Done <- struct{}{}
	return nil
}

func (r *receiver) logoutResponse(h []byte) error {
	var p pdu.LogoutResponse
	if err := p.Decode(h); err != nil {
		return violation("%v", err)
	}
	r.m.window(p.Window, true)
	return r.finish(p.ITT, ctlLogout, func(c *control) { c.response = p.Response })
}

// async is an event of the target (RFC 7143 11.9).
func (r *receiver) async(h, data []byte) error {
	var p pdu.Async
	if err := p.Decode(h); err != nil {
		return violation("%v", err)
	}
	r.m.window(p.Window, true)
	switch p.Event {
	case pdu.AsyncSCSI:
		if v := scsi.Classify(blk.Flush, scsi.StatusCheckCondition, pdu.Sense(data)); v.Evidence != 0 {
			r.m.evidence(p.LUN, false, v.Evidence)
		}
		return nil
	case pdu.AsyncLogout, pdu.AsyncRenegotiate:
		// A new session renegotiates as well: both end this one in order.
		r.m.leave(p.Param3)
		return nil
	case pdu.AsyncDropConn, pdu.AsyncDropAll, pdu.AsyncTasksAborted:
		return ErrLogoutRequested
	case pdu.AsyncVendor:
		r.stats.vendorEvents++
		return nil
	}
	return violation("asynchronous event %d", p.Event)
}

// reject is a PDU of ours refused (RFC 7143 11.17). A refused control fails
// alone; anything else means that the two ends no longer agree.
func (r *receiver) reject(h, data []byte) error {
	var p pdu.Reject
	if err := p.Decode(h); err != nil {
		return violation("%v", err)
	}
	r.m.window(p.Window, true)
	if len(data) < pdu.HeaderLen {
		return violation("Reject reason %#02x without the header refused", p.Reason)
	}
	op, _ := pdu.Op(data)
	switch op {
	case pdu.OpNOPOut:
		if itt := pdu.ITT(data); itt != pdu.NoTag {
			return r.finish(itt, ctlPing, func(*control) {}) // it is alive
		}
		return nil
	case pdu.OpTMFRequest:
		return r.tmfDone(pdu.ITT(data), pdu.TMFRejected)
	}
	return violation("the target rejected our %v, reason %#02x", op, p.Reason)
}
