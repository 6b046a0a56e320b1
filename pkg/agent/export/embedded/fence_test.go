package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/agent/export"
	"github.com/csi-mpath/csi-mpath/pkg/agent/keeper"
	"github.com/csi-mpath/csi-mpath/pkg/agent/store/directory"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/test/node"
)

// Of a fencing story: the evicted node writes to the first half of the volume,
// the one that stays to the last quarter.
const (
	fenceSize = 2 * mib
	half      = fenceSize / 2
	quarter   = fenceSize / 4
	inFlight  = 40 // of the evicted node: more than the jobs a unit may run
)

// story is one round of a node's eviction.
type story struct {
	*rig
	identity string
	evicted  backend.Connection
	stays    []backend.Connection // one, or nobody
	revoke   func(ctx context.Context) error
	again    func() backend.Connection // the evicted node's next publication
	end      func() error              // of the volume
	g        *gated
	length   int // bytes of a write

	returned atomic.Bool   // Ensure has
	late     atomic.Int64  // writes of the evicted node that landed after that
	stop     chan struct{} // the node that stays may stop writing
	writers  sync.WaitGroup
}

// newStory has a volume whose writes can be held, and one node or two on it.
func newStory(r *rig, of func(identity string) *gated, round int, shared bool) *story {
	e, evicted := r.volume(round, fenceSize), r.access(1, 1)
	s := &story{rig: r, identity: e.Identity, evicted: r.connection(e, evicted)}
	var stays []export.Access
	if shared {
		stays = []export.Access{r.access(2, 1)}
		s.stays = []backend.Connection{r.connection(e, stays[0])}
	}
	r.ensure(e, append(stays, evicted)...)
	s.end = func() error { return r.x.Remove(within(r.t), e.Volume, e.Identity) }
	s.revoke = func(ctx context.Context) error {
		e.Access = stays
		_, err := r.x.Ensure(ctx, e)
		return err
	}
	s.again = func() backend.Connection {
		next := r.access(1, 2)
		r.ensure(e, append(stays, next)...)
		return r.connection(e, next)
	}
	s.begin(of, round)
	return s
}

// begin notes what lands late.
func (s *story) begin(of func(identity string) *gated, round int) {
	s.length, s.stop = []int{4096, 128 << 10, 64 << 10}[round%3], make(chan struct{})
	s.g = of(s.identity)
	s.g.landed = func(_ []byte, off uint64) {
		if off < half && s.returned.Load() {
			s.late.Add(1)
		}
	}
}

// write keeps n writes in flight until the session is lost or stop is closed,
// and gives the first error that is none of these.
func (s *story) write(p *node.Path, from int64, n int, stop <-chan struct{}) <-chan error {
	out := make(chan error, n)
	for i := range n {
		s.writers.Go(func() {
			b := bytes.Repeat([]byte{byte(i)}, s.length)
			for k := 0; ; k++ {
				select {
				case <-stop:
					return
				default:
				}
				off := from + int64((i+k*n)*s.length)%quarter
				if err := p.Do(&blk.Command{Op: blk.Write, Off: uint64(off), Len: uint32(len(b)), Buf: b}); err != nil {
					if !errors.Is(err, node.ErrLost) {
						out <- err
					}
					return
				}
			}
		})
	}
	return out
}

// knock logs in as the evicted node, again and again, and writes each time, until
// Ensure has returned. It returns the sessions it had.
func (s *story) knock(ctx context.Context) (had []*node.Path) {
	b := make([]byte, 4096)
	for i := 0; !s.returned.Load(); i++ {
		p, err := node.Dial(ctx, s.evicted, i%2, backend.Auth{})
		if err != nil {
			continue
		}
		had = append(had, p)
		s.writers.Go(func() { _ = p.Write(b, 0) })
		if len(had) == 8 {
			break
		}
	}
	return had
}

// evict plays the story: writes are held in the store when Ensure takes the
// node's access away. before is called when the session is gone, while they are.
func (s *story) evict(lose bool, before func()) {
	t, ctx := s.t, within(s.t)
	p := s.login(s.evicted, 0)
	refusals := s.write(p, 0, inFlight, nil)
	var kept <-chan error
	if len(s.stays) > 0 {
		kept = s.write(s.login(s.stays[0], 1), half+quarter, 4, s.stop)
	}
	open := s.g.shutGate()
	defer open()
	for range 8 {
		<-s.g.waiting
	}
	if lose {
		p.Close() // its jobs run on without it
	}
	ensured, knocked := make(chan error, 1), make(chan []*node.Path, 1)
	go func() { knocked <- s.knock(ctx) }()
	go func() {
		err := s.revoke(ctx)
		s.returned.Store(true)
		ensured <- err
	}()
	<-p.Done()
	for s.x.mayLogin(s.identity, s.evicted.Initiator) {
		runtime.Gosched() // one who left by itself is not put out yet
	}
	before()
	open()
	if err := <-ensured; err != nil {
		t.Fatal(err)
	}
	then := s.written()
	for _, q := range <-knocked {
		<-q.Done()
	}
	s.after(kept, refusals)
	if s.late.Load() == 0 && !bytes.Equal(then, s.written()) {
		t.Error("the bytes changed after the eviction")
	}
}

