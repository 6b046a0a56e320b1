package device

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
)

// Over iSCSI each path registers, an I_T nexus; over NVMe the host does, whatever
// its controllers.

// member implements registrar.
func (q *iscsiQueue) member() uint16 { return uint16(q.p.number + 1) }

// over implements registrar.
func (q *iscsiQueue) over() bool { return q.s.Err() != nil }

// registry implements registrar.
func (q *iscsiQueue) registry(ctx context.Context) (r registry, err error) {
	keys, held, err := q.s.Reservations(ctx, q.p.volume.LUN)
	if err != nil {
		return r, q.none(err)
	}
	r = registry{held: held.Held, holder: key(held.Key), shared: held.Held && held.Type.AllRegistrants(),
		fits: held.Type == scsi.WriteExclusiveRegistrantsOnly}
	for _, k := range keys {
		r.keys = append(r.keys, key(k))
	}
	return r, nil
}

var scsiActions = map[action]byte{actRegister: scsi.ActionRegisterAndIgnore, actReserve: scsi.ActionReserve, actPreempt: scsi.ActionPreemptAbort,
	actRelease: scsi.ActionRelease, actUnregister: scsi.ActionRegister}

// perform implements registrar.
func (q *iscsiQueue) perform(ctx context.Context, s step, mine key) error {
	other := s.key
	if s.do == actUnregister {
		other = 0
	}
	return q.none(q.s.Reserve(ctx, q.p.volume.LUN, scsiActions[s.do], scsi.WriteExclusiveRegistrantsOnly, uint64(mine), uint64(other)))
}

// settle implements registrar: a reset ends the tasks of all, and is answered when
// they are ended.
func (q *iscsiQueue) settle(ctx context.Context, _ time.Time) error {
	return q.s.ResetLUN(ctx, q.p.volume.LUN)
}

// none tells that the unit has no reservations.
func (q *iscsiQueue) none(err error) error {
	if errors.Is(err, scsi.ErrNoReservations) {
		return fmt.Errorf("%w: %w", ErrNoReservations, err)
	}
	return err
}

// member implements registrar.
func (q *nvmeQueue) member() uint16 { return 1 }

// over implements registrar.
func (q *nvmeQueue) over() bool { return q.c.Err() != nil }

// registry implements registrar.
func (q *nvmeQueue) registry(ctx context.Context) (r registry, err error) {
	if q.profile.ONCS&nvme.ONCSReserve == 0 {
		return r, fmt.Errorf("portal %s: %w", q.p.portal, ErrNoReservations)
	}
	v, err := q.ns.Reservations(ctx)
	if err != nil {
		return r, err
	}
	r = registry{held: v.Type != nvme.NoReservation, shared: v.Type.AllRegistrants(), fits: v.Type == nvme.WriteExclusiveRegistrantsOnly}
	for _, o := range v.Registrants {
		r.keys = append(r.keys, key(o.Key))
		if o.Holds && !r.shared {
			r.holder = key(o.Key)
		}
	}
	return r, nil
}

// perform implements registrar.
func (q *nvmeQueue) perform(ctx context.Context, s step, mine key) error {
	const kind = nvme.WriteExclusiveRegistrantsOnly
	switch s.do {
	case actRegister:
		return q.register(ctx, mine)
	case actUnregister:
		return q.ns.Reserve(ctx, nvme.ReserveCommand{Op: nvme.OpReserveRegister, Action: nvme.ActionUnregister}, uint64(mine), 0)
	case actRelease:
		return q.ns.Reserve(ctx, nvme.ReserveCommand{Op: nvme.OpReserveRelease, Action: nvme.ActionRelease, Type: kind}, uint64(mine), 0)
	case actPreempt:
		return q.ns.Reserve(ctx, nvme.ReserveCommand{Op: nvme.OpReserveAcquire, Action: nvme.ActionPreemptAbort, Type: kind}, uint64(mine), uint64(s.key))
	}
	return q.ns.Reserve(ctx, nvme.ReserveCommand{Op: nvme.OpReserveAcquire, Action: nvme.ActionAcquire, Type: kind}, uint64(mine), 0)
}

// settle implements registrar: nothing can be asked, so the clock decides, as it
// does for a lost controller (I3).
func (q *nvmeQueue) settle(_ context.Context, since time.Time) error {
	if left := q.c.FenceBound() - time.Since(since); left > 0 {
		return fmt.Errorf("portal %s: writes of the node that had the volume may be on their way for %v yet", q.p.portal, left.Round(time.Millisecond))
	}
	return nil
}

// register asks that the registration survives a loss of power, and does without
// where that is refused. A host that is registered with another key, of an earlier
// boot, replaces it.
func (q *nvmeQueue) register(ctx context.Context, mine key) error {
	var err error
	for _, persist := range []uint8{nvme.PersistOn, nvme.PersistKeep} {
		r := nvme.ReserveCommand{Op: nvme.OpReserveRegister, Action: nvme.ActionRegister, Persist: persist}
		if err = q.ns.Reserve(ctx, r, 0, uint64(mine)); conflicts(err) {
			r.Action, r.Ignore = nvme.ActionReplace, true
			err = q.ns.Reserve(ctx, r, 0, uint64(mine))
		}
		if !errors.As(err, new(nvme.Status)) || conflicts(err) {
			return err
		}
	}
	return err
}
