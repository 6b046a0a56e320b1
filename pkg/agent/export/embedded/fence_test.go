package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/agent/export"
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
	e       export.Export
	evicted export.Access
	stays   []export.Access
	g       *gated
	length  int // bytes of a write

	returned atomic.Bool   // Ensure has
	late     atomic.Int64  // writes of the evicted node that landed after that
	stop     chan struct{} // the node that stays may stop writing
	writers  sync.WaitGroup
}

// newStory has a volume whose writes can be held, and one node or two on it.
func newStory(t testing.TB, r *rig, of func(export.Export) *gated, round int, shared bool) *story {
	t.Helper()
	s := &story{rig: r, e: r.volume(round, fenceSize), evicted: r.access(1, 1), length: []int{4096, 128 << 10, 64 << 10}[round%3],
		stop: make(chan struct{})}
	if shared {
		s.stays = []export.Access{r.access(2, 1)}
	}
	r.ensure(s.e, append(s.stays, s.evicted)...)
	s.g = of(s.e)
	s.g.landed = func(_ []byte, off uint64) {
		if off < half && s.returned.Load() {
			s.late.Add(1)
		}
	}
	return s
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
		p, err := node.Dial(ctx, s.connection(s.e, s.evicted), i%2, s.evicted.Auth)
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
	p := s.dial(s.e, s.evicted, 0)
	refusals := s.write(p, 0, inFlight, nil)
	var kept <-chan error
	if len(s.stays) > 0 {
		kept = s.write(s.dial(s.e, s.stays[0], 1), half+quarter, 4, s.stop)
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
		e := s.e
		e.Access = s.stays
		_, err := s.x.Ensure(ctx, e)
		s.returned.Store(true)
		ensured <- err
	}()
	<-p.Done()
	v := s.x.find(s.e.Identity)
	for slices.Contains(v.srv.Granted(), s.evicted.Initiator) {
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
	b, err := os.ReadFile(s.e.Backing.Path)
	if err != nil {
		s.t.Fatal(err)
	}
	return b[:half]
}

// after checks that the other node was not disturbed, and that the evicted one
// is who it was no more, under a new epoch neither.
func (s *story) after(kept, refusals <-chan error) {
	s.refused(s.e, s.evicted)
	next := s.access(1, 2)
	s.ensure(s.e, append(s.stays, next)...)
	s.refused(s.e, s.evicted)
	roundTrip(s.t, s.dial(s.e, next, 0), half, 7)
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
					s := newStory(t, r, of, round, shared)
					s.evict(round%4 == 3, func() {
						s.refused(s.e, s.evicted)
						if s.returned.Load() {
							t.Errorf("round %d: Ensure has returned while writes are held", round)
						}
					})
					if n := s.late.Load(); n != 0 {
						t.Errorf("round %d: %d writes landed after Ensure had returned", round, n)
					}
					if err := r.x.Remove(within(t), s.e.Volume, s.e.Identity); err != nil || t.Failed() {
						t.Fatal(err)
					}
				}
			})
		})
	}
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
		s := newStory(t, r, r.gate(), 0, false)
		v := r.x.find(s.e.Identity)
		v.srv = careless{v.srv}
		s.evict(false, func() {
			for !s.returned.Load() { // it will not wait for what is held
				s.refused(s.e, s.evicted)
			}
		})
		if s.late.Load() == 0 {
			t.Error("no write landed: the story does not tell what the fence is for")
		}
	})
}
