package nvmetcp

import (
	"fmt"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	"github.com/csi-mpath/csi-mpath/pkg/wire"
)

// pulse decides when a Keep Alive goes out, and when silence lasts too long.
// Pure. A Keep Alive goes out at two fifths of KATO whatever else does (B-20): so
// with a tick and a slow send it is there within half of it.
type pulse struct {
	kato, silence time.Duration // silence: nothing received for so long is the end
	next          time.Duration // when the next Keep Alive is due
	heard, last   time.Duration // when a byte was last noticed; the last tick
	slept         time.Duration // how long the ticker meant to sleep after it
	seen          uint64
}

// tick looks at the number of receives so far.
func (p *pulse) tick(now time.Duration, received uint64, outstanding bool) (send, dead bool) {
	if late := now - p.last - p.slept; late > time.Second {
		p.heard += late // this process stood still, not the path
	}
	if p.last = now; received != p.seen {
		p.seen, p.heard = received, now
	}
	if p.kato > 0 && now >= p.next {
		p.next, send = now+p.kato*2/5, true
	}
	return send, outstanding && p.silence > 0 && now-p.heard >= p.silence
}

// quiet is how long after a tick at now there is nothing to do, if nothing is
// outstanding.
func (p *pulse) quiet(now time.Duration) time.Duration {
	if p.kato == 0 {
		return time.Hour
	}
	return p.next - now
}

// ticker is the ticker goroutine: keep alive and timeouts. It ticks while
// something is outstanding, and sleeps from one Keep Alive to the next otherwise.
func (c *Controller) ticker() {
	w := wire.Watchdog{Path: c.cfg.PathTimeout}
	p := pulse{kato: c.info.KATO, silence: max(c.cfg.PathTimeout, c.info.KATO), heard: time.Since(c.base)}
	t := time.NewTimer(wire.TickInterval)
	defer t.Stop()
	for {
		select {
		case <-c.done:
			return
		case <-t.C:
		case <-c.clock.Wake:
		}
		now := time.Since(c.base)
		tick := c.clock.Tick(now)
		var received uint64
		for _, q := range *c.all.Load() {
			received += q.Received()
		}
		outstanding := c.outstanding()
		send, dead := p.tick(now, received, outstanding)
		if dead {
			c.fail(fmt.Errorf("%w (%v)", ErrPathTimeout, p.silence))
		}
		switch w.Tick(now, received, outstanding) {
		case wire.WatchPing:
			send = true
		case wire.WatchDead:
			c.fail(fmt.Errorf("%w (%v)", ErrPathTimeout, c.cfg.PathTimeout))
		case wire.WatchOK:
		}
		if send {
			c.keepAlive()
		}
		for _, q := range *c.all.Load() {
			if q.Tasks.TooOld(tick, wire.Ticks(c.cfg.CommandTimeout), wire.Ticks(c.cfg.CommandTimeout)) {
				q.reviewWanted.Store(true)
				q.link.Wake()
			}
		}
		p.slept = c.clock.Rest(p.quiet(now))
		t.Reset(p.slept)
	}
}

// keepAlive sends one. Its answer counts as life, and a refusal is the end: the
// controller is about to give us up.
func (c *Controller) keepAlive() {
	r := &request{entry: nvme.KeepAlive()}
	if !c.admin.NewControl(&r.Control) {
		return // too much else is outstanding, and timed
	}
	r.OnDone = func() {
		if r.Err == nil && !r.answer.Status.OK() {
			c.fail(fmt.Errorf("keep alive: %w", r.answer.Status))
		}
	}
	c.admin.renew(r.Task, nil, r)
	c.admin.PushControl(&r.Control)
	c.admin.link.Kick()
}
