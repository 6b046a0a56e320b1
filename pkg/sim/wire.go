package sim

import (
	"errors"
	"io"
	"syscall"
	"time"
)

// flow is one direction of a link: bytes on their way, in order.
type flow struct {
	segs  []seg
	bytes int // sent and not consumed
	sent  int // ever
	cap   int // of the two socket buffers together
	last  time.Time
	dice  dice
}

// seg is some bytes, or an end.
type seg struct {
	at   time.Time
	data []byte
	end  error // io.EOF or ECONNRESET, after which nothing comes
}

// add puts data on the way, in pieces of random sizes and delays.
func (l *link) add(f *flow, data []byte) {
	f.bytes += len(data)
	for pieces := 1 + f.dice.IntN(3); len(data) > 0; pieces-- {
		n := len(data)
		if pieces > 1 {
			n = 1 + f.dice.IntN(n)
		}
		l.spoil(f, data[:n])
		f.sent += n
		l.queue(f, seg{at: l.arrival(f, n), data: data[:n:n]})
		data = data[n:]
	}
}

// spoil changes a byte, if that is the script's wish. What connections begin with
// has no digest. Mostly long pieces are hit: a wrong header ends the connection,
// and wrong data is to be met too.
func (l *link) spoil(f *flow, data []byte) {
	if l.path.spoil > 0 && f.sent >= unprotected && (len(data) >= longPiece || f.dice.chance(8)) {
		l.path.spoil--
		l.spoiled = true
		data[f.dice.IntN(len(data))] ^= byte(1 + f.dice.IntN(255))
	}
}

// queue adds one segment, and makes the link move when it is due.
func (l *link) queue(f *flow, s seg) {
	f.segs = append(f.segs, s)
	l.w.at(s.at, l.pump)
}

// arrival draws when the next n bytes of f are there.
func (l *link) arrival(f *flow, n int) time.Time {
	p := l.path
	at := time.Now().Add(p.delay + f.dice.upTo(p.jitter))
	if at.Before(f.last) {
		at = f.last
	}
	if r := p.rate; r > 0 {
		at = at.Add(time.Duration(n) * time.Second / time.Duration(r))
	}
	f.last = at
	return at
}

// send puts what the initiator sent on the way.
func (l *link) send(data []byte) {
	if l.conn == nil && !l.ghost() {
		return // a reset is on its way here
	}
	l.add(&l.tx, data)
}

// ghost: the target's end died without a word.
func (l *link) ghost() bool { return l.conn == nil && !l.fin && l.err == nil && len(l.rx.segs) == 0 }

// finish puts an end on the way to the initiator.
func (l *link) finish(end error) {
	l.queue(&l.rx, seg{at: l.arrival(&l.rx, 0), end: end})
}

// arrive moves what is due to the initiator's end.
func (l *link) arrive() {
	moved := false
	for len(l.rx.segs) > 0 && !l.path.hole[fromTarget] && !l.rx.segs[0].at.After(time.Now()) {
		s := l.rx.segs[0]
		l.rx.segs = l.rx.segs[1:]
		moved = true
		if s.end != nil {
			l.cutOff(s.end)
			break
		}
		if l.err == nil && !l.closed {
			l.in = append(l.in, s.data...)
		} else {
			l.rx.bytes -= len(s.data)
		}
	}
	if moved {
		l.cond.Broadcast()
	}
}

// cutOff is the end as the initiator sees it. A reset may or may not take with
// it what has arrived and was not read.
func (l *link) cutOff(end error) {
	if l.err != nil {
		return
	}
	l.err = end
	if !errors.Is(end, io.EOF) && l.dice.chance(2) {
		l.in = nil
	}
	l.rx.segs = nil
	l.tx.segs, l.tx.bytes = nil, 0
	l.cond.Broadcast()
}

// reset cuts the connection at both ends at once; bytes under way are lost, or
// some of them still arrive.
func (l *link) reset() {
	if l.dice.chance(3) {
		l.lastWords(l.dice.IntN(len(l.tx.segs) + 1))
	}
	l.tx.segs, l.rx.segs = nil, nil
	l.gone()
	l.cutOff(syscall.ECONNRESET)
}

// lastWords lets the first n segments under way reach the target now.
func (l *link) lastWords(n int) {
	for _, s := range append([]seg(nil), l.tx.segs[:n]...) {
		if l.conn != nil && s.end == nil && !l.path.hole[toTarget] {
			l.array.feed(l, s.data)
		}
	}
}

// abandon is the initiator's reset: its kernel drops what it has queued; what is
// on the wire arrives within wireMax, and the reset behind it, unless the
// network swallows both.
func (l *link) abandon() {
	l.tx.bytes = 0
	l.rx.segs = nil
	if l.path.hole[toTarget] {
		l.tx.segs = nil
		return // the target learns nothing: see mend
	}
	keep := len(l.tx.segs)
	if l.dice.chance(2) {
		keep = l.dice.IntN(keep + 1)
	}
	l.tx.segs = l.tx.segs[:keep]
	limit := time.Now().Add(wireMax)
	for i := range l.tx.segs {
		if l.tx.segs[i].at.After(limit) {
			l.tx.segs[i].at = limit
		}
	}
	l.w.at(limit, l.pump)
	at := time.Now().Add(l.path.delay)
	if keep > 0 && l.tx.segs[keep-1].at.After(at) {
		at = l.tx.segs[keep-1].at
	}
	l.queue(&l.tx, seg{at: at, end: syscall.ECONNRESET})
}
