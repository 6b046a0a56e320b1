package subsystem

import "github.com/csi-mpath/csi-mpath/pkg/nvme"

// Kinds of reservation notifications (Base 5.1.12.1.32), which are also the bits
// of the mask.
const (
	noteUnregistered = 1 // the registration was preempted
	noteReleased     = 2
	notePreempted    = 3 // the reservation was
)

// note tells the controllers of a host, but those of by, what happened to its
// registration or its reservation.
func (m *Machine) note(host, by [16]byte, nsid uint32, kind uint8) {
	if host == by {
		return
	}
	for _, x := range m.controllers {
		if x.hostID != host || x.discovery || x.reserveMask>>kind&1 != 0 || len(x.reserveNotices) >= maxNotices {
			continue
		}
		x.reserveNo++
		x.reserveNotices = append(x.reserveNotices, nvme.ReservationNotice{Count: x.reserveNo, Kind: kind, NSID: nsid})
		m.raise(x, noticeReservation)
	}
}

// noticePage is the oldest notification, or an empty one.
func (x *controller) noticePage() []byte {
	n := nvme.ReservationNotice{}
	if len(x.reserveNotices) > 0 {
		n = x.reserveNotices[0]
		n.Available = uint8(min(len(x.reserveNotices)-1, 255))
	}
	return n.Append(nil)
}

// noticeRead takes the notification that was read; the next one is told of.
func (x *controller) noticeRead() {
	if len(x.reserveNotices) > 0 {
		x.reserveNotices = x.reserveNotices[1:]
	}
	x.notices[noticeReservation].waits = len(x.reserveNotices) > 0
}
