package iscsi

import (
	"context"
	"errors"
	"fmt"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
	"github.com/csi-mpath/csi-mpath/pkg/wire"
)

// Result is the answer to a command of Exec.
type Result struct {
	Status byte   // SAM-5 status
	Sense  []byte // sense data, if any
	// N counts the bytes received into in, or taken of out.
	N        int
	Residual pdu.Residual
}

// Exec sends one SCSI command and waits for its answer: for control commands,
// not for I/O. Data to the unit is out, data from it goes to in; one of them is
// nil. cdb is at most 16 bytes. A status other than GOOD is no error. When ctx
// ends first the command may still be executed; in is not written after Exec
// has returned.
func (s *Session) Exec(ctx context.Context, lun scsi.LUN, cdb, in, out []byte) (Result, error) {
	return s.exec(ctx, lun, nil, cdb, in, out)
}

// Exec is Session.Exec for a command that is I/O to the unit: it waits with the
// others while the unit's identity is in question (I1).
func (l *LUN) Exec(ctx context.Context, cdb, in, out []byte) (Result, error) {
	return l.s.exec(ctx, l.lun, &l.gate, cdb, in, out)
}

func (s *Session) exec(ctx context.Context, lun scsi.LUN, gated *wire.Gate, cdb, in, out []byte) (Result, error) {
	if len(cdb) == 0 || len(cdb) > scsi.CDBLen || len(in) > 0 && len(out) > 0 {
		return Result{}, s.cfg.errorf("BUG: Exec with a CDB of %d bytes, %d in, %d out", len(cdb), len(in), len(out))
	}
	c := s.m.newControl(ctlExec)
	if c == nil {
		return Result{}, s.cfg.wrap(ErrNoTag)
	}
	copy(c.cdb[:], cdb)
	c.lun, c.Gated = uint64(lun), gated
	c.Out = append([]byte(nil), out...)
	if len(in) > 0 {
		// A buffer of its own: the reader may fill it after ctx has ended.
		c.Cmd.Op, c.Cmd.Buf, c.Cmd.Len = blk.Read, make([]byte, len(in)), uint32(len(in))
	} else if len(out) > 0 {
		c.Cmd.Op = blk.Write
	}
	if err := s.run(ctx, c); err != nil {
		return Result{}, err
	}
	return Result{Status: c.response, Sense: c.sense, Residual: c.residual,
		N: copy(in, c.Cmd.Buf[:min(int(c.Cmd.Moved), len(c.Cmd.Buf))]) + min(int(c.Cmd.Moved), len(out))}, nil
}

// run queues a control and waits for its end.
func (s *Session) run(ctx context.Context, c *control) error {
	s.m.queue(c)
	s.link.Kick()
	select {
	case <-c.Done:
		return s.cfg.wrap(c.Err)
	case <-s.done:
		return s.endErr()
	case <-ctx.Done():
		if c.kind == ctlText && !c.Fate.CompareAndSwap(wire.FateOpen, wire.FateAbandoned) {
			s.m.Tasks.Put(c.Task) // answered just now: the tag is ours to give back
		}
		c.Fate.Store(wire.FateAbandoned)
		return s.cfg.wrap(context.Cause(ctx))
	}
}

// endErr is the error of a call cut short by the end of the session.
func (s *Session) endErr() error {
	if err := s.Err(); err != nil {
		return err
	}
	return s.cfg.wrap(ErrClosed)
}

// ResetLUN sends LOGICAL UNIT RESET. It ends the commands of every initiator on
// that unit: those of this session are handed back as Aborted.
func (s *Session) ResetLUN(ctx context.Context, lun scsi.LUN) error {
	c := s.m.newControl(ctlTMF)
	if c == nil {
		return s.cfg.wrap(ErrNoTag)
	}
	c.function, c.lun, c.refTag = pdu.TMFLUNReset, uint64(lun), pdu.NoTag
	if err := s.run(ctx, c); err != nil {
		return err
	}
	if c.response != pdu.TMFComplete {
		return s.cfg.errorf("LUN %v: the target refused LOGICAL UNIT RESET, response %d", lun, c.response)
	}
	return nil
}

// Logout ends the session in order: the target is told and has answered, or
// ctx has ended. Commands still outstanding are lost.
func (s *Session) Logout(ctx context.Context) error {
	var err error
	if c := s.m.newControl(ctlLogout); c == nil {
		err = s.cfg.wrap(ErrNoTag)
	} else if err = s.run(ctx, c); err == nil && c.response != pdu.LogoutDone {
		err = s.cfg.errorf("logout refused, response %d", c.response)
	}
	s.Fail(ErrLoggedOut)
	select {
	case <-s.done:
	case <-ctx.Done():
	}
	if errors.Is(err, ErrLoggedOut) {
		return nil // a second call
	}
	return err
}

// SendTargets asks a target for its portals: all of its own when target is
// empty (RFC 7143 appendix C). Not every target can do that in a normal
// session: tgt drops the connection. Discover is the careful way.
func (s *Session) SendTargets(ctx context.Context, target string) ([]DiscoveredTarget, error) {
	c := s.m.newControl(ctlText)
	if c == nil {
		return nil, s.cfg.wrap(ErrNoTag)
	}
	x := newTextExchange("SendTargets", target)
	for {
		c.Out, c.ttt = x.request()
		c.Fate.Store(wire.FateOpen)
		if err := s.run(ctx, c); err != nil {
			return nil, err
		}
		whole, err := x.answer(c.text, c.final, c.more, c.nextTTT)
		if err != nil || whole != nil {
			s.m.Tasks.Put(c.Task)
			if err != nil {
				return nil, s.cfg.wrap(err)
			}
			return s.targets(whole)
		}
	}
}

func (s *Session) targets(text []byte) ([]DiscoveredTarget, error) {
	found, err := parseTargets(text)
	if err != nil {
		return nil, s.cfg.wrap(err)
	}
	return found, nil
}

// senseError is an unexpected answer to a command of ours.
func senseError(what string, r Result) error {
	if sense, ok := scsi.ParseSense(r.Sense); ok {
		return fmt.Errorf("%s: status %02Xh, sense %v", what, r.Status, sense)
	}
	return fmt.Errorf("%s: status %02Xh", what, r.Status)
}
