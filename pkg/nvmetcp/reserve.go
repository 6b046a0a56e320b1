package nvmetcp

import (
	"context"
	"fmt"

	"github.com/csi-mpath/csi-mpath/pkg/nvme"
)

var reserveVerbs = map[nvme.Opcode]string{
	nvme.OpReserveRegister: "register", nvme.OpReserveAcquire: "acquire", nvme.OpReserveRelease: "release",
}

// Reserve registers, acquires (preempts, preempts and aborts) or releases a
// reservation of the namespace in the host's name (NVMe Base 2.1 8.1.22).
// current is the host's own key; other is the new one when it registers, and
// the one that loses when it preempts. A conflict is an error that is
// nvme.ReservationConflict, on every path alike. It does not wait at the gate:
// what it is for is to find out whether the namespace may be written to.
func (n *Namespace) Reserve(ctx context.Context, r nvme.ReserveCommand, current, other uint64) error {
	a, _, err := n.c.queues[0].exec(ctx, r.Command(n.nsid), nil, nil, r.AppendKeys(nil, current, other))
	if err == nil && !a.Status.OK() {
		err = n.c.cfg.errorf("namespace %d: %s a reservation: %w", n.nsid, reserveVerbs[r.Op], a.Status)
	}
	return err
}

// Reservations reports who is registered and who holds what, with the 128-bit
// host identifiers that Connect told (B-23). Like Reserve it does not wait at the gate.
func (n *Namespace) Reservations(ctx context.Context) (nvme.ReservationStatus, error) {
	for size := nvme.ReservationStatusLen(fewRegistrants, true); ; {
		b := make([]byte, size)
		a, got, err := n.c.queues[0].exec(ctx, nvme.ReserveReport(n.nsid, uint32(size), true), nil, b, nil)
		if err == nil && !a.Status.OK() {
			err = a.Status
		}
		s, total, err := parseReservations(b[:got], err)
		switch {
		case err != nil:
			return s, n.c.cfg.wrap(fmt.Errorf("namespace %d: report reservations: %w", n.nsid, err))
		case total <= size || size >= nvme.ReservationStatusLen(nvme.MaxRegistrants, true):
			return s, nil
		}
		size = min(total, nvme.ReservationStatusLen(nvme.MaxRegistrants, true))
	}
}

func parseReservations(b []byte, err error) (nvme.ReservationStatus, int, error) {
	if err != nil {
		return nvme.ReservationStatus{}, 0, err
	}
	return nvme.ParseReservationStatus(b, true)
}
