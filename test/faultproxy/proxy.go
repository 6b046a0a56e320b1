package faultproxy

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/csi-mpath/csi-mpath/test/port"
)

// Stats are the proxy's counters since it began.
type Stats struct {
	Accepted  uint64 // connections of clients
	Open      int    // of these, still open
	ToTarget  uint64 // bytes delivered
	ToClient  uint64
	Discarded uint64 // bytes dropped, or swallowed by a black hole
}

// Proxy is one listening address in front of one target. All methods may be
// called from any goroutine.
type Proxy struct {
	addr   string // never changes once Listen has returned
	target string
	held   *port.Held     // nil for a port that was asked for
	wg     sync.WaitGroup // goroutines of links and the acceptor

	mu       sync.Mutex
	listener *net.TCPListener // nil while refusing
	links    map[*link]struct{}
	rules    []Fault // conditions that meet new connections
	armed    []armed // by byte, for new connections
	timers   map[*time.Timer]struct{}
	closed   bool

	accepted, discarded, toTarget, toClient atomic.Uint64
}

// Listen begins to forward connections made to addr (host:port; port 0 for
// any) to target.
func Listen(addr, target string) (*Proxy, error) {
	p := &Proxy{addr: addr, target: target, links: map[*link]struct{}{}, timers: map[*time.Timer]struct{}{}}
	if addr == anyPort {
		// So that the port is still ours after Refuse.
		var err error
		if p.held, err = port.Hold(); err != nil {
			return nil, fmt.Errorf("faultproxy: %w", err)
		}
		p.addr = p.held.Addr()
	}
	l, err := p.listen()
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	p.addr = l.Addr().String()
	return p, nil
}

// anyPort asks for a free port of loopback.
const anyPort = "127.0.0.1:0"

// Addr is the address clients dial; it stays the same.
func (p *Proxy) Addr() string { return p.addr }

// Accept listens again after Refuse. The port is the same.
func (p *Proxy) Accept() error {
	_, err := p.listen()
	return err
}

func (p *Proxy) listen() (*net.TCPListener, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, net.ErrClosed
	}
	if p.listener != nil {
		return p.listener, nil
	}
	l, err := net.Listen("tcp", p.addr)
	if err != nil {
		return nil, fmt.Errorf("faultproxy: %w", err)
	}
	p.listener = l.(*net.TCPListener)
	p.wg.Add(1)
	go p.acceptLoop(p.listener)
	return p.listener, nil
}

// Refuse closes the listener: new connections get RST. Open ones stay.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		_ = p.listener.Close()
		p.listener = nil
	}
}

func (p *Proxy) acceptLoop(l *net.TCPListener) {
	defer p.wg.Done()
	for {
		c, err := l.AcceptTCP()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			continue // a connection that died in the queue
		}
		p.accepted.Add(1)
		p.wg.Add(1)
		go p.connect(c)
	}
}

// connect gives a client its target, unless a black hole swallows it.
func (p *Proxy) connect(c *net.TCPConn) {
	defer p.wg.Done()
	l := newLink(p, c)
	swallow, ok := p.join(l)
	if !ok {
		abort(c)
		return
	}
	var t *net.TCPConn
	if !swallow {
		conn, err := (&net.Dialer{Timeout: dialTimeout}).Dial("tcp", p.target)
		if err != nil {
			abort(c)
			p.forget(l)
			return
		}
		t = conn.(*net.TCPConn)
	}
	l.connect(t)
	l.start()
}

// join takes a new link in, with the standing faults waiting for it: whatever
// happens from here on reaches it.
func (p *Proxy) join(l *link) (swallow, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.links) >= maxLinks {
		return false, false
	}
	for _, f := range p.rules {
		l.now(f)
		swallow = swallow || f.Kind == BlackHole && f.Dir == Both
	}
	for _, a := range p.armed {
		l.arm(a.at, a.fault)
	}
	p.links[l] = struct{}{}
	return swallow, true
}

