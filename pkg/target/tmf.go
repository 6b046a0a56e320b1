package target

import (
	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
)

// tmf is task management (RFC 7143 11.5). The answer says that what was ended is
// over: it waits for the jobs that cannot be called back (I3).
func (c *conn) tmf(h []byte) {
	var p pdu.TMFRequest
	_ = p.Decode(h)
	c.advance(p.Immediate)
	if c.sess.waitingTMF >= maxWaitingTMF {
		c.tmfResponse(p.ITT, pdu.TMFRejected)
		return
	}
	over, bad := c.manage(&p)
	if bad != pdu.TMFComplete {
		c.tmfResponse(p.ITT, bad)
		return
	}
	s := c.sess
	s.waitingTMF++
	c.m.whenOver(over, func() {
		if s.waitingTMF--; !c.Closing() {
			c.tmfResponse(p.ITT, pdu.TMFComplete)
		}
	})
}

func (c *conn) tmfResponse(itt uint32, response uint8) {
	r := pdu.TMFResponse{ITT: itt, Response: response, Window: c.window(true)}
	r.Put(c.head())
	c.seal()
	c.Touch()
}

// manage ends the tasks the function is about; over matches their jobs.
func (c *conn) manage(p *pdu.TMFRequest) (over func(t *task) bool, bad uint8) {
	s := c.sess
	switch p.Function {
	case pdu.TMFAbortTask:
		return c.abortTask(p.RefTag)
	case pdu.TMFAbortTaskSet, pdu.TMFClearTaskSet, pdu.TMFLUNReset:
		n, known := scsi.LUN(p.LUN).Number()
		u := c.m.units[n]
		if !known || u == nil {
			return nil, pdu.TMFNoLUN
		}
		c.resetUnit(u, p.Function)
		return func(t *task) bool {
			return t.unit == u && (t.sess == s || p.Function != pdu.TMFAbortTaskSet)
		}, pdu.TMFComplete
	case pdu.TMFTargetWarmReset:
		for _, n := range c.m.numbers {
			c.resetUnit(c.m.units[n], pdu.TMFLUNReset)
		}
		return func(*task) bool { return true }, pdu.TMFComplete
	}
	return nil, pdu.TMFNotSupported
}

// abortTask ends one task. One that was ended before, and whose job still runs,
// is not over either: an initiator may ask twice.
func (c *conn) abortTask(tag uint32) (over func(t *task) bool, bad uint8) {
	s := c.sess
	over = func(t *task) bool { return t.sess == s && t.itt == tag }
	if t := s.tasks[tag]; t != nil {
		c.m.abort(t)
		return over, pdu.TMFComplete
	}
	if c.m.Runs(tasks(over)) {
		return over, pdu.TMFComplete
	}
	return nil, pdu.TMFNoTask
}

// resetUnit ends the tasks of a unit: this session's for ABORT TASK SET, else
// everybody's. Others then see a unit attention, after a reset the one who
// asked too (SAM-5 5.14, 6.3.3).
func (c *conn) resetUnit(u *unit, function uint8) {
	m := c.m
	for _, s := range m.sessions {
		if function == pdu.TMFAbortTaskSet && s != c.sess {
			continue
		}
		m.abortUnit(s, u.Number)
	}
	switch function {
	case pdu.TMFClearTaskSet:
		m.attention(u.Number, scsi.Sense{Key: scsi.KeyUnitAttention, ASC: 0x2F}, c.sess)
	case pdu.TMFLUNReset:
		m.stats.Resets++
		u.noCache, u.swp, u.descriptors, u.stopped = false, false, false, false
		m.attention(u.Number, scsi.Sense{Key: scsi.KeyUnitAttention, ASC: 0x29, ASCQ: 0x03}, nil)
	}
}
