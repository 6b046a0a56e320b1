package nvmetcp

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	"github.com/csi-mpath/csi-mpath/pkg/nvmetcp/auth"
	"github.com/csi-mpath/csi-mpath/pkg/nvmetcp/pdu"
)

// challenges is the randomness of every authentication of the process: it
// recognizes a challenge of its own that comes back.
var challenges auth.Source

// Dial brings up a controller: it connects to cfg.Portal, authenticates, enables
// the controller and connects its I/O queues. ctx, ConnectTimeout and
// LoginTimeout bound it. Errors are ControllerErrors that wrap ErrAuth,
// ErrForbidden, ErrNotFound, ErrUnavailable, ErrViolation or what the network
// said.
func Dial(ctx context.Context, cfg Config) (*Controller, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	c := newController(cfg)
	err = c.within(ctx, func(ctx context.Context) error {
		if err := c.bringAdmin(ctx, cfg.KeepAlive); err != nil {
			return err
		}
		c.clock.Set() // it stood: what is sent before the first tick is not that old
		go c.ticker()
		if err := c.bringQueues(ctx); err != nil {
			return err
		}
		go c.keeper()
		return c.watchEvents(ctx)
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// dialDiscovery brings up a discovery controller for a moment: an admin queue
// alone, without keep alive (B-20).
func dialDiscovery(ctx context.Context, cfg Config) (*Controller, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	c := newController(cfg)
	if err := c.within(ctx, func(ctx context.Context) error { return c.bringAdmin(ctx, 0) }); err != nil {
		return nil, err
	}
	return c, nil
}

// within runs f, which brings the controller up, within LoginTimeout; if it
// fails the controller is over.
func (c *Controller) within(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.cfg.ConnectTimeout+c.cfg.LoginTimeout,
		fmt.Errorf("not ready within %v", c.cfg.ConnectTimeout+c.cfg.LoginTimeout))
	defer cancel()
	err := c.cfg.wrap(f(ctx))
	if err != nil {
		c.fail(err)
	}
	return err
}

// bringAdmin makes the controller: admin queue, authentication, CC.EN, Identify.
func (c *Controller) bringAdmin(ctx context.Context, kato time.Duration) (err error) {
	sh := shape{controls: adminEntries - maxEvents - 1, standing: maxEvents, capsule: pdu.AdminCapsuleData}
	if c.admin, err = c.open(ctx, sh); err != nil {
		return err
	}
	conn := c.admin.link.Sock.Conn()
	c.info.Local, c.info.Remote = conn.LocalAddr(), conn.RemoteAddr()
	h := nvme.ConnectCommand{SQSize: adminEntries - 1, KeepAlive: uint32(kato.Milliseconds())}
	r, err := c.join(ctx, c.admin, h, nvme.AnyController)
	if err != nil {
		return err
	}
	c.info.CNTLID = r.ControllerID
	if err := c.enable(ctx); err != nil {
		return err
	}
	return c.identify(ctx, kato)
}

// join is Fabrics Connect, and authentication if either end wants it.
func (c *Controller) join(ctx context.Context, q *queue, h nvme.ConnectCommand, id uint16) (r nvme.ConnectResult, err error) {
	d := nvme.ConnectData{HostID: c.cfg.HostID, ControllerID: id, Subsystem: c.cfg.Subsystem, Host: c.cfg.HostNQN}
	data, err := d.Append(nil)
	if err != nil {
		return r, err
	}
	h.QueueID = q.id
	a, _, err := q.exec(ctx, h.Command(), nil, nil, data)
	if err != nil {
		return r, err
	}
	if !a.Status.OK() {
		return r, connectError(a.Status, a.Result)
	}
	r = nvme.ParseConnectResult(a.Result)
	wanted, err := c.cfg.Auth.Required(r.AuthRequired, r.SecureChan)
	if err != nil {
		return r, fmt.Errorf("%w: %w", ErrAuth, err)
	}
	if wanted {
		err = c.authenticate(ctx, q)
	}
	return r, err
}

// authenticate runs DH-HMAC-CHAP on one queue (Base 8.3.4).
func (c *Controller) authenticate(ctx context.Context, q *queue) error {
	h, err := auth.NewHost(c.cfg.Auth, c.cfg.HostNQN, c.cfg.Subsystem, &challenges)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrAuth, err)
	}
	var in []byte
	for range maxAuthLegs {
		out, done, refused := h.Next(in)
		if len(out) > 0 { // with an error: it says why
			a, _, err := q.exec(ctx, nvme.SendAuth(uint32(len(out))), nil, nil, out)
			if err = errors.Join(err, a.Status.Err()); err != nil && refused == nil {
				return fmt.Errorf("authentication: %w", err)
			}
		}
		if refused != nil {
			return fmt.Errorf("%w: %w", ErrAuth, refused)
		}
		if done {
			return nil
		}
		in = make([]byte, auth.MaxMessage)
		a, n, err := q.exec(ctx, nvme.ReceiveAuth(uint32(len(in))), nil, in, nil)
		if err = errors.Join(err, a.Status.Err()); err != nil {
			return fmt.Errorf("authentication: %w", err)
		}
		in = in[:n]
	}
	return violation("authentication takes more than %d messages", maxAuthLegs)
}

