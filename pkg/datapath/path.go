package datapath

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
)

// ErrNoProof: the transport knows no way to prove a fence without the path's
// own portal. ProveDead returns it to say that asking again is useless.
var ErrNoProof = errors.New("no proof of fence is possible away from the path's own portal")

// ErrDefinite marks an error of Connect that only an operator can cure: wrong
// name, wrong secret, no such unit. The path is tried again all the same, but
// Open does not wait for it.
var ErrDefinite = errors.New("not curable by waiting")

// PathState is where a path is in its life.
//
//	Connecting -> Live -> Connecting ...
//	     |          |
//	     v          v
//	  Quarantined <-+  (identity mismatch; tried again later)
type PathState uint8

// The states of a path.
const (
	Connecting PathState = iota
	Live
	Quarantined
	Stopped
)

var stateNames = [...]string{"connecting", "live", "quarantined", "stopped"}

// String names the state as tables print it.
func (s PathState) String() string { return stateNames[s] }

// Path is one way to the device, for as long as the device is open.
//
// run is its only control goroutine; it owns the back-off. The fields below
// mu are under the device's control lock.
type Path struct {
	dev   *Device
	tr    Transport
	index int
	wake  chan struct{} // capacity 1: evidence, or a hint to try now

	// fences counts its fences that are not resolved, inLine says that it waits
	// for Config.Turn. Written under the doubt registry's lock, and by run; read
	// for Urgency and tables, where a stale value does no harm.
	fences atomic.Int32
	inLine atomic.Bool

	// Under dev.mu:
	state      PathState
	stateSince time.Time
	marginal   bool // the judge's mark
	drained    bool // an operator keeps I/O off it
	preferred  bool // an operator wants I/O on it
	live       *live
	lastErr    error
	seen       *Facts // of the last incarnation that joined
	looks      uint64 // that update took in
	hopeless   bool   // its last attempt ended with ErrDefinite or a mismatch
	downs      uint64
	connects   uint64
}

// poke wakes the control goroutine. Never blocks.
func (p *Path) poke() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// run brings the path up again for ever, with jittered, capped back-off (I5).
func (p *Path) run(ctx context.Context) {
	defer p.dev.wg.Done()
	defer p.dev.setState(p, Stopped, nil)
	p.proveFences(ctx) // of what a dead process left
	bound := backoffMin
	for ctx.Err() == nil {
		lv, err := p.bringUp(ctx)
		pause := bound/4 + p.jitter(bound*3/4)
		if err != nil {
			if errors.Is(err, ErrMismatch) {
				pause = max(pause, quarantineMin)
			}
			bound = min(2*bound, backoffMax)
			if !p.sleep(ctx, pause) {
				bound = backoffMin
			}
			continue
		}
		since := time.Now()
		p.serve(ctx, lv)
		p.proveFences(ctx)
		if time.Since(since) >= backoffForgiven {
			bound = backoffMin // and at once: coming back is also the fence (I3)
			continue
		}
		bound = min(2*bound, backoffMax)
		p.sleep(ctx, pause)
	}
}

// sleep waits; false when a hint cut it short.
func (p *Path) sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return true
	case <-p.wake:
		return false
	}
}