// written is what the evicted node's half holds.
func (s *story) written() []byte {
	b, err := os.ReadFile(s.g.path)
	if err != nil {
		s.t.Fatal(err)
	}
	return b[:half]
}

// after checks that the other node was not disturbed, and that the evicted one
// is who it was no more, under a new epoch neither.
func (s *story) after(kept, refusals <-chan error) {
	s.shutOut(s.evicted)
	next := s.again()
	s.shutOut(s.evicted)
	roundTrip(s.t, s.login(next, 0), half, 7)
	close(s.stop)
	s.writers.Wait()
	for _, errs := range []<-chan error{kept, refusals} {
		select {
		case err := <-errs:
			s.t.Errorf("a write was refused: %v", err)
		default:
		}
	}
}

// TestNoWriteOfAnEvictedNodeLands is what the fence is for (I9): many rounds
// each with one node and with another that stays, with and without a connection
// when access is taken away.
func TestNoWriteOfAnEvictedNodeLands(t *testing.T) {
	for _, shared := range []bool{false, true} {
		t.Run(fmt.Sprintf("shared=%v", shared), func(t *testing.T) {
			transports(t, func(t *testing.T, tr backend.Transport) {
				r := newRig(t, tr)
				of := r.gate()
				for round := range rounds {
					newStory(r, of, round, shared).play(round)
				}
			})
		})
	}
}

// play is a round of a story in which nothing may land late.
func (s *story) play(round int) {
	s.evict(round%4 == 3, func() {
		s.shutOut(s.evicted)
		if s.returned.Load() {
			s.t.Errorf("round %d: it has returned while writes are held", round)
		}
	})
	if n := s.late.Load(); n != 0 {
		s.t.Errorf("round %d: %d writes landed after it had returned", round, n)
	}
	if err := s.end(); err != nil || s.t.Failed() {
		s.t.Fatal(err)
	}
}

// TestNoWriteLandsAfterUnpublish is the same through all that an agent has.
func TestNoWriteLandsAfterUnpublish(t *testing.T) {
	for _, shared := range []bool{false, true} {
		t.Run(fmt.Sprintf("shared=%v", shared), func(t *testing.T) {
			transports(t, func(t *testing.T, tr backend.Transport) {
				r := newRig(t, tr)
				of := r.gate()
				b := r.agent()
				for round := range rounds {
					publishedStory(r, b, of, round, shared).play(round)
				}
			})
		})
	}
}

// agent keeps volumes in a directory and serves them through the rig's exporter.
func (r *rig) agent() backend.Backend {
	r.t.Helper()
	st, err := directory.Open(directory.Config{Path: r.t.TempDir()})
	if err != nil {
		r.t.Fatal(err)
	}
	k, err := keeper.Open(within(r.t), keeper.Config{State: r.t.TempDir(),
		Pools: []keeper.Pool{{Name: "pool", Store: st, Exports: []export.Exporter{r.x}}}})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := errors.Join(k.Close(), st.Close()); err != nil {
			r.t.Error(err)
		}
	})
	return k.For("tenant")
}

// publishedStory has a volume of the agent's, published to one node or two.
func publishedStory(r *rig, b backend.Backend, of func(identity string) *gated, round int, shared bool) *story {
	v, err := b.CreateVolume(within(r.t), backend.CreateVolume{Name: fmt.Sprint("v", round), Pool: "pool", Size: backend.Size{Required: fenceSize}})
	if err != nil {
		r.t.Fatal(err)
	}
	publish := func(n int) backend.Connection {
		c, err := b.Publish(within(r.t), backend.Publish{Volume: v.ID, Node: fmt.Sprint("node", n),
			Initiator: strings.TrimSuffix(r.access(n, 0).Initiator, ":0"), Transport: r.x.Transport(), Shared: shared})
		if err != nil {
			r.t.Fatal(err)
		}
		return c
	}
	s := &story{rig: r, identity: v.Identity, evicted: publish(1), again: func() backend.Connection { return publish(1) },
		revoke: func(ctx context.Context) error { return b.Unpublish(ctx, v.ID, "node1") }}
	if shared {
		s.stays = []backend.Connection{publish(2)}
	}
	s.end = func() error {
		return errors.Join(b.Unpublish(within(r.t), v.ID, ""), b.DeleteVolume(within(r.t), v.ID))
	}
	s.begin(of, round)
	return s
}

// careless takes access away and waits for nothing, as an ACL alone does.
type careless struct{ server }

func (c careless) grant(a []export.Access) (bool, <-chan struct{}, error) {
	changed, _, err := c.server.grant(a)
	over := make(chan struct{})
	close(over)
	return changed, over, err
}

func TestTakingAccessAwayAloneIsNoFence(t *testing.T) {
	transports(t, func(t *testing.T, tr backend.Transport) {
		r := newRig(t, tr)
		s := newStory(r, r.gate(), 0, false)
		v := r.x.find(s.identity)
		v.srv = careless{v.srv}
		s.evict(false, func() {
			for !s.returned.Load() { // it will not wait for what is held
				s.shutOut(s.evicted)
			}
		})
		if s.late.Load() == 0 {
			t.Error("no write landed: the story does not tell what the fence is for")
		}
	})
}
