package sim

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/target/serve"
)

// Directions of a path's holes.
const (
	toTarget = iota
	fromTarget
)

// path is one portal and the network before it. Under world.mu.
type path struct {
	index       int // from 1, as the target counts
	address     string
	tpgt, group uint16

	delay, jitter time.Duration
	rate          int           // bytes per second, 0 without bound
	hole          [2]bool       // bytes of that direction vanish
	stands        time.Duration // how long a sender stands in each call
	down          bool          // connections are refused
	spoil         int           // so many pieces of data get a wrong byte
	foreign       bool          // another volume has the number of ours
	links         []*link
	born          uint64        // links so far
	healed        chan struct{} // closed and replaced when something of it is back
}

func (p *path) isHole() bool { return p.hole[toTarget] || p.hole[fromTarget] }

// array is the target's side: one machine behind all portals, and its disk.
// Under world.mu.
type array struct {
	w       *world
	power   func(size uint64) (front, error) // makes a machine
	disk    *disk
	paths   []*path
	m       front        // nil while it is dead
	silent  bool         // dead without a word: no connection is refused
	powered map[int]bool // portals whose POWER ON OCCURRED has reached nobody yet
	armed   time.Time
	wide    bool // links have much room in their sockets
	port    int
	deadGen int // processes up to this one are dead
	batch   serve.Batch
	size    uint64
	told    atomic.Int64 // POWER ON OCCURRED told so far
	total   tally        // of machines that died
	broken  func(format string, args ...any)
	tell    func(format string, args ...any)
}

// start powers the machine on. lost: its cache did not survive.
func (a *array) start(lost bool) error {
	m, err := a.power(a.size)
	if err != nil {
		return err
	}
	for _, p := range a.paths {
		if _, err := m.AddPortal(serve.PortalConfig{Address: p.address, TPGT: p.tpgt, Group: p.group}); err != nil {
			return err
		}
		a.powered[p.index] = a.powered[p.index] || lost
		p.foreign = false
	}
	m.jobs(func(job func() error, done func(error)) {
		slow := a.w.dice.upTo(flushTime)
		if a.w.haste || a.w.dice.chance(3) {
			slow = 0
		}
		a.w.after(slow, func() {
			if a.m == m {
				done(job())
				a.settle()
			}
		})
	})
	a.m, a.silent = m, false
	for _, p := range a.paths {
		p.heal()
	}
	return nil
}

// die ends the machine: what it held is gone. silent: the connections are not
// reset until the next machine is asked about them.
func (a *array) die(silent bool) {
	if a.m == nil {
		return
	}
	a.addStats()
	a.m, a.silent = nil, silent
	for _, p := range a.paths {
		for _, l := range p.links {
			had := l.conn != nil
			l.conn, l.pend, l.fin = nil, nil, false
			l.rx.segs = nil
			if had && !silent {
				l.finish(syscall.ECONNRESET)
			}
		}
	}
}

func (a *array) addStats() {
	s, t := a.m.tally(), &a.total
	t.late += s.late
	t.reinstated += s.reinstated
	t.logins += s.logins
	t.aborted += s.aborted
}

// heal wakes who waits for the path.
func (p *path) heal() {
	close(p.healed)
	p.healed = make(chan struct{})
	for _, l := range p.links {
		l.w.after(0, l.pump)
	}
}

// mend ends the holes of a path. A target's end whose peer is gone learns of it,
// or does not.
func (a *array) mend(p *path) {
	p.hole = [2]bool{}
	for _, l := range p.links {
		if l.closed && l.conn != nil && l.dice.chance(2) {
			l.gone()
		}
	}
	p.heal()
}

