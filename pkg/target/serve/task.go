package serve

import "time"

// Command is a protocol's task as faults and jobs see it.
type Command interface {
	// Traits say which faults meet it.
	Traits() Traits
	// Keep makes it outlive the PDU it came with; false for want of memory.
	Keep() bool
	// Busy answers that the target has no room for it, and ends it.
	Busy()
	// Execute does it, past the faults.
	Execute()
	// Finish answers it once its job is over.
	Finish()
	// Abort ends it without an answer: it does not execute. A job of its that
	// runs goes on: see WhenOver.
	Abort()
	// Free gives back an ended one's memory.
	Free()
}

// Task is what faults and jobs keep of a command. The protocol's task embeds it.
type Task struct {
	Cmd Command // the protocol's task

	Spoil *Rule // what happens to its answer; nil: nothing
	Mute  bool  // its answer is dropped
	Head  bool  // its job goes before those that wait
	Alone bool  // its job runs beside no other of its unit

	Running bool // a store's job works on it, or it waits for those it ended
	Pinned  bool // data is being received into its buffer
	Dead    bool // ended while running or pinned

	held   *Rule
	due    time.Time // of a delay
	queued bool      // waits for its job's turn
	turn   *Turn
	work   func()
	waits  []*wait
}

// Waits reports whether the task has all its data and is held, delayed, queued
// or running.
func (t *Task) Waits() bool { return t.held != nil || !t.due.IsZero() || t.queued || t.Running }

// Cancel takes a task out of whatever it waits in, for Command.Abort; true when
// nobody works on it, so that it can be freed. Else who does frees it.
func (m *Core) Cancel(t *Task) (free bool) {
	if t.held != nil {
		t.held.forget(t)
	}
	if !t.due.IsZero() {
		m.undelay(t)
	}
	if t.queued {
		t.turn.unqueue(t)
	}
	t.Dead = t.Running || t.Pinned
	return !t.Dead
}

// StaysLate reports whether a task whose connection broke is kept by a fault to
// execute late (I3); it counts then, until NotLate.
func (m *Core) StaysLate(t *Task) bool {
	if t.held == nil || !t.held.late || m.late >= maxLate {
		return false
	}
	m.late++
	return true
}

// NotLate ends a late task.
func (m *Core) NotLate() { m.late-- }

// Late counts the tasks whose connection is gone.
func (m *Core) Late() int { return m.late }
