package wire

import (
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
)

// plain is a protocol of one-byte PDUs.
type plain struct {
	f      *Flow
	urgent func()
}

func (p *plain) Urgent() {
	if p.urgent != nil {
		p.urgent()
	}
}
func (p *plain) Command(*Task, *blk.Command) bool {
	p.f.Out.Next(1)[0] = 1
	p.f.Out.Put(1)
	return true
}
func (p *plain) Data(*Job, int)                  {}
func (p *plain) Waiting() bool                   { return false }
func (p *plain) Header([]byte) (bool, error)     { return false, nil }
func (p *plain) Trailer(int) int                 { return 0 }
func (p *plain) Check([]byte, int, uint32) error { return nil }
func (p *plain) Landed() error                   { return nil }

type nobody struct{}

func (nobody) Complete(*blk.Command)    {}
func (nobody) BatchEnd(uint64)          {}
func (nobody) Evidence(blk.Evidence)    {}
func (nobody) Lost(*blk.Command, error) {}

func newPlain() (*plain, *Unit) {
	p, u := &plain{}, &Unit{}
	tasks := NewTasks(IDs{Bits: 16, None: 0xffff}, 8, 1, 2, 1)
	p.f = NewFlow(Setup{Tasks: tasks, Codec: p, Overhead: 1,
		Clock: NewClock(func() int64 { return int64(time.Hour) }, tasks.Outstanding)})
	u.Init(p.f, 1, 8, &Gate{}, nobody{})
	return p, u
}

func TestWhatABatchTakesInLateRousesTheTicker(t *testing.T) {
	p, u := newPlain()
	p.urgent = func() { // the batch has begun
		p.f.Clock.Rest(time.Hour)
		u.Push(u.Take(0), &blk.Command{Op: blk.Read})
	}
	p.f.Gather()
	if p.f.Clock.Asleep() || len(p.f.Clock.Wake) != 1 {
		t.Fatal("the ticker sleeps on")
	}
}

func TestAStandingTaskIsNothingOutstanding(t *testing.T) {
	p, _ := newPlain()
	c := &Control{}
	p.f.NewStanding(c, 0)
	p.f.PushControl(c)
	p.f.Gather()
	if !c.Task.Live() || p.f.Tasks.Outstanding() || p.f.Tasks.TooOld(1<<31, 1, 1) {
		t.Fatal("it counts")
	}
}

func TestAnIDIsNeverUsedForTwoTasksAtOnceNorOneOfTheForbidden(t *testing.T) {
	tasks := NewTasks(IDs{Bits: 16, None: 0xffff}, 300, 2, 3, 2)
	for range 10000 {
		seen := map[uint32]bool{}
		for i := range tasks.Len() {
			k := tasks.renew(tasks.At(i))
			if id := k.ID(); id == 0 || id == 0xffff || id > 0xffff || seen[id] || tasks.Of(&blk.Command{Tag: id}) != k {
				t.Fatalf("task %d is called %#x", i, id)
			}
			seen[k.ID()] = true
		}
	}
}

func TestAGateOpensOnlyForTheDoubtsThatWereAnswered(t *testing.T) {
	var g Gate
	if g.Shut() || g.Ticket() != 0 {
		t.Fatal("a new gate is shut")
	}
	g.Doubt()
	old := g.Ticket()
	g.Doubt()
	if g.Open(old); !g.Shut() {
		t.Fatal("opened by an answer to an earlier doubt")
	}
	now := g.Ticket()
	g.Open(now)
	if g.Open(old); g.Shut() || g.Ticket() != 0 {
		t.Fatal("not open")
	}
}
