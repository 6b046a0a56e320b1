package iscsi

import (
	"sync/atomic"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/wire"
)

// machine is the full feature phase of one session, without socket, goroutine
// or clock: a wire.Flow, and its codec.
type machine struct {
	*wire.Flow
	p Params
	// extra is what only iSCSI knows of each task, by its index.
	extra []extra

	// maxCmdSN ends the command window; expStatSN is acknowledged in every PDU
	// we send. Written by the reader, read by the sender: a stale window delays
	// a command until the reader's kick, a stale StatSN acknowledges less.
	maxCmdSN, expStatSN atomic.Uint32
	_                   [56]byte

	// reviewWanted asks the reader for review. Written by the ticker and the reader.
	reviewWanted atomic.Bool
	// leaving is the tick by which the session ends on the target's wish, 0 if
	// it does not. Written once by the reader, read by the ticker.
	leaving atomic.Uint32

	// luns is the set of logical units, replaced as a whole by the session
	// under its lock. A stale set misses events of a unit just added.
	luns atomic.Pointer[[]*LUN]

	tx transmitter
	rx receiver
}

// extra is a task's part that only iSCSI has. The holder of the tag sets lun or
// ctl; the sender the rest, before it publishes the task; then it is the reader's.
type extra struct {
	lun      *LUN
	ctl      *control
	small    [unmapParam]byte
	cmdSN    uint32
	dataSN   uint32
	empty    uint8
	aborting bool // an ABORT TASK for it is out
}

const unmapParam = 24

func newMachine(p Params, w pdu.Window, expStatSN uint32, depth, homes int, clock func() int64) *machine {
	m := &machine{p: p}
	m.tx = transmitter{m: m, cmdSN: initialCmdSN}
	m.rx = receiver{m: m}
	tasks := wire.NewTasks(wire.IDs{Bits: 32, None: pdu.NoTag}, depth, homes, controlTags, 0)
	m.extra = make([]extra, tasks.Len())
	set := wire.Setup{Tasks: tasks, Clock: wire.NewClock(clock, m.busy), Codec: m, MaxData: int(p.MaxSend),
		Overhead: pdu.HeaderLen + 2*pdu.DigestLen + 4}
	if p.DataDigest {
		set.Sum = pdu.CRC
	}
	m.Flow = wire.NewFlow(set)
	m.maxCmdSN.Store(w.MaxCmdSN)
	m.expStatSN.Store(expStatSN)
	m.luns.Store(new([]*LUN))
	return m
}

// of is the part of k that only iSCSI has.
func (m *machine) of(k *wire.Task) *extra { return &m.extra[k.Index] }

// renew makes k's part ready for a new holder of the tag.
func (m *machine) renew(k *wire.Task, l *LUN, c *control) {
	x := m.of(k)
	x.lun, x.ctl, x.dataSN, x.empty, x.aborting = l, c, 0, 0, false
}

// find returns the live task with the given ITT; nil for a stale one, which
// is counted. A tag that cannot exist is a violation.
func (m *machine) find(itt uint32) (*wire.Task, error) {
	k, ok := m.Tasks.Find(itt)
	if !ok {
		return nil, violation("answer to task tag %#x, which was never given out", itt)
	}
	return k, nil
}

// busy reports whether the ticker has something to watch.
func (m *machine) busy() bool { return m.Tasks.Outstanding() || m.leaving.Load() != 0 }

// window takes the sequence numbers of a PDU. status says that StatSN counts
// a status; a StatSN behind ours is not taken back.
func (m *machine) window(w pdu.Window, status bool) {
	if status && !pdu.SNLess(w.StatSN, m.expStatSN.Load()) {
		m.expStatSN.Store(w.StatSN + 1)
	}
	// RFC 7143 4.2.2.1: a MaxCmdSN below ExpCmdSN-1 is ignored.
	if !pdu.SNLess(w.MaxCmdSN, w.ExpCmdSN-1) && pdu.SNLess(m.maxCmdSN.Load(), w.MaxCmdSN) {
		m.maxCmdSN.Store(w.MaxCmdSN)
	}
}

// evidence tells every unit with the given address, or all.
func (m *machine) evidence(lun uint64, all bool, e blk.Evidence) {
	for _, l := range *m.luns.Load() {
		if all || uint64(l.lun) == lun {
			l.unit.Evidence(e)
		}
	}
}

// leave closes the units to new commands: the target wants the session to end
// within so many seconds (RFC 7143 11.9.1). The ticker logs out when they are idle.
func (m *machine) leave(seconds uint16) {
	for _, l := range *m.luns.Load() {
		l.unit.Close()
	}
	wait := min(uint32(seconds)*uint32(time.Second/wire.TickInterval), uint32(logoutTimeout/wire.TickInterval))
	if m.Clock.Asleep() {
		m.Clock.Set() // a sleeping ticker's clock stands
	}
	m.leaving.Store(max(m.Clock.Now()+wait, 1))
	m.Clock.Rouse()
}

// lose hands what every unit still has out to its sink.
func (m *machine) lose(luns []*LUN, cause error) {
	for _, l := range luns {
		l.unit.Close()
	}
	for _, l := range luns {
		l.unit.Sink.Lost(wire.Lose(&l.unit), cause)
	}
}
