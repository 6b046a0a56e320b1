package wire

import (
	"sync/atomic"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
)

// Gate stops the sending of a unit's I/O while its identity is in question (I1).
// Its zero value is open.
//
// doubts counts the evidence against the identity, written by whoever has some;
// cleared is up to which of it an identification has answered, written by Open.
// Read by senders, per command: what was gathered before a doubt was on its way.
type Gate struct {
	doubts, cleared atomic.Uint32
	// reserved: doubts about the unit's reservation shut it too. Set before the
	// unit's first command.
	reserved atomic.Bool
}

// WatchReservation makes the gate shut, too, when an answer says that the unit's
// reservation may be another's: what waits behind it must not be sent once that
// other one has released it (I9).
func (g *Gate) WatchReservation() { g.reserved.Store(true) }

// stops reports whether evidence shuts the gate.
func (g *Gate) stops(e blk.Evidence) bool {
	return e&blk.IdentityChanged != 0 || e&(blk.Fenced|blk.ReservationChanged) != 0 && g.reserved.Load()
}

// Doubt shuts the gate. first says that it was open: ticket is then for this
// doubt alone.
func (g *Gate) Doubt() (ticket uint32, first bool) {
	ticket = g.doubts.Add(1)
	return ticket, g.cleared.Load() == ticket-1
}

// Shut reports whether nothing may be sent.
func (g *Gate) Shut() bool { return g.doubts.Load() != g.cleared.Load() }

// Ticket is what Open wants: ask before the identification begins. 0: it is open.
func (g *Gate) Ticket() uint32 {
	if n := g.doubts.Load(); n != g.cleared.Load() {
		return n
	}
	return 0
}

// Open answers the evidence up to the ticket; what came since keeps the gate shut.
func (g *Gate) Open(ticket uint32) {
	for {
		old := g.cleared.Load()
		if ticket == 0 || int32(ticket-old) <= 0 || g.cleared.CompareAndSwap(old, ticket) {
			return
		}
	}
}
