package bench

import (
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
)

// pump answers a path's commands at a fixed rate: a token bucket, its goroutine
// the path's reader.
type pump struct {
	rate       float64 // commands per second
	stop, done chan struct{}
}

const (
	pumpTick = time.Millisecond
	// pumpBurst is how much of its rate a path makes up for after the machine
	// was busy elsewhere.
	pumpBurst = 20 * time.Millisecond
)

func newPump(rate float64) *pump {
	return &pump{rate: rate, stop: make(chan struct{}), done: make(chan struct{})}
}

func (m *pump) start(p *nullPath) { go m.run(p) }

// take: it looks by itself.
func (m *pump) take(*nullPath) {}

func (m *pump) run(p *nullPath) {
	defer close(m.done)
	t := time.NewTicker(pumpTick)
	defer t.Stop()
	var l backlog
	tokens, at := 0.0, time.Now()
	for {
		select {
		case <-m.stop:
			return
		case now := <-t.C:
			tokens = min(tokens+m.rate*now.Sub(at).Seconds(), m.rate*pumpBurst.Seconds())
			at = now
		}
		for tokens >= 1 {
			for i := range p.queues {
				l.add(p.queues[i].Drain())
			}
			if l.first == nil {
				break
			}
			lanes := uint64(0)
			for ; l.first != nil && tokens >= 1; tokens-- {
				c := l.take()
				p.queues[c.Lane].answered.Add(1)
				lanes |= p.answer(c)
			}
			p.sink.BatchEnd(lanes)
		}
	}
}

// backlog is what waits for tokens, oldest first.
type backlog struct{ first, last *blk.Command }

func (l *backlog) add(c *blk.Command) {
	if c == nil {
		return
	}
	if l.last == nil {
		l.first = c
	} else {
		l.last.Next = c
	}
	for l.last = c; l.last.Next != nil; l.last = l.last.Next {
	}
}

func (l *backlog) take() *blk.Command {
	c := l.first
	if l.first = c.Next; l.first == nil {
		l.last = nil
	}
	return c
}

func (m *pump) halt() {
	close(m.stop)
	<-m.done
}
