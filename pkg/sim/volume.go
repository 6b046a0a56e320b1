package sim

import (
	"fmt"
)

// The verbs that change the volume, its target as a whole, or this host.

func makeGrow(a *args) func(r *run) func() {
	n := a.num(10, 1, 1<<20)
	return func(r *run) func() {
		size := r.array.size + uint64(n*r.Setup.BlockSize)
		if size > r.array.disk.Size() {
			return nil
		}
		r.array.size = size
		r.array.do(func(m front) { m.grow(size, func(p int) bool { return r.path(p).foreign }) })
		return nil
	}
}

func makeSwap(a *args) func(r *run) func() {
	p := a.path()
	return func(r *run) func() {
		m := r.array.m
		if m == nil || r.path(p).foreign {
			return nil
		}
		r.path(p).foreign = true
		back, err := m.swap(p, r.array.size)
		r.array.settle()
		if err != nil {
			r.oracle.report("swap: %v", err)
			return nil
		}
		return func() {
			if r.array.m != m {
				return
			}
			for _, l := range r.path(p).links {
				l.spy.armed, l.spy.heard = false, false
			}
			r.path(p).foreign = false
			if err := back(r.array.size); err != nil {
				r.oracle.report("swap: %v", err)
			}
			r.array.settle()
		}
	}
}

func makeDie(a *args) func(r *run) func() {
	lose, silent := a.option("lose"), a.option("silent")
	return func(r *run) func() {
		if r.array.m == nil {
			return nil
		}
		r.array.die(silent)
		if lose {
			r.oracle.crashed(r.array.disk.crash(), r.array.disk.block)
		}
		return func() {
			if err := r.array.start(lose); err != nil {
				r.oracle.report("the target does not start: %v", err)
			}
		}
	}
}

func makeKill(a *args) func(r *run) func() {
	return func(r *run) func() {
		if r.dying {
			return nil
		}
		r.dying = true
		r.killNow()
		r.oracle.faultBegins() // until the next process is there
		r.jobs.Go(func() { r.restart(a.step.For) })
		return nil
	}
}

func makeReconnect(a *args) func(r *run) func() {
	i := a.num(10, 0, 15)
	if i >= a.setup.Clients {
		a.fail(fmt.Errorf("there are %d clients", a.setup.Clients))
	}
	return func(r *run) func() {
		r.oracle.mu.Lock()
		defer r.oracle.mu.Unlock()
		if c := r.clients[i]; r.proc != nil && !r.proc.dead && c.next == nil {
			c.next = r.proc
			c.cond.Broadcast()
		}
		return nil
	}
}