// bringUp makes one incarnation live, or says why not.
func (p *Path) bringUp(ctx context.Context) (*live, error) {
	leave, err := p.turn(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	cctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	lv := &live{path: p, dev: p.dev, inc: p.dev.nextIncarnation(), gone: make(chan struct{})}
	q, err := p.tr.Connect(cctx, lv)
	if err != nil {
		p.dev.setState(p, Connecting, err)
		return nil, err
	}
	lv.q = q
	lv.facts = q.Facts()
	lv.access = lv.facts.Access
	if lv.facts.Proof {
		p.dev.doubt.resolvePath(p, ByReconnect)
	}
	if err = p.claim(cctx, lv); err == nil {
		err = p.dev.join(lv)
	}
	if err != nil {
		q.Abort(err)
		<-lv.gone
		return nil, err
	}
	return lv, nil
}

// claim has the owner of the device say whether a new incarnation may carry I/O.
// Of one that leads elsewhere nobody is asked: join refuses it (I1).
func (p *Path) claim(ctx context.Context, lv *live) error {
	if p.dev.cfg.Claim == nil || !p.dev.leadsHere(&lv.facts) {
		return nil
	}
	err := p.dev.cfg.Claim(ctx, lv.q)
	if err != nil {
		p.dev.setState(p, Connecting, err)
	}
	return err
}

// Urgency is how much a device needs a path, the most urgent first.
type Urgency uint8

// The urgencies.
const (
	Fencing   Urgency = iota // writes may wait for the fence that its login is (I3)
	Dark                     // no path is live
	Redundant                // others carry the I/O meanwhile
)

func (p *Path) urgency() Urgency {
	switch {
	case p.fences.Load() > 0:
		return Fencing
	case p.dev.up.Load() == 0:
		return Dark
	}
	return Redundant
}

// turn waits for the path's turn to be brought up. Not bounded by
// connectTimeout: how long that takes says nothing about the path.
func (p *Path) turn(ctx context.Context) (leave func(), err error) {
	if p.dev.cfg.Turn == nil {
		return func() {}, nil
	}
	p.inLine.Store(true)
	defer p.inLine.Store(false)
	return p.dev.cfg.Turn(ctx, p.tr.Name(), p.urgency)
}

// serve looks after a live path until it is gone.
func (p *Path) serve(ctx context.Context, lv *live) {
	t := time.NewTimer(p.nextLook(lv))
	defer t.Stop()
	last := time.Now()
	for {
		select {
		case <-lv.gone:
			return
		case <-ctx.Done():
			p.stop(lv)
			return
		case <-p.wake:
			ev := blk.Evidence(lv.evidence.Load())
			if ev&p.dev.stopping() != 0 {
				p.dev.suspend(lv)
			} else if wait := refreshGap - time.Since(last); wait > 0 {
				t.Reset(wait)
				continue
			}
		case <-t.C:
		}
		p.refresh(ctx, lv)
		last = time.Now()
		t.Reset(p.nextLook(lv))
	}
}

// nextLook is when the path wants to be read again.
func (p *Path) nextLook(lv *live) time.Duration {
	narrow := lv.widen()
	p.dev.mu.Lock()
	defer p.dev.mu.Unlock()
	if narrow || !lv.access.usable() {
		return transitionPeriod
	}
	return p.quietLook()
}

// quietLook draws when a quiet path is read again: thousands of them, brought
// up together, must not be read together.
func (p *Path) quietLook() time.Duration { return refreshPeriod - p.jitter(refreshPeriod/4) }

func (p *Path) jitter(below time.Duration) time.Duration {
	if j := p.dev.cfg.Jitter; j != nil {
		return j(p.tr.Name(), below)
	}
	return rand.N(below)
}

// refresh re-reads a live path and acts on what it finds.
func (p *Path) refresh(ctx context.Context, lv *live) {
	ev := blk.Evidence(lv.evidence.Swap(0))
	rctx, cancel := context.WithTimeout(ctx, refreshTimeout)
	defer cancel()
	f, err := lv.q.Refresh(rctx)
	if err == nil {
		err = p.dev.update(lv, f)
	} else if ev&p.dev.stopping() == 0 && !errors.Is(err, ErrMismatch) {
		return // only late news: the next look will tell, and a dead path shows itself
	}
	if err == nil && p.dev.cfg.Claim != nil {
		err = p.dev.cfg.Claim(rctx, lv.q)
	}
	if err != nil {
		lv.q.Abort(err)
		<-lv.gone
		return
	}
	lv.q.Resume()
	p.dev.kickAll()
}

// stop ends a live path in order as the device closes.
func (p *Path) stop(lv *live) {
	ctx, cancel := context.WithTimeout(context.Background(), refreshTimeout)
	defer cancel()
	if err := lv.q.Close(ctx); err != nil {
		lv.q.Abort(fmt.Errorf("close: %w", err))
	}
	<-lv.gone
}

// proveFences tries the proofs that do not need this path's portal, beside its
// reconnecting, until every fence of the path is resolved.
func (p *Path) proveFences(ctx context.Context) {
	for _, f := range p.dev.doubt.pathFences(p) {
		p.dev.wg.Add(1)
		go func() {
			defer p.dev.wg.Done()
			p.prove(ctx, f)
		}()
	}
}

func (p *Path) prove(ctx context.Context, f *fence) {
	for {
		pctx, cancel := context.WithTimeout(ctx, connectTimeout)
		err := p.tr.ProveDead(pctx)
		cancel()
		if err == nil {
			p.dev.doubt.resolve(f, ByProof)
			return
		}
		if errors.Is(err, ErrNoProof) {
			return
		}
		t := time.NewTimer(provePeriod)
		select {
		case <-f.done:
		case <-ctx.Done():
		case <-t.C:
			continue
		}
		t.Stop()
		return
	}
}
