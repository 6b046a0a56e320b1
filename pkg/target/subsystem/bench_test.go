package subsystem

import (
	"bytes"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	"github.com/csi-mpath/csi-mpath/pkg/target"
	"github.com/csi-mpath/csi-mpath/pkg/target/serve"
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

// BenchmarkMachine is the target's own cost per command, 32 in a batch.
func BenchmarkMachine(b *testing.B) {
	for _, k := range []struct {
		name   string
		blocks uint32
		write  bool
	}{{"4k read", 8, false}, {"4k write", 8, true}, {"64k read", 128, false}} {
		b.Run(k.name, func(b *testing.B) { benchMachine(b, k.blocks, k.write) })
	}
}

func benchMachine(b *testing.B, blocks uint32, write bool) {
	c := newRig(&testing.T{}, nil).host(1, 1).io
	n := blocks * 512
	cmd, data := withSGL(nvme.Read(1, 0, blocks, 0), n), []byte(nil)
	if write {
		cmd, data = nvme.Write(1, 0, blocks, 0), pattern(1, int(n))
		cmd.SGL = nvme.InCapsule(n)
	}
	batch := bytes.Repeat(c.capsule(cmd, data), 32)
	var out serve.Batch
	b.SetBytes(int64(n))
	b.ReportAllocs()
	for done := 0; done < b.N; done += 32 {
		c.c.Input(epoch, batch)
		for c.c.Take(&out) {
			out.Vectors()
			out.Reset()
		}
		c.r.Dirty()
	}
}
