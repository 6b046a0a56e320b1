package serve

import (
	"fmt"
	"slices"
	"time"
)

// Kind selects commands by what they do.
type Kind uint8

// The kinds; the zero value is any command.
const (
	Any Kind = iota
	Reads
	Writes // all that put data at a range
	Flushes
	Trims
	Zeroes
	Others // everything that moves no blocks
	Admin  // NVMe's admin commands: Any does not mean them
)

// Match selects the commands a fault meets. The zero value is all of them.
type Match struct {
	Kind Kind
	// First..Last are blocks; Last 0 means no upper bound. Commands without a
	// range match any.
	First, Last uint64
	Portal      int     // 0 any
	LUN         *uint32 // LUN or NSID, nil any
	// Count is how many commands are met before the fault ends; 0 is all.
	Count int
}

// Traits are what a Match asks of a command.
type Traits struct {
	Kind       Kind
	Ranged     bool   // First..End means something
	First, End uint64 // blocks; End is behind the last
	Portal     int
	Unit       uint32 // LUN or NSID
	HasUnit    bool   // there is such a unit
}

func (f *Match) meets(t Traits) bool {
	switch {
	case f.Kind != t.Kind && (f.Kind != Any || t.Kind == Admin), f.Portal != 0 && f.Portal != t.Portal:
		return false
	case f.LUN != nil && (!t.HasUnit || t.Unit != *f.LUN):
		return false
	case !t.Ranged:
		return true
	}
	return t.End > f.First && (f.Last == 0 || t.First <= f.Last)
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

// Rule is one fault.
type Rule struct {
	Match
	action action
	left   int // commands it still meets, if Count > 0
	late   bool
	wait   time.Duration
	answer func(Command)
	tasks  []*Task // held
	twist  Twist
	kept   *Letters
	notify func() // called when a command is held
}

// Meet lets the first fault that matches meet t; true: t is taken.
func (m *Core) Meet(t *Task) bool {
	if len(m.rules) == 0 {
		return false
	}
	traits := t.Cmd.Traits()
	for _, r := range m.rules {
		if !r.meets(traits) {
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

func (m *Core) hit(r *Rule, t *Task) bool {
	switch r.action {
	case actDrop:
		t.Mute = true
		return false
	case actSpoil:
		t.Spoil = r
		return false
	case actAnswer:
		r.answer(t.Cmd)
		return true
	}
	if !t.Cmd.Keep() {
		t.Cmd.Busy()
		return true
	}
	if r.action == actDelay {
		t.due = m.now.Add(r.wait)
		m.delayed = append(m.delayed, t)
		m.Rouse()
		return true
	}
	t.held = r
	r.tasks = append(r.tasks, t)
	if r.notify != nil {
		r.notify()
	}
	return true
}

func (m *Core) drop(r *Rule) {
	if i := slices.Index(m.rules, r); i >= 0 {
		m.rules = slices.Delete(m.rules, i, i+1)
	}
}

func (m *Core) undelay(t *Task) {
	t.due = time.Time{}
	if i := slices.Index(m.delayed, t); i >= 0 {
		m.delayed = slices.Delete(m.delayed, i, i+1)
	}
}

func (r *Rule) forget(t *Task) {
	t.held = nil
	if i := slices.Index(r.tasks, t); i >= 0 {
		r.tasks = slices.Delete(r.tasks, i, i+1)
	}
}

// add begins a fault.
func (m *Core) add(r *Rule) error {
	if len(m.rules) >= maxRules {
		return fmt.Errorf("target: more than %d faults; ClearFaults drops them", maxRules)
	}
	r.left = r.Count
	m.rules = append(m.rules, r)
	return nil
}

// Held is a hold: commands it met wait inside the target.
type Held struct {
	m *Core
	r *Rule
}

// Hold keeps the commands of match, all data received, from executing. With
// late, those whose connection breaks stay and execute at Release, without
// answer, as in a target that does not notice; only what ends tasks in the
// protocol, or Drop, ends them. notify, if not nil, is called for each command
// held.
func (m *Core) Hold(match Match, late bool, notify func()) (*Held, error) {
	r := &Rule{Match: match, action: actHold, late: late, notify: notify}
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
		t.Cmd.Execute()
	}
}

// Drop ends the hold and what it held: nothing executes, nothing is answered.
func (h *Held) Drop() {
	h.m.drop(h.r)
	for len(h.r.tasks) > 0 {
		h.r.tasks[0].Cmd.Abort()
	}
}

// Delay executes the commands of match d later.
func (m *Core) Delay(match Match, d time.Duration) error {
	return m.add(&Rule{Match: match, action: actDelay, wait: d})
}

// DropAnswer executes the commands of match and never answers them.
func (m *Core) DropAnswer(match Match) error { return m.add(&Rule{Match: match, action: actDrop}) }

// AnswerWith has answer end the commands of match, without executing them.
func (m *Core) AnswerWith(match Match, answer func(Command)) error {
	return m.add(&Rule{Match: match, action: actAnswer, answer: answer})
}

// ClearFaults ends all faults; what is held is released.
func (m *Core) ClearFaults() {
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

// dropHeld ends what faults hold.
func (m *Core) dropHeld() {
	for _, r := range m.rules {
		for len(r.tasks) > 0 {
			r.tasks[0].Cmd.Abort()
		}
	}
}