func (p *Proxy) forget(l *link) {
	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
}

func (p *Proxy) count(d Dir, n int) {
	if d == ToTarget {
		p.toTarget.Add(uint64(n))
	} else {
		p.toClient.Add(uint64(n))
	}
}

// Now makes f happen to all open connections. Conditions (see Kind) also meet
// those made later.
func (p *Proxy) Now(f Fault) error {
	if err := f.check(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if f.condition() {
		p.addRule(f)
	}
	for l := range p.links {
		l.now(f)
	}
	return nil
}

// addRule replaces the rule of the same kind and direction.
func (p *Proxy) addRule(f Fault) {
	for i := range p.rules {
		if p.rules[i].Kind == f.Kind && p.rules[i].Dir == f.Dir {
			p.rules[i] = f
			return
		}
	}
	p.rules = append(p.rules, f)
}

// AtByte makes f happen, once per connection, when byte number n (from 0) of
// its direction is about to be delivered: to open connections that have not
// got there yet, and to those made later, until Heal.
func (p *Proxy) AtByte(n int64, f Fault) error {
	if err := f.check(); err != nil {
		return err
	}
	if n < 0 {
		return fmt.Errorf("faultproxy: byte %d is before the start", n)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.armed) >= maxArmed {
		return fmt.Errorf("faultproxy: more than %d faults wait for their byte; Heal drops them", maxArmed)
	}
	p.armed = append(p.armed, armed{n, f})
	for l := range p.links {
		l.arm(n, f)
	}
	return nil
}

// After does what Now does, d later, unless Heal or Close comes first.
func (p *Proxy) After(d time.Duration, f Fault) error {
	if err := f.check(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return net.ErrClosed
	}
	var t *time.Timer
	t = time.AfterFunc(d, func() {
		p.mu.Lock()
		_, live := p.timers[t]
		delete(p.timers, t)
		p.mu.Unlock()
		if live {
			_ = p.Now(f)
		}
	})
	p.timers[t] = struct{}{}
	return nil
}

// Release delivers what Hold kept back, in order, and ends the hold.
func (p *Proxy) Release(d Dir) {
	p.mu.Lock()
	defer p.mu.Unlock()
	keep := p.rules[:0]
	for _, f := range p.rules {
		if f.Kind != Hold {
			keep = append(keep, f)
			continue
		}
		// Releasing one direction of a hold of both leaves the other held.
		if f.Dir == Both && d != Both {
			f.Dir = ToTarget + ToClient - d
			keep = append(keep, f)
		} else if !d.has(f.Dir) {
			keep = append(keep, f)
		}
	}
	p.rules = keep
	for l := range p.links {
		l.release(d)
	}
}

// Heal ends all conditions, disarms all faults and listens again. Connections
// that entered a black hole stay in it; new ones pass.
func (p *Proxy) Heal() error {
	p.mu.Lock()
	p.rules, p.armed = nil, nil
	p.stopTimers()
	for l := range p.links {
		l.heal()
	}
	p.mu.Unlock()
	return p.Accept()
}

func (p *Proxy) stopTimers() {
	for t := range p.timers {
		t.Stop()
	}
	clear(p.timers)
}

// Stats reads the counters.
func (p *Proxy) Stats() Stats {
	p.mu.Lock()
	open := len(p.links)
	p.mu.Unlock()
	return Stats{Accepted: p.accepted.Load(), Open: open, ToTarget: p.toTarget.Load(),
		ToClient: p.toClient.Load(), Discarded: p.discarded.Load()}
}

// Close resets all connections and returns when no goroutine is left.
func (p *Proxy) Close() error {
	p.Refuse()
	p.mu.Lock()
	p.closed = true
	p.stopTimers()
	for l := range p.links {
		l.abortBoth()
		l.stop()
	}
	held := p.held
	p.held = nil
	p.mu.Unlock()
	p.wg.Wait()
	if held != nil {
		return held.Close()
	}
	return nil
}
