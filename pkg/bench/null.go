package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/datapath"
	"github.com/csi-mpath/csi-mpath/pkg/mpsc"
	"github.com/csi-mpath/csi-mpath/pkg/pathsel"
	"github.com/csi-mpath/csi-mpath/pkg/tagset"
)

// requestSize is the length of every request, bytes.
const requestSize = 4096

// volumeSize is what the paths in memory say they have, bytes.
const volumeSize = 1 << 40

// reader answers a path's commands on a goroutine of its own.
type reader interface {
	start(p *nullPath)
	// take is told of a kick.
	take(p *nullPath)
	halt()
}

// nullPath is a transport and its queues in memory: a session's tags and table,
// a queue per lane, and nothing behind them. Kick answers what it would send, on
// the submitter's goroutine, or a reader does.
//
// A queue is filled by its lane and emptied by whoever answers: the lane as it
// kicks, or a reader. A command's
// entry in the table belongs to the holder of its tag: it is no atomic, so that
// the race detector sees a tag that two hold.
type nullPath struct {
	name   string
	sink   blk.Sink
	tags   *tagset.Set
	table  []nullEntry // by tag: who holds it
	queues []nullQueue // by lane
	reader reader      // nil: answered at once, by who kicks
	// vectors: it takes payloads in pieces, so contiguous requests may be joined.
	vectors bool
	gone    atomic.Bool
	bad     atomic.Int64
	once    sync.Once
}

type nullEntry struct {
	cmd *blk.Command
	_   [56]byte
}

type nullQueue struct {
	mpsc.Queue[blk.Command, *blk.Command]
	_        [56]byte
	answered atomic.Int64
	_        [56]byte
}

func newNullPath(i, depth, lanes int) *nullPath {
	p := &nullPath{name: fmt.Sprintf("null%d", i), tags: tagset.New(depth, lanes), queues: make([]nullQueue, lanes)}
	p.table = make([]nullEntry, p.tags.Bound())
	return p
}

// Name and what follows implement datapath.Transport.
func (p *nullPath) Name() string                    { return p.name }
func (p *nullPath) FenceBound() time.Duration       { return time.Second }
func (p *nullPath) ProveDead(context.Context) error { return datapath.ErrNoProof }
func (p *nullPath) Connect(_ context.Context, s blk.Sink) (datapath.Queue, error) {
	if p.gone.Load() {
		return nil, errClosed
	}
	p.sink = s
	if p.reader != nil {
		p.reader.start(p)
	}
	return p, nil
}

var errClosed = errors.New("the path was closed")

// Facts and what follows implement datapath.Queue.
func (p *nullPath) Facts() datapath.Facts {
	return datapath.Facts{
		Identity: datapath.Identity{Target: "bench", Device: "naa.0", Serial: "0", BlockSize: 512}, Proof: true, Vectors: p.vectors,
		Limits: blk.Limits{BlockSize: 512, Size: volumeSize, MaxTransfer: 1 << 20, WriteCache: true, FUA: true},
	}
}
func (p *nullPath) Refresh(context.Context) (datapath.Facts, error) { return p.Facts(), nil }
func (p *nullPath) Stats() datapath.QueueStats                      { return datapath.QueueStats{} }
func (p *nullPath) Resume()                                         {}
func (p *nullPath) Probe(context.Context) error                     { return nil }
func (p *nullPath) Close(context.Context) error                     { p.Abort(errClosed); return nil }

// Abort ends the path; the benchmarks close a device only when it is idle.
func (p *nullPath) Abort(cause error) {
	p.once.Do(func() {
		p.gone.Store(true)
		if p.reader != nil {
			p.reader.halt()
		}
		p.sink.Lost(nil, cause)
	})
}

func (p *nullPath) Submit(c *blk.Command, lane int) bool {
	tag := p.tags.Get(lane)
	if tag < 0 {
		return false
	}
	if p.table[tag].cmd != nil {
		p.bad.Add(1)
	}
	p.table[tag].cmd = c
	c.Tag = uint32(tag)
	p.queues[lane].Push(c)
	return true
}

func (p *nullPath) Kick(lane int) {
	if p.reader != nil {
		p.reader.take(p)
		return
	}
	p.answerAll(&p.queues[lane])
}

// answerAll answers what a lane has queued.
func (p *nullPath) answerAll(q *nullQueue) {
	n, lanes := int64(0), uint64(0)
	for c := q.Drain(); c != nil; n++ {
		next := c.Next
		lanes |= p.answer(c)
		c = next
	}
	if n > 0 {
		q.answered.Add(n)
		p.sink.BatchEnd(lanes)
	}
}

// answer completes a command and returns its lane's bit.
func (p *nullPath) answer(c *blk.Command) (lane uint64) {
	e := &p.table[c.Tag]
	if e.cmd != c {
		p.bad.Add(1)
	}
	e.cmd = nil
	p.tags.Put(int(c.Tag))
	c.Next = nil
	c.Verdict = blk.Verdict{}
	lane = c.LaneBit()
	p.sink.Complete(c)
	return lane
}

func (p *nullPath) answered() (n int64) {
	for i := range p.queues {
		n += p.queues[i].answered.Load()
	}
	return n
}

// verify is called when the path is idle and has been closed.
func (p *nullPath) verify() error {
	if bad, free := p.bad.Load(), p.tags.Free(); bad != 0 || free != p.tags.Depth() {
		return checkf("%s: %d tags were held twice, %d of %d are free at the end", p.name, bad, free, p.tags.Depth())
	}
	return nil
}

// openDevice brings up a device over paths in memory.
func openDevice(ctx context.Context, sel pathsel.Selector, paths []*nullPath) (*datapath.Device, error) {
	return openMerging(ctx, sel, paths, 0)
}

// openMerging is openDevice with a merge deadline.
func openMerging(ctx context.Context, sel pathsel.Selector, paths []*nullPath, deadline time.Duration) (*datapath.Device, error) {
	trs := make([]datapath.Transport, 0, len(paths))
	for _, p := range paths {
		trs = append(trs, p)
	}
	return datapath.Open(ctx, datapath.Config{Name: "bench", Selector: sel, MinPaths: len(paths), NoPathTimeout: datapath.Never, MergeDeadline: deadline}, trs)
}

// closeDevice ends it, and says what was wrong with its paths.
func closeDevice(d *datapath.Device, paths []*nullPath) error {
	ctx, cancel := context.WithTimeout(context.Background(), settleTime)
	defer cancel()
	errs := []error{d.Close(ctx)}
	for _, p := range paths {
		errs = append(errs, p.verify())
	}
	return errors.Join(errs...)
}
