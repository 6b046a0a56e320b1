package subsystem

import (
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/target"
)

// slow is a store that is no memory.
type slow struct{ target.Store }

// bench is a rig whose store's jobs are done one by one.
type bench struct {
	*rig
	jobs []func()
}

func newBench(t *testing.T, change func(*Config)) *bench {
	t.Helper()
	b := &bench{}
	b.rig = newRig(t, func(c *Config) {
		c.Namespaces[0].Store = slow{c.Namespaces[0].Store}
		if change != nil {
			change(c)
		}
	})
	b.Run = func(job func() error, done func(error)) {
		b.jobs = append(b.jobs, func() { done(job()) })
	}
	return b
}

func (b *bench) has(n int) {
	b.t.Helper()
	if len(b.jobs) != n {
		b.t.Fatalf("%d jobs, want %d", len(b.jobs), n)
	}
}

func (b *bench) work(i int) {
	b.t.Helper()
	if i >= len(b.jobs) {
		b.t.Fatalf("no job %d", i)
	}
	job := b.jobs[i]
	b.jobs = append(b.jobs[:i], b.jobs[i+1:]...)
	job()
}

// first is the first byte of a block.
func (r *rig) first(lba int) byte {
	var p [512]byte
	_ = r.ram.ReadAt(p[:], uint64(lba)*512)
	return p[0]
}

// pass lets time go by.
func (r *rig) pass(d time.Duration) {
	r.now = r.now.Add(d)
	r.Tick(r.now)
}
