package main

// bug is a defect that the product once had, or was built not to have, as exact
// replacements in its source.
type bug struct {
	name  string // of its class and what it is
	edits []edit
}

// edit replaces old, which must be there once, by new.
type edit struct{ file, old, new string }

var bugs = []bug{
	{"stale write: I3's guard is off", []edit{
		{"pkg/datapath/send.go", "if d.active.Load() == 0 || l.dev.guardOff {\n\t\tif !s.req.Op.Mutates() {", "if true {\n\t\tif !s.req.Op.Mutates() {"},
		{"pkg/datapath/send.go", "if d.active.Load() == 0 || l.dev.guardOff {\n\t\t\treturn true", "if true {\n\t\t\treturn true"},
	}},
	{"stale write: a new process knows nothing of the old one", []edit{
		{"pkg/datapath/inherit.go", "} else if n := d.inheritRanges(left); n > 0 {", "} else if n := d.inheritRanges(left[:0]); n > 0 {"},
	}},
	{"stale write: every fence is over at once", []edit{
		{"pkg/datapath/doubt.go", "bound := p.tr.FenceBound()", "bound := p.tr.FenceBound() / 1000"},
	}},
	{"stale write: a lost NVMe controller is fenced at once", []edit{
		{"pkg/nvmetcp/config.go", "return 3*kato + quiesce", "return kato / 100"},
		{"pkg/nvmetcp/config.go", "return 2*kato + quiesce", "return kato / 100"},
	}},
	{"reused buffer: a path is retired without waiting for its sender", []edit{
		{"pkg/wire/link.go", "l.ending.Store(true)\n", "l.ending.Store(true)\n\tl.Wake()\n"},
		{"pkg/iscsi/session.go", "s.cause.CompareAndSwap(nil, e)\n\ts.link.Stop()", "s.cause.CompareAndSwap(nil, e)\n\tgo s.link.Stop()"},
		{"pkg/wire/link.go", "l.Stop() // waits for an abort under way\n\tif l.sender.Or(senderClosed)&senderBusy != 0 {\n\t\t<-l.senderGone\n\t}",
			"go l.Stop()\n\tif l.sender.Or(senderClosed)&senderBusy != 0 {\n\t\tgo func() { <-l.senderGone }()\n\t}"},
	}},
	{"double completion: an early answer completes at once and again", []edit{
		{"pkg/wire/flow.go", "f.limbo = append(f.limbo, k)\n\t\treturn\n", "f.limbo = append(f.limbo, k)\n\t\tk.Unit.Sink.Complete(c)\n\t\treturn\n"},
	}},
	{"double completion: a request that was in doubt is answered twice", []edit{
		{"pkg/datapath/lane.go", "\towner.Complete(r)\n", "\towner.Complete(r)\n\tif s.fence != nil {\n\t\towner.Complete(r)\n\t}\n"},
	}},
	{"lost wake-up: the lane's runner does not look again", []edit{
		{"pkg/datapath/lane.go", "if l.wip.CompareAndSwap(n, 0) {\n\t\t\treturn\n\t\t}\n\t\tn = l.wip.Load()", "_ = n\n\t\tl.wip.Store(0)\n\t\treturn"},
	}},
	{"lost wake-up: who has sent does not look for what was queued meanwhile", []edit{
		{"pkg/wire/link.go", "\t\tf.Accept(n)\n\t}\n", "\t\tf.Accept(n)\n\t\tif len(f.Out.pend) == 0 {\n\t\t\tl.afterSend()\n\t\t\treturn true\n\t\t}\n\t}\n"},
		{"pkg/wire/link.go", "\t\tl.release()\n\t}\n}", "\t\tl.release()\n\t\treturn\n\t}\n}"},
		{"pkg/wire/link.go", "\t\t\tl.release()\n\t\t\tl.Kick()", "\t\t\tl.release()"},
	}},
	{"lost wake-up: nobody sends when the command window opens", []edit{
		{"pkg/iscsi/send.go", "return v != 0 && !pdu.SNLess(m.maxCmdSN.Load(), uint32(v))", "return v == 1 && pdu.SNLess(0, 1)"},
	}},
	{"lost wake-up: a lane that found no room does not look again", []edit{
		{"pkg/datapath/send.go", "l.congested.Store(true)\n\t\t\tretried = true", "return"},
	}},
	{"leaked tag: of a command that was aborted", []edit{
		{"pkg/wire/flow.go", "f.Tasks.Put(k)\n\tu.inflight.Add(-1)", "if c.Verdict.Class != blk.Aborted {\n\t\tf.Tasks.Put(k)\n\t}\n\tu.inflight.Add(-1)"},
	}},
	{"leaked tag: the window's share of a command that was refused a tag", []edit{
		{"pkg/wire/unit.go", "if u.inflight.Add(1) > u.cap || u.closed.Load() {\n\t\tu.inflight.Add(-1)", "if u.inflight.Add(1) > u.cap || u.closed.Load() {\n\t\tif u.closed.Load() {\n\t\t\tu.inflight.Add(-1)\n\t\t}"},
	}},
	{"dropped barrier: a flush is not passed on", []edit{
		{"pkg/datapath/send.go", "\tif len(group) == 0 {\n\t\treturn noPath\n\t}\n", "\tif len(group) == 0 {\n\t\treturn noPath\n\t}\n\tif s.req.Op == blk.Flush {\n\t\tl.pop()\n\t\tl.reply(s, blk.OK)\n\t\treturn gone\n\t}\n"},
	}},
	{"dropped barrier: FUA is not passed on", []edit{
		{"pkg/datapath/slot.go", "c.Op, c.Flags = op, r.Flags\n", "c.Op, c.Flags = op, r.Flags&^blk.FUA\n"},
	}},
	{"dropped barrier: no flush follows a FUA that the device does not do", []edit{
		{"pkg/datapath/slot.go", "if s.req.Flags&blk.FUA == 0 || s.synced || s.sent != s.req.Len {", "if true || s.synced {"},
	}},
	{"dropped barrier: a lost cache fails no flush", []edit{
		{"pkg/datapath/cache.go", "d.mode.Or(modePoison)\n\td.cache.word.Or(lostBit)", "d.cache.word.Or(lostBit)"},
	}},
	{"dropped barrier: what a dead process left unflushed is forgotten", []edit{
		{"pkg/datapath/cache.go", "if w == 0 {\n\t\treturn\n\t}", "if w >= 0 {\n\t\treturn\n\t}"},
	}},
	{"lost write: what went with a request that failed is answered well", []edit{
		{"pkg/datapath/unit.go", "\t\tif good {\n\t\t\tl.answer(m, blk.OK)", "\t\tif good || m != s {\n\t\t\tl.answer(m, blk.OK)"},
	}},
	{"lost write: an ANA refusal is taken for success", []edit{
		{"pkg/nvme/classify.go", "return blk.Verdict{Class: blk.WrongState, Status: blk.IOError, Evidence: blk.AccessChanged}", "return blk.Verdict{Class: blk.Good}"},
	}},
	{"wrong data: what an R2T asks for is taken from the beginning", []edit{
		{"pkg/nvmetcp/send.go", "q.payload(j.Task, int(j.Off), n)", "q.payload(j.Task, 0, n)"},
	}},
	{"wrong data: a data digest that does not fit is forgiven", []edit{
		{"pkg/nvmetcp/receive.go", "q.of(q.landing).bad = true", "q.of(q.landing).bad = false"},
	}},
	{"lost answer: a command ID is free before the command is completed", []edit{
		{"pkg/nvmetcp/receive.go", "if !d.Success {", "if !d.Last {"},
	}},
	{"lost answer: a controller outlives one of its queues", []edit{
		{"pkg/nvmetcp/queue.go", "if q.id != 0 {\n", "if q.id != 0 {\n\t\tq.link.Stop()\n\t\treturn\n\t}\n\tif q.id != 0 {\n"},
	}},
	{"dropped path: the last one, for being slow or drained", []edit{
		{"pkg/datapath/table.go", "want < tierNone; want++", "want < tierMarginal; want++"},
	}},
	{"unfair: a path is left out in turn", []edit{
		{"pkg/pathsel/selectors.go", "if s.last++; s.last >= s.n {", "if s.last += 2; s.last >= s.n {"},
	}},
	{"identity: a unit in question goes on sending", []edit{
		{"pkg/wire/flow.go", "u.Gate.Doubt()", "_ = u.Gate"},
	}},
	{"identity: a namespace goes on while the log of the changed ones is read", []edit{
		{"pkg/nvmetcp/events.go", "\t\t\tn.suspect()\n", "\t\t\t_ = n.suspect\n"},
	}},
	{"identity: a path that shows another volume joins", []edit{
		{"pkg/datapath/membership.go", "if id.Weak == ref.Weak && id == ref {", "if id.Target == ref.Target {"},
	}},
}
