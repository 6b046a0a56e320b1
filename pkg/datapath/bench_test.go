package datapath

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
)

// nullPath answers every command at Kick, on the submitter's goroutine: what
// remains is the datapath's own cost.
type nullPath struct {
	sink  blk.Sink
	first *blk.Command
	last  *blk.Command
	facts Facts
}

func (p *nullPath) Name() string                    { return "null" }
func (p *nullPath) FenceBound() time.Duration       { return time.Second }
func (p *nullPath) ProveDead(context.Context) error { return ErrNoProof }
func (p *nullPath) Connect(_ context.Context, s blk.Sink) (Queue, error) {
	p.sink = s
	return p, nil
}
func (p *nullPath) Facts() Facts                           { return p.facts }
func (p *nullPath) Refresh(context.Context) (Facts, error) { return p.facts, nil }
func (p *nullPath) Stats() QueueStats                      { return QueueStats{} }
func (p *nullPath) Probe(context.Context) error            { return nil }
func (p *nullPath) Resume()                                {}
func (p *nullPath) Close(context.Context) error            { p.sink.Lost(nil, errCut); return nil }
func (p *nullPath) Abort(err error)                        { p.sink.Lost(nil, err) }

func (p *nullPath) Submit(c *blk.Command, _ int) bool {
	if p.last == nil {
		p.first = c
	} else {
		p.last.Next = c
	}
	p.last = c
	return true
}

func (p *nullPath) Kick(int) {
	c, lanes := p.first, uint64(0)
	p.first, p.last = nil, nil
	for c != nil {
		next := c.Next
		c.Next = nil
		lanes |= c.LaneBit()
		p.sink.Complete(c)
		c = next
	}
	p.sink.BatchEnd(lanes)
}

// nullClient counts answers.
type nullClient struct{ answers atomic.Int64 }

func (c *nullClient) Complete(*blk.Request) { c.answers.Add(1) }
func (c *nullClient) Flush()                {}

func nullRig(t testing.TB, paths int) (*Device, *Lane, []blk.Request, *nullClient) {
	t.Helper()
	trs := make([]Transport, 0, paths)
	for range paths {
		trs = append(trs, &nullPath{facts: Facts{Identity: Identity{Device: "d", BlockSize: 512},
			Limits: blk.Limits{BlockSize: 512, Size: 1 << 30, MaxTransfer: 1 << 20, WriteCache: true, FUA: true}}})
	}
	d, err := Open(context.Background(), Config{Name: "null", MinPaths: paths, NoPathTimeout: Never}, trs)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close(context.Background()) })
	l, err := d.OpenLane(64)
	if err != nil {
		t.Fatal(err)
	}
	cl := &nullClient{}
	reqs := make([]blk.Request, 32)
	for i := range reqs {
		reqs[i] = blk.Request{Slot: uint32(i), Len: 4096, Off: uint64(i) * 4096, Buf: make([]byte, 4096), Owner: cl}
	}
	return d, l, reqs, cl
}

// batch submits all and waits: another goroutine may be the lane's runner.
func batch(l *Lane, cl *nullClient, reqs []blk.Request, op blk.Op) {
	want := cl.answers.Load() + int64(len(reqs))
	for i := range reqs {
		reqs[i].Op = op
		reqs[i].Next = nil
		if i > 0 {
			reqs[i-1].Next = &reqs[i]
		}
	}
	l.Submit(&reqs[0])
	for cl.answers.Load() != want {
		runtime.Gosched()
	}
}

func TestARequestAllocatesNothing(t *testing.T) {
	for _, op := range []blk.Op{blk.Read, blk.Write} {
		_, l, reqs, cl := nullRig(t, 2)
		n := testing.AllocsPerRun(1000, func() { batch(l, cl, reqs, op) })
		if n != 0 {
			t.Fatalf("%v: %v allocations per batch", op, n)
		}
	}
}

func BenchmarkNullPath(b *testing.B) {
	for _, op := range []blk.Op{blk.Read, blk.Write} {
		b.Run(op.String(), func(b *testing.B) {
			_, l, reqs, cl := nullRig(b, 2)
			b.ReportAllocs()
			for i := 0; i < b.N; i += len(reqs) {
				batch(l, cl, reqs, op)
			}
		})
	}
}
