package nvmetcp

import (
	"github.com/csi-mpath/csi-mpath/pkg/nvme"
)

func (q *scriptedQueue) fabrics(c *nvme.Command, data []byte) {
	switch c.Fabrics() {
	case nvme.Connect:
		q.join(c, data)
	case nvme.PropertyGet, nvme.PropertySet:
		p, _ := nvme.ParseProperty(c)
		q.complete(c, q.property(c.Fabrics() == nvme.PropertySet, p), nvme.Success)
	default:
		q.complete(c, 0, nvme.InvalidOpcode.Final())
	}
}

func (q *scriptedQueue) join(c *nvme.Command, data []byte) {
	var d nvme.ConnectData
	h, st := nvme.ParseConnect(c)
	if err := d.Decode(data); err != nil || st != nvme.Success {
		q.s.t.Errorf("Connect: %v, %v", st, err)
	}
	q.s.joined = append(q.s.joined, d)
	if q.id, q.size, q.conn = h.QueueID, int(h.SQSize)+1, h; q.s.connect != nil {
		st = q.s.connect(q, h, &d)
	}
	if q.connected = st == nvme.Success; !q.connected {
		q.complete(c, 0, st)
		if q.closing {
			q.Close()
		}
		return
	}
	q.complete(c, nvme.ConnectResult{ControllerID: q.s.id.ControllerID}.Value(), st)
}

func (q *scriptedQueue) property(set bool, p nvme.Property) uint64 {
	cc := nvme.ParseConfig(q.s.config)
	switch {
	case set && p.Offset == nvme.RegCC:
		q.s.config = uint32(p.Value)
	case p.Offset == nvme.RegCC:
		return uint64(q.s.config)
	case p.Offset == nvme.RegCAP:
		return q.s.caps.Value()
	case p.Offset == nvme.RegVS:
		return uint64(q.s.id.Version)
	case p.Offset == nvme.RegCSTS:
		st := nvme.ControllerState{Ready: cc.Enable, Fatal: q.s.fatal}
		if cc.Shutdown != nvme.ShutdownNone {
			st.Shutdown = nvme.ShutdownComplete
		}
		return uint64(st.Value())
	}
	return 0
}

func (q *scriptedQueue) administer(c *nvme.Command, data []byte) {
	s := q.s
	switch c.Opcode {
	case nvme.AdminIdentify:
		q.identify(c)
	case nvme.AdminGetLog:
		q.log(c)
	case nvme.AdminSetFeatures:
		if c.Feature() == nvme.FeatureQueues {
			q.complete(c, uint64(nvme.Queues(s.queues)), nvme.Success)
			return
		}
		if c.Feature() == nvme.FeatureAsyncConfig {
			s.events = c.CDW11
		}
		q.complete(c, 0, nvme.Success)
	case nvme.AdminGetFeatures:
		q.complete(c, 1, nvme.Success)
	case nvme.AdminAsyncEvent:
		if q.aers = append(q.aers, c.CID); len(q.aers) > int(s.id.AsyncEvents)+1 {
			s.t.Errorf("%d Async Event Requests are out, AERL is %d", len(q.aers), s.id.AsyncEvents)
		}
	case nvme.AdminKeepAlive:
		q.complete(c, 0, nvme.Success)
	case nvme.AdminAbort:
		q.complete(c, 1, nvme.Success)
	default:
		q.complete(c, 0, nvme.InvalidOpcode.Final())
	}
}

func (q *scriptedQueue) identify(c *nvme.Command) {
	s, n := q.s, c.NSID
	var b []byte
	switch c.CNS() {
	case nvme.CNSController:
		b = s.id.Append(nil)
	case nvme.CNSActive:
		b = nvme.AppendActive(nil, 1)
	case nvme.CNSNVMController:
		b = (&nvme.CommandLimits{}).Append(nil)
	case nvme.CNSNamespace:
		b = make([]byte, nvme.IdentifyLen)
		if n == 1 {
			b = s.ns.Append(nil)
		}
	case nvme.CNSDescriptors:
		if n == 1 {
			b = s.ids.Append(nil)
		}
	}
	if b == nil {
		q.complete(c, 0, nvme.InvalidNamespace.Final())
		return
	}
	q.give(c, b)
}

func (q *scriptedQueue) log(c *nvme.Command) {
	r := nvme.ParseLogRequest(c)
	var b []byte
	switch r.Page {
	case nvme.LogANA:
		b = q.s.ana.Append(nil, r.Specific&1 != 0)
	case nvme.LogChangedNamespaces:
		b = nvme.AppendChanged(nil, q.s.changed...)
		if !r.Retain {
			q.s.changed = nil
		}
	}
	b = append(b[min(len(b), int(r.Offset)):], make([]byte, r.Len)...)[:r.Len]
	q.give(c, b)
}

// event answers an Async Event Request; false: none is there.
func (s *scripted) event(e nvme.Event) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.conns {
		if q.id == 0 && len(q.aers) > 0 {
			cid := q.aers[0]
			q.aers = q.aers[1:]
			q.respond(cid, e.Value(), nvme.Success)
			return true
		}
	}
	return false
}
