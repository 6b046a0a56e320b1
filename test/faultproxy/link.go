package faultproxy

import (
	"net"
	"slices"
	"sync"
	"time"
)

// link is one client's connection and its counterpart to the target.
type link struct {
	proxy          *Proxy
	client, target *net.TCPConn // target is nil when the client was swallowed
	mu             sync.Mutex
	flows          [2]flow // to target, to client
	over           bool
	dialing        bool    // faults that come now wait in early
	early          []Fault // events that came while dialing
	running        int     // goroutines of this link
}

// newLink is a link that has no target yet.
func newLink(p *Proxy, client *net.TCPConn) *link {
	l := &link{proxy: p, client: client, dialing: true}
	l.flows[0] = flow{link: l, dir: ToTarget, src: client, cond: sync.NewCond(&l.mu)}
	l.flows[1] = flow{link: l, dir: ToClient, dst: client, cond: sync.NewCond(&l.mu)}
	return l
}

// abortBoth aborts both ends.
func (l *link) abortBoth() {
	l.mu.Lock()
	defer l.mu.Unlock()
	abort(l.client)
	abort(l.target)
}

// connect gives the link its target, nil if it has none for good, and what
// happened to it meanwhile.
func (l *link) connect(target *net.TCPConn) {
	l.mu.Lock() // for all of it: a heal comes before it or after it
	defer l.mu.Unlock()
	l.target, l.flows[0].dst, l.flows[1].src = target, target, target
	l.dialing = false
	if l.over { // closed meanwhile
		l.stopLocked()
	}
	if target == nil {
		l.happen(Fault{Kind: BlackHole})
	}
	for _, f := range l.early {
		l.happen(f)
	}
	l.early = nil
}

// start runs the flows; conditions and armed faults are in place before.
func (l *link) start() {
	n := 4
	if l.target == nil {
		n = 2
	}
	l.running = n
	l.proxy.wg.Add(n)
	for i := range l.flows[:n/2] {
		go l.flows[i].read()
		go l.flows[i].write()
	}
}

// done ends one goroutine of the link; the last one closes the sockets.
func (l *link) done() {
	l.mu.Lock()
	l.running--
	last := l.running == 0
	l.mu.Unlock()
	if last {
		l.stop()
		l.proxy.forget(l)
	}
	l.proxy.wg.Done()
}

// stop closes both sockets and wakes everybody. Any goroutine.
func (l *link) stop() {
	l.mu.Lock()
	l.stopLocked()
	l.mu.Unlock()
}

func (l *link) stopLocked() {
	l.over = true
	_ = l.client.Close()
	if l.target != nil {
		_ = l.target.Close()
	}
	for i := range l.flows {
		l.flows[i].cond.Broadcast()
	}
}

// arm adds a fault at a byte of the flows it is meant for.
func (l *link) arm(at int64, f Fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.flows {
		fl := &l.flows[i]
		if f.Dir.has(fl.dir) && at >= fl.off && len(fl.armed) < maxArmed {
			fl.armed = append(fl.armed, armed{at, f})
			slices.SortStableFunc(fl.armed, func(a, b armed) int { return int(min(max(a.at-b.at, -1), 1)) })
			fl.cond.Broadcast()
		}
	}
}

// now applies a fault to the flows it is meant for.
func (l *link) now(f Fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dialing {
		if len(l.early) < maxArmed {
			l.early = append(l.early, f)
		}
		return
	}
	l.happen(f)
}

// happen is now for a link whose target is known. Under l.mu.
func (l *link) happen(f Fault) {
	for i := range l.flows {
		if f.Dir.has(l.flows[i].dir) && !l.over {
			l.apply(&l.flows[i], f)
			l.flows[i].cond.Broadcast()
		}
	}
}

// apply changes one flow. Under l.mu.
func (l *link) apply(fl *flow, f Fault) {
	switch f.Kind {
	case Cut:
		l.end(fl)
	case Reset:
		l.reset(fl, f.Dir == Both)
	case BlackHole:
		fl.swallow()
	case Hold, release:
		fl.held = f.Kind == Hold
	case Delay:
		fl.delay = f.Wait
	case Throttle:
		fl.rate, fl.free = f.Rate, time.Time{}
	case Drop:
		fl.drop = max(f.Count, 1)
	case Flip:
		fl.flip, fl.mask = max(f.Count, 1), f.Mask
		if fl.mask == 0 {
			fl.mask = 1
		}
	}
}

// swallow makes the flow a black hole; a write that waits for room is ended.
func (f *flow) swallow() {
	f.hole = true
	if f.dst != nil {
		_ = f.dst.SetWriteDeadline(time.Unix(1, 0))
	}
}

// end sends FIN to the flow's receiver; when both are told, the link is over.
func (l *link) end(fl *flow) {
	if fl.ended {
		return
	}
	fl.ended = true
	if fl.dst != nil {
		_ = fl.dst.CloseWrite()
	}
	if l.flows[0].ended && l.flows[1].ended {
		l.stopLocked()
	}
}

// reset sends RST to the flow's receiver, and to its source too if both.
func (l *link) reset(fl *flow, both bool) {
	abort(fl.dst)
	if both {
		abort(fl.src)
		l.stopLocked()
		return
	}
	// The source is not told: what it sends goes nowhere, and the receiver's
	// side of the other flow, which sees the closed socket, must stay silent.
	l.flows[0].swallow()
	l.flows[1].swallow()
}

func abort(c *net.TCPConn) {
	if c != nil {
		_ = c.SetLinger(0)
		_ = c.Close()
	}
}

// pass hands the end of a source on to the receiver.
func (l *link) pass(f *flow, e ending) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e == rstSeen && !l.over && !f.ended {
		l.reset(f, true)
		return
	}
	l.end(f)
}

// lost: the receiver is gone. Its source hears of it, unless the way back is
// held or a black hole.
func (l *link) lost(f *flow) {
	l.mu.Lock()
	defer l.mu.Unlock()
	back := &l.flows[2-f.dir]
	if !f.hole && !back.hole && !back.held && !l.over {
		l.reset(f, true)
	}
	f.hole = true
}

// quiet: the source of a black hole has ended and nobody is told. When both
// have, nothing can happen any more.
func (l *link) quiet(f *flow) {
	f.ended = true
	if l.flows[0].ended && l.flows[1].ended || l.target == nil {
		l.stopLocked()
	}
}

// release lets held bytes go.
func (l *link) release(d Dir) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.flows {
		if d.has(l.flows[i].dir) {
			l.flows[i].held = false
			l.flows[i].cond.Broadcast()
		}
	}
	if l.dialing { // after the hold it ends
		l.early = append(l.early, Fault{Kind: release, Dir: d})
	}
}

// heal ends conditions and disarms faults; what a black hole took stays gone.
func (l *link) heal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.flows {
		f := &l.flows[i]
		l.early = slices.DeleteFunc(l.early, Fault.condition)
		f.held, f.delay, f.rate, f.armed, f.drop, f.flip = false, 0, 0, nil, 0, 0
		for j := range f.queue {
			f.queue[j].due = time.Time{}
		}
		f.cond.Broadcast()
	}
}