// dial is device.Config.Dial of process gen.
func (a *array) dial(gen int) func(ctx context.Context, portal string) (net.Conn, error) {
	return func(ctx context.Context, portal string) (net.Conn, error) {
		for {
			c, wait, err := a.connect(gen, portal)
			if wait == nil {
				if err != nil {
					return nil, err
				}
				return c, nil
			}
			select {
			case <-wait:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}
}

// connect tries once; with wait it is to be called again then.
func (a *array) connect(gen int, portal string) (l *link, wait <-chan struct{}, err error) {
	a.w.mu.Lock()
	defer a.w.mu.Unlock()
	if gen <= a.deadGen {
		return nil, nil, errKilled
	}
	for _, p := range a.paths {
		if p.address != portal {
			continue
		}
		switch {
		case p.isHole() || a.m == nil && a.silent:
			return nil, p.healed, nil
		case p.down || a.m == nil:
			return nil, nil, fmt.Errorf("dial %s: %w", portal, syscall.ECONNREFUSED)
		}
		c := a.m.Connect(p.index, time.Now())
		if c == nil {
			return nil, nil, fmt.Errorf("dial %s: %w", portal, syscall.ECONNRESET)
		}
		return a.newLink(p, c, gen), nil, nil
	}
	return nil, nil, fmt.Errorf("dial %s: %w", portal, syscall.EHOSTUNREACH)
}

func (a *array) newLink(p *path, c *serve.Conn, gen int) *link {
	a.port++
	remote, _ := net.ResolveTCPAddr("tcp", p.address)
	l := &link{w: a.w, path: p, gen: gen, conn: c, array: a,
		addr: [2]net.Addr{&net.TCPAddr{IP: net.IPv4(10, 1, 0, 1), Port: a.port}, remote}}
	l.cond.L = &a.w.mu
	l.pump = func() { a.move(l) }
	l.spy = spy{l: l, armed: p.foreign, dialect: a.m.dialect(l)}
	p.born++
	for i, d := range []*dice{&l.tx.dice, &l.rx.dice, &l.wakes, &l.dice} {
		*d = newDice(a.w.seed, uint64(p.index)<<32|p.born<<4|uint64(i))
	}
	l.tx.cap, l.rx.cap = bufferSize(l.dice), bufferSize(l.dice)
	if a.wide {
		l.tx.cap, l.rx.cap = maxBuffer, maxBuffer
	}
	c.User = l
	kept := p.links[:0]
	for _, o := range p.links {
		if o.conn != nil || !o.closed && !o.killed {
			kept = append(kept, o)
		}
	}
	p.links = append(kept, l)
	return l
}

// widen gives all links much room, those to come too.
func (a *array) widen() {
	a.wide = true
	for _, p := range a.paths {
		for _, l := range p.links {
			l.tx.cap, l.rx.cap = maxBuffer, maxBuffer
			a.w.after(0, l.pump)
		}
	}
}

func bufferSize(d dice) int {
	return []int{1 << 10, 8 << 10, 64 << 10, maxBuffer, maxBuffer}[d.IntN(5)]
}

// move takes a link's bytes as far as they come.
func (a *array) move(l *link) {
	l.arrive()
	l.push()
	for len(l.tx.segs) > 0 && len(l.pend) == 0 && !l.path.hole[toTarget] && !l.tx.segs[0].at.After(time.Now()) {
		s := l.tx.segs[0]
		if l.conn == nil && a.m == nil && a.silent && s.end == nil {
			break // nobody there, and nobody says so
		}
		l.tx.segs = l.tx.segs[1:]
		if !l.closed {
			l.tx.bytes -= len(s.data)
		}
		switch {
		case s.end != nil:
			l.gone()
		case l.conn != nil:
			a.feed(l, s.data)
		case l.ghost():
			l.finish(syscall.ECONNRESET)
		}
	}
	if l.ended() {
		l.tx.segs = nil
		l.gone() // a reset overtakes what the target has not read yet
	}
	l.cond.Broadcast()
}

// ended reports that the initiator's reset is there.
func (l *link) ended() bool {
	n := len(l.tx.segs)
	return n > 0 && !l.path.hole[toTarget] && l.tx.segs[n-1].end != nil && !l.tx.segs[n-1].at.After(time.Now())
}

// feed gives the machine bytes of a link, in random pieces.
func (a *array) feed(l *link, data []byte) {
	now := time.Now()
	for len(data) > 0 && l.conn != nil {
		n := len(data)
		if l.dice.chance(3) {
			n = 1 + l.dice.IntN(n)
		}
		c := l.conn
		c.Input(now, data[:n])
		for c.Backlogged() {
			l.output(c)
			c.Advance(now, 0)
		}
		data = data[n:]
		if a.powered[l.path.index] && !l.told {
			l.told = a.m.tellPower(l.path.index)
		}
		if cause := c.Cause(); cause != "" && !l.spoiled {
			a.broken("the target ended a connection: %s", cause)
		}
		a.settle()
	}
}

// do calls f with the machine, if it lives, and sends what that causes.
func (a *array) do(f func(m front)) {
	if a.m != nil {
		f(a.m)
		a.settle()
	}
}

// settle sends and closes what the machine wants sent and closed.
func (a *array) settle() {
	for a.m != nil {
		dirty := append([]*serve.Conn(nil), a.m.Dirty()...)
		if len(dirty) == 0 {
			break
		}
		for _, c := range dirty {
			l, ok := c.User.(*link)
			switch {
			case !ok || l.conn != c:
			case c.Aborting():
				l.pend = nil
				l.gone()
				l.finish(syscall.ECONNRESET)
			default:
				l.output(c)
				l.push()
			}
		}
	}
	a.arm()
}

// arm plans the machine's next Tick.
func (a *array) arm() {
	if a.m == nil {
		return
	}
	at, ok := a.m.Next()
	if !ok || a.armed.After(time.Now()) && !at.Before(a.armed) {
		return
	}
	a.armed = at
	m := a.m
	a.w.at(at, func() {
		if a.m == m {
			a.m.Tick(time.Now())
			a.settle()
		}
	})
}

// output takes what the machine has to say on a link.
func (l *link) output(c *serve.Conn) {
	for c.Take(&l.array.batch) {
		for _, v := range l.array.batch.Vectors() {
			l.pend = append(l.pend, v...)
		}
		l.array.batch.Reset()
	}
	l.fin = c.Closing()
}

// push puts output on the way, as far as there is room.
func (l *link) push() {
	if n := min(len(l.pend), l.rx.cap-l.rx.bytes); n > 0 {
		l.add(&l.rx, append([]byte(nil), l.pend[:n]...))
		if l.pend = l.pend[n:]; len(l.pend) == 0 {
			l.pend = nil
		}
	}
	if l.fin && len(l.pend) == 0 && l.conn != nil {
		l.gone()
		l.finish(io.EOF)
	}
}

// gone is the end of the target's end.
func (l *link) gone() {
	if c := l.conn; c != nil {
		l.conn = nil
		c.Gone()
		l.array.settle()
	}
}

// kill ends process gen: not one more byte of it goes out.
func (a *array) kill(gen int) {
	a.deadGen = gen
	for _, p := range a.paths {
		for _, l := range p.links {
			if l.gen <= gen && !l.killed {
				l.killed = true
				if !l.closed {
					l.abandon()
				}
				l.cond.Broadcast()
			}
		}
	}
}
