package iscsi

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/csi-mpath/csi-mpath/pkg/scsi"
)

// Reservations reads who is registered with a unit, and who holds a reservation
// (SPC-4 6.15). Two commands: the keys are those of a moment after the
// reservation. Unit attentions are answered by asking again.
func (s *Session) Reservations(ctx context.Context, lun scsi.LUN) (keys []uint64, held scsi.Reservation, err error) {
	q := &query{s: s, ctx: ctx, lun: lun}
	if held, err = q.reservation(); err == nil {
		keys, err = q.keys()
	}
	if errors.Is(err, errRefused) {
		err = fmt.Errorf("%w: %w", scsi.ErrNoReservations, err)
	}
	return keys, held, s.cfg.wrap(err)
}

func (q *query) reservation() (scsi.Reservation, error) {
	in, err := q.ask("READ RESERVATION", scsi.PutReserveIn(q.cdb[:], scsi.ActionReadReservation, scsi.ReservationLen), make([]byte, scsi.ReservationLen))
	if err != nil {
		return scsi.Reservation{}, err
	}
	return scsi.ParseReservation(in)
}

// keys asks for all that ParseKeys keeps.
func (q *query) keys() ([]uint64, error) {
	const size = 8 + 8*scsi.MaxKeys
	in, err := q.ask("READ KEYS", scsi.PutReserveIn(q.cdb[:], scsi.ActionReadKeys, size), make([]byte, size))
	if err != nil {
		return nil, err
	}
	_, keys, err := scsi.ParseKeys(nil, in)
	return keys, err
}

// Reserve sends PERSISTENT RESERVE OUT with a service action (SPC-4 6.16) for a
// reservation of the given type. key is the one this session is registered with,
// other what the action is about: the new key, or the one to preempt. An error
// that is scsi.ErrConflict is the unit's final word; scsi.ErrNoReservations says that
// it does not know the command.
//
// A registration is asked to survive a loss of power (APTPL) first, and made
// without that where it is refused. LIO without the directory that it keeps them in
// answers every registration with an error (02/08/00), and does it all the same: what
// counts is whether the key is there afterwards. Where PREEMPT AND ABORT is (tgt), it is PREEMPT,
// which refuses what comes, and then LOGICAL UNIT RESET, which ends what has come.
func (s *Session) Reserve(ctx context.Context, lun scsi.LUN, action byte, kind scsi.ReserveType, key, other uint64) error {
	q := &query{s: s, ctx: ctx, lun: lun}
	registers := action == scsi.ActionRegister || action == scsi.ActionRegisterAndIgnore
	err := q.reserve(action, kind, key, other, registers && other != 0)
	if err != nil && registers && other != 0 && s.Err() == nil && ctx.Err() == nil && !errors.Is(err, scsi.ErrConflict) {
		err = q.reserve(action, kind, key, other, false)
	}
	if err != nil && registers && s.Err() == nil && !errors.Is(err, errRefused) && !errors.Is(err, scsi.ErrConflict) && q.took(key, other) {
		err = nil
	}
	if errors.Is(err, errRefused) && action == scsi.ActionPreemptAbort {
		if err = q.reserve(scsi.ActionPreempt, kind, key, other, false); err == nil {
			err = s.ResetLUN(ctx, lun)
		}
	}
	if errors.Is(err, errRefused) && registers {
		err = fmt.Errorf("%w: %w", scsi.ErrNoReservations, err)
	}
	return s.cfg.wrap(err)
}

// took reports whether a registration that was answered with an error was made, or, for
// no new key, taken back.
func (q *query) took(key, other uint64) bool {
	keys, err := q.keys()
	if other == 0 {
		return err == nil && !slices.Contains(keys, key)
	}
	return err == nil && slices.Contains(keys, other)
}

func (q *query) reserve(action byte, kind scsi.ReserveType, key, other uint64, persist bool) error {
	var list [scsi.ReserveParamLen]byte
	scsi.PutReserveParam(list[:], key, other, persist)
	_, err := q.exec(fmt.Sprintf("PERSISTENT RESERVE OUT %02Xh", action), scsi.PutReserveOut(q.cdb[:], action, kind), nil, list[:])
	return err
}
