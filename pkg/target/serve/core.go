// Package serve is what the protocols of the embedded target have in common.
//
// Core is for their machines: faults (fault.go, letter.go), jobs of stores that
// run beside the machine (jobs.go), buffers. Conn is a connection's bytes in
// both directions. Server, Portal, Hub and Door are the thin shell: sockets,
// goroutines and the clock, around one machine or several.
//
// A machine embeds Core, its connections embed Conn, its tasks embed Task.
package serve

import (
	"slices"
	"time"
)

// Core is the state that every machine has. One caller at a time; Server holds
// a lock around it.
type Core struct {
	Buffers
	// Run starts a job of a store beside the machine and gives its result to
	// done, which must be called with the machine's lock held, and not by Run
	// itself. nil runs jobs at once. See jobs.go.
	Run func(job func() error, done func(error))
	// ProtocolErrors counts the connections that were closed for one.
	ProtocolErrors uint64

	now     time.Time
	conns   int
	dirty   []*Conn
	rouse   bool // something waits for the clock that Next did not know of
	rules   []*Rule
	delayed []*Task
	letters []*envelope // delayed answers
	late    int         // tasks whose connection is gone
	running []*Task     // that have a job beside the machine, ended ones too
	starved []*Turn     // have jobs waiting for a place in running
}

func (m *Core) base() *Core { return m }

// Now is the time of the call into the machine.
func (m *Core) Now() time.Time { return m.now }

// Conns counts the connections.
func (m *Core) Conns() int { return m.conns }

// Full reports that there are too many connections for another one.
func (m *Core) Full() bool { return m.conns >= maxConns }

// Rouse tells the shell that Next has something earlier to say.
func (m *Core) Rouse() { m.rouse = true }

// Dirty returns the connections that have output or must be closed, and
// forgets them. The slice is valid until the next call into the machine.
func (m *Core) Dirty() []*Conn {
	d := m.dirty
	m.dirty = m.dirty[:0]
	for _, c := range d {
		c.dirty = false
	}
	return d
}

// Due does what is due at now: delayed commands and answers.
func (m *Core) Due(now time.Time) {
	m.now = now
	for i := 0; i < len(m.delayed); {
		t := m.delayed[i]
		if t.due.After(now) {
			i++
			continue
		}
		m.undelay(t)
		t.Cmd.Execute()
	}
	for i := 0; i < len(m.letters); {
		a := m.letters[i]
		if a.due.After(now) {
			i++
			continue
		}
		m.letters = slices.Delete(m.letters, i, i+1)
		a.post()
	}
}

// Waiting calls note for each time at which Due has something to do.
func (m *Core) Waiting(note func(time.Time)) {
	for _, t := range m.delayed {
		note(t.due)
	}
	for _, a := range m.letters {
		note(a.due)
	}
}

// Earliest finds the first of the times that each notes.
func Earliest(each func(note func(time.Time))) (at time.Time, ok bool) {
	each(func(t time.Time) {
		if !ok || t.Before(at) {
			at, ok = t, true
		}
	})
	return at, ok
}
