package target

import (
	"fmt"
	"slices"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/scsi"
)

// Kind selects commands by what they do.
type Kind uint8

// The kinds; the zero value is any command.
const (
	Any Kind = iota
	Reads
	Writes // all that put data at a range: COMPARE AND WRITE, ORWRITE too
	Flushes
	Trims  // UNMAP, WRITE SAME with UNMAP
	Zeroes // WRITE SAME without UNMAP
	Others // everything that moves no blocks
)

// Match selects the commands a fault meets. The zero value is all of them.
type Match struct {
	Kind Kind
	// First..Last are blocks; Last 0 means no upper bound. Commands without a
	// range match any.
	First, Last uint64
	Portal      int // 0 any
	LUN         *uint32
	// Count is how many commands are met before the fault ends; 0 is all.
	Count int
}

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

func (f *Match) meets(t *task) bool {
	k := kindOf(&t.cmd)
	switch {
	case f.Kind != Any && f.Kind != k, f.Portal != 0 && f.Portal != t.sess.portal.index:
		return false
	case f.LUN != nil && (t.unit == nil || t.unit.Number != *f.LUN):
		return false
	case k == Others || k == Flushes || t.cmd.Op == scsi.OpUnmap:
		return true
	}
	end := t.cmd.LBA + uint64(t.cmd.Blocks)
	return end > f.First && (f.Last == 0 || t.cmd.LBA <= f.Last)
}

// action is what a fault does to a command.
type action uint8

const (
	actHold action = iota
	actDelay
	actDrop
	actAnswer
	actSpoil
)

// rule is one fault.
type rule struct {
	Match
	action action
	left   int // commands it still meets, if Count > 0
	late   bool
	wait   time.Duration
	status byte
	sense  scsi.Sense
	tasks  []*task // held
	twist  Twist
	kept   *Letters
	notify func() // called when a command is held
}

// spoil lets the first fault that matches meet t; true: t is taken.
func (m *Machine) spoil(t *task) bool {
	for _, r := range m.rules {
		if !r.meets(t) {
			continue
		}
		if r.Count > 0 {
			if r.left--; r.left == 0 && r.action != actHold && !r.twist.Keep {
				m.drop(r)
			} else if r.left < 0 {
				continue // a hold that is full: it stays until it is released
			}
		}
		return m.hit(r, t)
	}
	return false
}

func (m *Machine) hit(r *rule, t *task) bool {
	switch r.action {
	case actDrop:
		t.mute = true
		return false
	case actSpoil:
		t.spoil = r
		return false
	case actAnswer:
		if r.status == scsi.StatusCheckCondition {
			m.check(t, r.sense)
		} else {
			m.answer(t, r.status, nil)
		}
		return true
	}
	if !m.keep(t) {
		m.answer(t, scsi.StatusTaskSetFull, nil)
		return true
	}
	if r.action == actDelay {
		t.due = m.now.Add(r.wait)
		m.delayed = append(m.delayed, t)
		return true
	}
	t.held = r
	r.tasks = append(r.tasks, t)
	if r.notify != nil {
		r.notify()
	}
	return true
}

func (m *Machine) drop(r *rule) {
	if i := slices.Index(m.rules, r); i >= 0 {
		m.rules = slices.Delete(m.rules, i, i+1)
	}
}

func (m *Machine) undelay(t *task) {
	t.due = time.Time{}
	if i := slices.Index(m.delayed, t); i >= 0 {
		m.delayed = slices.Delete(m.delayed, i, i+1)
	}
}

func (r *rule) forget(t *task) {
	t.held = nil
	if i := slices.Index(r.tasks, t); i >= 0 {
		r.tasks = slices.Delete(r.tasks, i, i+1)
	}
}

// add begins a fault.
func (m *Machine) add(r *rule) error {
	if len(m.rules) >= maxRules {
		return fmt.Errorf("target: more than %d faults; ClearFaults drops them", maxRules)
	}
	r.left = r.Count
	m.rules = append(m.rules, r)
	return nil
}

// Held is a hold: commands it met wait inside the target.
type Held struct {
	m *Machine
	r *rule
}

// Hold keeps the commands of match, all data received, from executing. With
// late, those whose connection breaks stay and execute at Release, without
// answer, as in a target that does not notice; only ABORT TASK, a reset,
// reinstatement of their session, or Drop ends them. notify, if not nil, is
// called for each command held.
func (m *Machine) Hold(match Match, late bool, notify func()) (*Held, error) {
	r := &rule{Match: match, action: actHold, late: late, notify: notify}
	return &Held{m, r}, m.add(r)
}

// Len is how many commands are held.
func (h *Held) Len() int { return len(h.r.tasks) }

// Release ends the hold and executes what it held, in order.
func (h *Held) Release() {
	h.m.drop(h.r)
	tasks := h.r.tasks
	h.r.tasks = nil
	for _, t := range tasks {
		t.held = nil
	}
	for _, t := range tasks {
		h.m.execute(t)
	}
}

// Drop ends the hold and what it held: nothing executes, nothing is answered.
func (h *Held) Drop() {
	h.m.drop(h.r)
	for len(h.r.tasks) > 0 {
		h.m.abort(h.r.tasks[0])
	}
}

// Delay executes the commands of match d later.
func (m *Machine) Delay(match Match, d time.Duration) error {
	return m.add(&rule{Match: match, action: actDelay, wait: d})
}

// DropAnswer executes the commands of match and never answers them.
func (m *Machine) DropAnswer(match Match) error { return m.add(&rule{Match: match, action: actDrop}) }

// NoSpace is the sense of a write that found no space, for Answer. A RAM store
// with SetSpace is out of space on its own.
var NoSpace = senseNoSpace

// Answer answers the commands of match with status, and sense if that is CHECK
// CONDITION, without executing them.
func (m *Machine) Answer(match Match, status byte, sense scsi.Sense) error {
	return m.add(&rule{Match: match, action: actAnswer, status: status, sense: sense})
}

// ClearFaults ends all faults; what is held is released.
func (m *Machine) ClearFaults() {
	rules := m.rules
	m.rules = nil
	for _, r := range rules {
		if r.action == actHold {
			(&Held{m, r}).Release()
		}
		if r.kept != nil {
			r.kept.Release()
		}
	}
}
