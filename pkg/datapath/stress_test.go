package datapath

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
)

// busyPath answers from readers of its own, as sessions do, in batches, a few
// of them with a unit attention, and is lost now and then. It has room for a few
// commands only.
type busyPath struct {
	name string
	mem  []byte
	room int
}

type busyQueue struct {
	p    *busyPath
	sink blk.Sink

	mu      sync.Mutex
	queued  []*blk.Command // submitted, not kicked
	wire    []*blk.Command // kicked
	out     int            // taken by a reader, and not answered
	readers int            // readers that are in a batch
	wake    chan struct{}
	gone    bool
	left    *sync.Cond // a reader left its batch
}

func (p *busyPath) Name() string                    { return p.name }
func (p *busyPath) FenceBound() time.Duration       { return 50 * time.Millisecond }
func (p *busyPath) ProveDead(context.Context) error { return ErrNoProof }

func (p *busyPath) Connect(_ context.Context, s blk.Sink) (Queue, error) {
	q := &busyQueue{p: p, sink: s, wake: make(chan struct{}, 4)}
	q.left = sync.NewCond(&q.mu)
	for i := range 2 {
		go q.read(rand.New(rand.NewPCG(uint64(len(p.name)), uint64(i))))
	}
	return q, nil
}

func (q *busyQueue) Facts() Facts {
	return Facts{Identity: Identity{Device: "d", BlockSize: 512}, Vectors: true, Proof: true,
		Limits: blk.Limits{BlockSize: 512, Size: uint64(len(q.p.mem)), MaxTransfer: 64 << 10, WriteCache: true, FUA: true}}
}
func (q *busyQueue) Refresh(context.Context) (Facts, error) { return q.Facts(), nil }
func (q *busyQueue) Stats() QueueStats                      { return QueueStats{} }
func (q *busyQueue) Probe(context.Context) error            { return nil }
func (q *busyQueue) Resume()                                {}
func (q *busyQueue) Close(context.Context) error            { q.lose(); return nil }
func (q *busyQueue) Abort(error)                            { go q.lose() }

func (q *busyQueue) Submit(c *blk.Command, _ int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.gone || len(q.queued)+len(q.wire)+q.out >= q.p.room {
		return false
	}
	q.queued = append(q.queued, c)
	return true
}

func (q *busyQueue) Kick(int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.gone {
		return
	}
	q.wire, q.queued = append(q.wire, q.queued...), nil
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *busyQueue) read(rng *rand.Rand) {
	for range q.wake {
		for {
			q.mu.Lock()
			if q.gone {
				q.mu.Unlock()
				return
			}
			n := min(len(q.wire), 1+rng.IntN(3))
			batch := append([]*blk.Command(nil), q.wire[:n]...)
			q.wire = q.wire[n:]
			if n > 0 {
				q.out += n
				q.readers++
			}
			q.mu.Unlock()
			if n == 0 {
				break
			}
			lanes := uint64(0)
			for _, c := range batch {
				lanes |= c.LaneBit()
				q.execute(c, rng)
				q.mu.Lock()
				q.out--
				q.mu.Unlock()
				q.sink.Complete(c)
			}
			q.sink.BatchEnd(lanes)
			q.mu.Lock()
			q.readers--
			q.mu.Unlock()
			q.left.Broadcast()
		}
	}
}

func (q *busyQueue) execute(c *blk.Command, rng *rand.Rand) {
	c.Verdict = blk.Verdict{}
	if rng.IntN(1500) == 0 {
		go q.lose()
	}
	if rng.IntN(50) == 0 {
		c.Verdict = blk.Verdict{Class: blk.Retry, Status: blk.IOError}
		return
	}
	for at := uint32(0); at < c.Len && c.Op <= blk.Write; {
		b := c.Piece(at)
		if mem := q.p.mem[c.Off+uint64(at):]; c.Op == blk.Write {
			copy(mem, b)
		} else {
			copy(b, mem)
		}
		at += uint32(len(b))
	}
}

// lose hands everything back that no reader has.
func (q *busyQueue) lose() {
	q.mu.Lock()
	if q.gone {
		q.mu.Unlock()
		return
	}
	q.gone = true
	for q.readers > 0 {
		q.left.Wait()
	}
	close(q.wake)
	var first, last *blk.Command
	for i, c := range append(q.wire, q.queued...) {
		c.Sent, c.Next = i < len(q.wire), nil
		if last == nil {
			first = c
		} else {
			last.Next = c
		}
		last = c
	}
	q.wire, q.queued = nil, nil
	q.mu.Unlock()
	q.sink.Lost(first, errCut)
}

// quickClient uses a slot again as soon as it is answered.
type quickClient struct {
	t    *testing.T
	free chan *blk.Request
}

func (c *quickClient) Flush() {}
func (c *quickClient) Complete(r *blk.Request) {
	if r.Status != blk.OK {
		c.t.Errorf("%v at %d: %v", r.Op, r.Off, r.Status)
	}
	c.free <- r
}

func TestSlotsAreReusedTheMomentTheyAreAnswered(t *testing.T) {
	const block, lanes, per = 4096, 3, 1 << 20
	mem := make([]byte, lanes*per)
	paths := []*busyPath{{name: "a", mem: mem, room: 3}, {name: "bb", mem: mem, room: 5}}
	d, err := Open(t.Context(), Config{Name: "v", MinPaths: 2, NoPathTimeout: Never, MergeDeadline: 50 * time.Microsecond},
		[]Transport{paths[0], paths[1]})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for k := range lanes {
		l, err := d.OpenLane(32)
		if err != nil {
			t.Fatal(err)
		}
		all.Go(func() { drive(t, l, uint64(k)*per, per, block) })
	}
	all.Wait()
	if err := d.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// drive writes a lane's range in order, over and over, and reads each round back.
func drive(t *testing.T, l *Lane, base, size uint64, block int) {
	defer l.Close()
	c := &quickClient{t: t, free: make(chan *blk.Request, 32)}
	for i := range uint32(32) {
		c.free <- &blk.Request{Slot: i, Owner: c, Buf: make([]byte, block), Len: uint32(block)}
	}
	rng := rand.New(rand.NewPCG(base, 3))
	for round := range uint64(6) {
		for _, op := range []blk.Op{blk.Write, blk.Read} {
			for at := base; at < base+size; {
				var first, last *blk.Request
				for range 1 + rng.IntN(6) {
					if at >= base+size {
						break
					}
					r := <-c.free
					c.check(r)
					r.Op, r.Off, r.Next, r.Cookie = op, at, nil, round
					if op == blk.Write {
						binary.LittleEndian.PutUint64(r.Buf, at+round)
					}
					at += uint64(block)
					if last == nil {
						first = r
					} else {
						last.Next = r
					}
					last = r
				}
				l.Submit(first)
			}
			back := make([]*blk.Request, 0, 32)
			for range 32 {
				r := <-c.free
				c.check(r)
				r.Op = 0
				back = append(back, r)
			}
			for _, r := range back {
				c.free <- r
			}
		}
	}
}

func (c *quickClient) check(r *blk.Request) {
	if got := binary.LittleEndian.Uint64(r.Buf); r.Op == blk.Read && got != r.Off+r.Cookie {
		c.t.Errorf("offset %d holds %d, want round %d", r.Off, got-r.Off, r.Cookie)
	}
}