// enable sets CC.EN and waits for CSTS.RDY, for as long as CAP.TO says.
func (c *Controller) enable(ctx context.Context) error {
	v, err := c.getProperty(ctx, "CAP", nvme.RegCAP)
	if err != nil {
		return err
	}
	c.caps = nvme.ParseCaps(v)
	limit := c.caps.Ready
	if limit == 0 {
		limit = noReadyTimeout
	}
	return c.setConfig(ctx, c.config(), limit, func(s nvme.ControllerState) bool { return s.Ready && !s.Fatal })
}

// config is CC of an enabled controller.
func (c *Controller) config() nvme.ControllerConfig {
	return nvme.ControllerConfig{Enable: true, PageShift: c.caps.MinPageShift, SQShift: 6, CQShift: 4}
}

// identify reads what the controller is, and what of it binds the host.
func (c *Controller) identify(ctx context.Context, kato time.Duration) error {
	b := make([]byte, nvme.IdentifyLen)
	if _, err := c.do(ctx, "identify controller", nvme.Identify(nvme.CNSController, 0), b); err != nil {
		return err
	}
	id, err := nvme.ParseController(b)
	if err != nil {
		return broken(err)
	}
	c.id = id
	step := time.Duration(id.KeepAliveStep) * 100 * time.Millisecond
	if step > 0 {
		kato = (kato + step - 1) / step * step
	}
	c.info.KATO, c.info.TBKAS, c.info.CQT = kato, id.TrafficKeepsAlive(), id.QuiesceTime()
	if id.ReportsANA() {
		c.info.ANATT = id.ANATransitionTime()
	}
	if id.DataOffset != 0 && id.CapsuleUnits != 0 {
		return violation("data in capsules begins at an offset (ICDOFF %d), which no NVMe/TCP controller may ask for", id.DataOffset)
	}
	return nil
}

// offerToWait tells the controller that this host waits before a retry where it
// is asked to (B-26). A controller that does not take the word for it never asks.
func (c *Controller) offerToWait(ctx context.Context) error {
	if c.id.RetryDelays == [3]uint16{} {
		return nil
	}
	_, _, err := c.admin.exec(ctx, nvme.SetFeature(0, nvme.FeatureHostBehavior, 0), nil, nil, nvme.HostBehavior())
	return err
}

// bringQueues connects the I/O queues that are granted (B-22).
func (c *Controller) bringQueues(ctx context.Context) error {
	if c.id.Kind == nvme.ControllerDiscovery {
		return fmt.Errorf("%w: this is a discovery controller", ErrNotFound)
	}
	if err := c.offerToWait(ctx); err != nil {
		return err
	}
	v, err := c.do(ctx, "set the number of queues", nvme.SetFeature(0, nvme.FeatureQueues, nvme.Queues(c.cfg.Queues)), nil)
	if err != nil {
		return err
	}
	sh, entries, err := c.ioShape()
	if err != nil {
		return err
	}
	attributes := uint8(nvme.ConnectNoFlowControl)
	for n := min(c.cfg.Queues, nvme.ParseQueues(uint32(v))); len(c.queues) < n; {
		sh.id = uint16(len(c.queues) + 1)
		q, err := c.open(ctx, sh)
		if err != nil {
			return fmt.Errorf("I/O queue %d: %w", sh.id, err)
		}
		h := nvme.ConnectCommand{SQSize: uint16(entries - 1), Attributes: attributes}
		if _, err = c.join(ctx, q, h, c.info.CNTLID); err == nil && !q.fate.CompareAndSwap(queueNew, queueJoined) {
			err = q.endErr()
		}
		var refused nvme.Status
		switch {
		case err == nil:
			c.queues = append(c.queues, q)
			continue
		case !errors.As(err, &refused) || errors.Is(err, ErrAuth):
			return fmt.Errorf("I/O queue %d: %w", sh.id, err)
		}
		c.drop(q)
		if attributes != 0 && len(c.queues) == 0 { // perhaps it insists on flow control
			attributes = 0
		} else if len(c.queues) == 0 {
			return fmt.Errorf("I/O queue %d: %w", sh.id, err)
		} else {
			break // fewer will do
		}
	}
	c.info.Queues, c.info.Depth = len(c.queues), sh.depth
	return nil
}

// ioShape is how large the I/O queues are: what was asked for, and no more than
// MQES and MAXCMD. One entry stays free: a queue without may look empty (B-07).
func (c *Controller) ioShape() (sh shape, entries int, err error) {
	entries = min(c.cfg.QueueDepth+ioControls+1, int(c.caps.MaxEntries))
	most := entries - 1
	if c.id.MaxCommands != 0 {
		most = min(most, int(c.id.MaxCommands))
	}
	if most < 2 {
		return sh, 0, violation("I/O queues of %d entries (MQES), %d commands (MAXCMD): two commands are the least", c.caps.MaxEntries, c.id.MaxCommands)
	}
	controls := min(ioControls, most/2)
	sh = shape{depth: min(most-controls, c.cfg.QueueDepth), controls: controls, capsule: int(c.id.InCapsuleMax())}
	return sh, entries, nil
}
