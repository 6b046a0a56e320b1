package sim

import (
	"context"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/target/serve"
)

// watch accuses requests that take longer than anything explains. Under world.mu.
func (r *run) watch() {
	r.oracle.mu.Lock()
	defer r.oracle.mu.Unlock()
	o := r.oracle
	limit, since := o.slack, o.lastFault
	calm := o.calm(o.slack)
	if calm {
		limit = calmAnswer
	}
	if o.faults == 0 {
		for _, c := range r.clients {
			for _, f := range c.inFlight() {
				begin := f.op.started
				if !calm && begin.Before(since) {
					begin = since
				}
				if d := time.Since(begin); d > limit && !f.op.accused {
					f.op.accused = true
					o.violate("%v is not answered, %v after it was sent and %v after the last fault", f.op,
						time.Since(f.op.started), time.Since(since))
				}
			}
		}
	}
	r.w.after(watchEvery, r.watch)
}

// look notes when paths are usable, until the run is over: noPathTimeout counts
// from the loss of the last one, so an error sooner after a look is wrong.
func (r *run) look() {
	t := time.NewTicker(watchEvery / 5)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-r.over:
			return
		}
		r.oracle.mu.Lock()
		p, dead := r.proc, r.proc.dead
		r.oracle.mu.Unlock()
		if dead {
			continue
		}
		r.judgeTable(p)
		if p.dev.Status().Usable == 0 {
			continue
		}
		r.oracle.mu.Lock()
		if !p.dead {
			r.oracle.usable = time.Now()
		}
		r.oracle.mu.Unlock()
	}
}

// inFlight lists what is in flight on connections that live.
func (c *client) inFlight() (all []*flight) {
	if c.conn == nil || c.conn.dead {
		return nil
	}
	for _, f := range c.conn.flying {
		if f != nil {
			all = append(all, f)
		}
	}
	return all
}

// finish heals the world, and looks at what is left.
func (r *run) finish() {
	r.ask(0)
	r.w.under(r.heal)
	if !r.until(r.oracle.slack, r.answered) {
		r.oracle.report("not all is answered %v after the last fault: %d requests, %+v", r.oracle.slack, r.open(), r.state())
	}
	r.enableAll()
	wait(settleTime)
	if !r.oracle.failed() {
		r.calm()
	}
	r.windows()
	r.end()
}

// ask lets each client ask up to n times, at once, or keeps them from it.
func (r *run) ask(n int) {
	r.oracle.mu.Lock()
	defer r.oracle.mu.Unlock()
	for _, c := range r.clients {
		c.think, c.budget = 0, n
		if n > 0 {
			c.budget = 1 + c.rng.IntN(n)
		}
		c.cond.Broadcast()
	}
}

// calm lets the clients ask once more, with no fault near, and wait for each
// other: nothing that comes later makes up for what was forgotten.
func (r *run) calm() {
	n := calmRounds
	if r.Setup.Haste {
		n = hasteRounds
	}
	for range n {
		r.ask(3)
		if !r.until(calmAnswer, r.answered) {
			r.oracle.report("without any fault %d requests are not answered: %+v", r.open(), r.state())
			return
		}
	}
}

// heal ends what steps may have left behind, and makes all paths alike: one with
// little room in its sockets may rightly be found slow for ever. Under world.mu.
func (r *run) heal() {
	r.array.widen()
	r.array.do(func(m front) {
		m.ClearFaults()
		for _, p := range r.Setup.Paths {
			m.access(p[1], optimized)
		}
	})
}

func (r *run) state() any {
	r.oracle.mu.Lock()
	p := r.proc
	r.oracle.mu.Unlock()
	if p == nil || p.dev == nil || p.dead {
		return "no process"
	}
	return p.dev.Status()
}

