package sim

import (
	"fmt"

	"github.com/csi-mpath/csi-mpath/pkg/device"
)

// The verbs of an operator: orders about paths, and tunables changed under load.
// A new process knows nothing of what its predecessor was told.

func makeOrder(o device.Order) func(a *args) func(r *run) func() {
	return func(a *args) func(r *run) func() {
		p := 0
		if o != device.OrderFailback {
			p = a.path()
		}
		return func(r *run) func() {
			r.tell(func(d *device.Device) {
				address := ""
				if p != 0 {
					address = r.path(p).address
				}
				// A drain is refused while no other path is left.
				if err := d.Order(o, address); err != nil && o != device.OrderDrain {
					r.oracle.report("%s: %v", o, err)
				}
			})
			return nil
		}
	}
}

func makeTune(a *args) func(r *run) func() {
	key, value := a.word(), a.word()
	a.fail2(device.CheckTunable(key, value))
	return func(r *run) func() {
		r.tell(func(d *device.Device) {
			if err := d.Tune(key, value); err != nil {
				r.oracle.report("tune %s %s: %v", key, value, err)
			}
		})
		return nil
	}
}

// tell calls f with the device of the process that lives, as a goroutine of its
// own: what f does may send. Under world.mu.
func (r *run) tell(f func(d *device.Device)) {
	r.jobs.Go(func() {
		r.oracle.mu.Lock()
		p, dead := r.proc, r.proc.dead
		r.oracle.mu.Unlock()
		if !dead {
			f(p.dev)
		}
	})
}

// enableAll takes back what operators asked for.
func (r *run) enableAll() {
	r.oracle.mu.Lock()
	p := r.proc
	r.oracle.mu.Unlock()
	for _, a := range r.array.paths {
		if err := p.dev.Order(device.OrderEnable, a.address); err != nil {
			r.oracle.report("%s: %v", device.OrderEnable, err)
		}
	}
	if err := p.dev.Order(device.OrderFailback, ""); err != nil {
		r.oracle.report("%s: %v", device.OrderFailback, err)
	}
}

// tierOf orders the groups of paths as the device prints them.
var tierOf = map[string]int{"preferred": 0, "optimized": 1, "non-optimized": 2, "marginal": 3, "drained": 4}

// judgeTable holds the table of paths against its own rules. A status is of one
// moment, so nothing here needs patience.
func (r *run) judgeTable(p *process) {
	st := p.dev.Status()
	best, used, in, all := -1, -1, 0, map[string]int{}
	for i := range st.Paths {
		q := &st.Paths[i]
		t, ok := tierOf[q.Group]
		if !ok {
			continue
		}
		all[q.Group]++
		if best < 0 || t < best {
			best = t
		}
		if !q.InUse {
			continue
		}
		if in++; used >= 0 && used != t {
			r.oracle.report("paths of two groups are used at once: %+v", st)
		}
		used = t
	}
	switch {
	case best >= 0 && used < 0:
		r.oracle.report("a path could be used, and none is: the last path was dropped: %+v", st)
	case in != st.Usable:
		r.oracle.report("%d paths are used, %d are said to be: %+v", in, st.Usable, st)
	case used >= 0 && in != all[nameOf(used)]:
		r.oracle.report("a path of the group in use is not used: %+v", st)
	case used > best && r.Setup.Failback == defaults().Failback:
		r.oracle.report("a better group is there and not used, failback is immediate: %+v", st)
	}
}

func nameOf(tier int) string {
	for name, t := range tierOf {
		if t == tier {
			return name
		}
	}
	return fmt.Sprint(tier)
}

// shareEach is how many commands of each path tell how a selector shares them.
const shareEach = 2

// share judges how the selector spread each*paths equal commands, sent one by
// one on a lane of their own and all in flight, over paths that are idle but
// for them. That of historical-service-time depends on what was measured.
func (r *run) share(each int) {
	st := r.proc.dev.Status()
	if st.Usable != len(st.Paths) {
		return // one was found slow just now
	}
	var counts []uint64
	busiest, sum := uint64(0), uint64(0)
	for i := range st.Paths {
		n := st.Paths[i].Commands
		counts, busiest, sum = append(counts, n), max(busiest, n), sum+n
	}
	want := uint64(each * len(st.Paths))
	switch st.Selector {
	case "round-robin", "queue-length", "service-time":
		for _, n := range counts {
			if n != uint64(each) {
				r.oracle.report("%s gives equal paths %v commands, want %d each", st.Selector, counts, each)
				return
			}
		}
	case "io-affinity":
		if busiest != want && want <= uint64(r.Setup.window()) {
			r.oracle.report("%s gives one lane's commands to paths as %v, want all on one", st.Selector, counts)
		}
	}
	if sum != want {
		r.oracle.report("%v commands are counted on the paths, want %d in all", counts, want)
	}
}
