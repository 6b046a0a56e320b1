package nvme

import "github.com/csi-mpath/csi-mpath/pkg/blk"

// Event is what an asynchronous event completion says (Base 5.1.2.1).
type Event struct {
	Type uint8
	Info uint8
	Log  uint8 // the page to read; reading it re-arms the event
}

// Types and information of events.
const (
	EventError   = 0
	EventHealth  = 1
	EventNotice  = 2
	EventIO      = 6 // I/O command set specific
	EventVendor  = 7
	NoticeNS     = 0x00
	NoticeANA    = 0x03
	NoticeDisc   = 0xF0
	EventReserve = 0x00 // of EventIO: the reservation log has an entry
)

// The events.
var (
	NamespaceChanged   = Event{EventNotice, NoticeNS, LogChangedNamespaces}
	ANAChanged         = Event{EventNotice, NoticeANA, LogANA}
	DiscoveryChanged   = Event{EventNotice, NoticeDisc, LogDiscovery}
	ReservationNoticed = Event{EventIO, EventReserve, LogReservation}
)

// ParseEvent reads Dword 0 of the completion.
func ParseEvent(v uint64) Event {
	return Event{uint8(v & 7), uint8(v >> 8), uint8(v >> 16)}
}

// Value is Dword 0 as the controller gives it.
func (e Event) Value() uint64 {
	return uint64(e.Type&7) | uint64(e.Info)<<8 | uint64(e.Log)<<16
}

// Evidence is what the event says about namespaces of the controller. That of
// NamespaceChanged holds for those in the changed-namespace log.
func (e Event) Evidence() blk.Evidence {
	switch {
	case e.Type == EventNotice && e.Info == NoticeNS:
		return blk.IdentityChanged | blk.CapacityChanged
	case e.Type == EventNotice && e.Info == NoticeANA:
		return blk.AccessChanged
	case e.Type == EventIO && e.Info == EventReserve:
		return blk.ReservationChanged
	}
	return 0
}