// until waits for ok for at most d.
func (r *run) until(d time.Duration, ok func() bool) bool {
	for end := time.Now().Add(d); !ok(); wait(50 * time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

func (r *run) answered() bool { return r.open() == 0 }

// open counts what the clients wait for.
func (r *run) open() (n int) {
	var dying bool
	r.w.under(func() { dying = r.dying })
	r.oracle.mu.Lock()
	defer r.oracle.mu.Unlock()
	for _, c := range r.clients {
		n += c.waitingFor()
		if n += max(c.budget, 0); c.next != nil || c.conn == nil || c.conn.dead {
			n++
		}
	}
	if dying {
		n++
	}
	return n
}

// windows looks for leaked tags: when the target answers nothing, every path
// takes exactly as many commands as it may have in flight. A path that is found
// slow just then is not used: once more.
func (r *run) windows() {
	for range fillTimes {
		if r.oracle.failed() || r.fill() {
			return
		}
	}
	r.oracle.report("a path is found slow again and again: %+v", r.state())
}

// whole: every path may be used, and nothing is under way.
func (r *run) whole() bool {
	st := r.proc.dev.Status()
	return st.Usable == len(r.Setup.Paths) && st.InDoubt == 0 && st.Held == 0
}

// fill fills the windows of all paths; false when one was not used.
func (r *run) fill() bool {
	if !r.until(recoverTime, r.whole) { // a path that was slow under load has to show that it is quick
		r.oracle.report("%v after all is healed the device is not whole: %+v", recoverTime, r.state())
		return true
	}
	want := r.Setup.window() * len(r.Setup.Paths)
	all := r.Setup.Depth*len(r.Setup.Paths) + 8
	lane, err := r.proc.dev.OpenLane(all)
	if err != nil {
		r.oracle.report("%v", err)
		return true
	}
	defer lane.Close()
	var h *serve.Held
	r.w.under(func() {
		r.array.do(func(m front) { h, _ = m.Hold(serve.Match{Kind: serve.Reads}, false, nil) })
	})
	f := &filler{o: r.oracle}
	each := min(shareEach, r.Setup.window())
	for i := range all {
		if i == each*len(r.Setup.Paths) {
			r.share(each)
		}
		lane.Submit(&blk.Request{Op: blk.Read, Slot: uint32(i), Len: uint32(r.Setup.BlockSize),
			Buf: make([]byte, r.Setup.BlockSize), Owner: f})
	}
	wait(min(r.Setup.CmdTimeout, r.Setup.PathTimeout) / 2)
	used := r.proc.dev.Status().Usable == len(r.Setup.Paths)
	var got int
	r.w.under(func() {
		got = h.Len()
		r.array.do(func(front) { h.Release() })
	})
	if used && got != want {
		r.oracle.report("%d paths with a window of %d commands take %d at once: a tag leaked", len(r.Setup.Paths), r.Setup.window(), got)
	}
	if !r.until(calmAnswer, func() bool { return f.count() == all }) {
		r.oracle.report("%d of %d reads that filled the windows were answered", f.count(), all)
	}
	return used
}

// filler owns the reads that fill the windows.
type filler struct {
	o *oracle
	n int
}

// Flush implements blk.Completer.
func (f *filler) Flush() {}

// Complete implements blk.Completer.
func (f *filler) Complete(q *blk.Request) {
	f.o.mu.Lock()
	defer f.o.mu.Unlock()
	f.n++
	if q.Status != blk.OK {
		f.o.violate("a read that fills a window ended with %v", q.Status)
	}
}

func (f *filler) count() int {
	f.o.mu.Lock()
	defer f.o.mu.Unlock()
	return f.n
}

// end closes everything and judges the disk.
func (r *run) end() {
	r.oracle.mu.Lock()
	p := r.proc
	for _, c := range r.clients {
		c.quit = true
		c.cond.Broadcast()
	}
	r.oracle.mu.Unlock()
	merged := p.dev.Status().Merge.Merged
	for _, c := range r.clients {
		<-c.done
		if c.conn != nil && !c.conn.dead {
			c.conn.lane.Close()
		}
	}
	close(r.over)
	r.jobs.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), r.oracle.slack)
	defer cancel()
	if err := p.dev.Close(ctx); err != nil {
		r.oracle.report("close: %v", err)
	}
	wait(2 * r.Setup.Fence)
	r.w.under(func() {
		r.oracle.final(r.array.disk.block)
		for _, p := range r.array.paths {
			for _, l := range p.links {
				if !l.closed && !l.killed {
					r.oracle.report("a connection to %s is left open", p.address)
				}
			}
		}
		if r.array.m != nil {
			r.array.addStats()
		}
	})
	r.owed()
	t, s := r.array.total, &r.oracle.stats
	s.Merged = merged
	s.Late, s.Reinstated, s.Logins, s.Aborted = t.late, t.reinstated, t.logins, t.aborted
}

// owed looks for requests of ended connections that never came back (I2).
func (r *run) owed() {
	r.oracle.mu.Lock()
	defer r.oracle.mu.Unlock()
	for _, c := range r.clients {
		for _, n := range c.conns {
			if n.out != 0 {
				r.oracle.violate("%d requests of client %d never came back", n.out, c.id)
			}
		}
	}
}
