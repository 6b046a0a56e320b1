package nvmetcp

import (
	"context"
	"fmt"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	"github.com/csi-mpath/csi-mpath/pkg/wire"
)

// request is a command that is no blk.Command of a namespace: a wire.Control.
// answer is valid after Done is closed.
type request struct {
	wire.Control
	entry  nvme.Command
	answer nvme.Completion
}

// exec sends one command and waits for its completion. Data to the controller is
// out, data from it goes to in; one of them is nil. A status other than success
// is no error. When ctx ends first the command may still be executed; in is not
// written after exec has returned.
func (q *queue) exec(ctx context.Context, e nvme.Command, gated *wire.Gate, in, out []byte) (nvme.Completion, int, error) {
	r := &request{entry: e}
	if !q.NewControl(&r.Control) {
		return r.answer, 0, q.c.cfg.wrap(ErrNoTag)
	}
	q.renew(r.Task, nil, r)
	r.Gated = gated
	if len(in) > 0 {
		// A buffer of its own: the reader may fill it after ctx has ended.
		r.Cmd.Op, r.Cmd.Buf, r.Cmd.Len = blk.Read, make([]byte, len(in)), uint32(len(in))
	} else if len(out) > 0 {
		r.Cmd.Op, r.Out = blk.Write, append([]byte(nil), out...)
	}
	q.PushControl(&r.Control)
	q.link.Kick()
	select {
	case <-r.Done:
	case <-q.over:
		select {
		case <-r.Done: // answered in front of the end: a refusal that says why
		default:
			return nvme.Completion{}, 0, q.endErr() // the reader may be writing the answer
		}
	case <-ctx.Done():
		r.Fate.Store(wire.FateAbandoned)
		return nvme.Completion{}, 0, q.c.cfg.wrap(context.Cause(ctx))
	}
	return r.answer, copy(in, r.Cmd.Buf[:min(int(r.Cmd.Moved), len(r.Cmd.Buf))]), q.c.cfg.wrap(r.Err)
}

// endErr is the error of a call cut short by the end of the queue.
func (q *queue) endErr() error {
	if err := q.c.Err(); err != nil {
		return err
	}
	if err := q.cause.Load(); err != nil {
		return q.c.cfg.wrap(*err)
	}
	return q.c.cfg.wrap(ErrClosed)
}

// do is exec on the admin queue, for commands that must succeed and fill in.
func (c *Controller) do(ctx context.Context, what string, e nvme.Command, in []byte) (uint64, error) {
	a, n, err := c.admin.exec(ctx, e, nil, in, nil)
	switch {
	case err != nil:
		return 0, err
	case !a.Status.OK():
		return 0, c.cfg.errorf("%s: %w", what, a.Status)
	case n < len(in):
		return 0, c.cfg.wrap(violation("%s: %d of %d bytes came", what, n, len(in)))
	}
	return a.Result, nil
}

// getLog fills b with a log page, or with a part of it.
func (c *Controller) getLog(ctx context.Context, r nvme.LogRequest, b []byte) error {
	r.Len = uint32(len(b))
	_, err := c.do(ctx, fmt.Sprintf("read log page %02Xh", r.Page), r.Command(), b)
	return err
}

func (c *Controller) getProperty(ctx context.Context, what string, off uint32) (uint64, error) {
	return c.do(ctx, "read "+what, nvme.GetProperty(off), nil)
}

// setConfig writes CC, and waits until CSTS is as wanted.
func (c *Controller) setConfig(ctx context.Context, cc nvme.ControllerConfig, limit time.Duration, wanted func(nvme.ControllerState) bool) error {
	if _, err := c.do(ctx, "set CC", nvme.SetProperty(nvme.RegCC, uint64(cc.Value())), nil); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the controller did not get there within %v", limit))
	defer cancel()
	for {
		v, err := c.getProperty(ctx, "CSTS", nvme.RegCSTS)
		if err != nil {
			return err
		}
		switch s := nvme.ParseState(uint32(v)); {
		case wanted(s):
			return nil
		case s.Fatal:
			return c.cfg.wrap(ErrFailed)
		}
		if err := sleep(ctx, readyPoll); err != nil {
			return c.cfg.wrap(err)
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
