package serve

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// Machine is a protocol's machine, which embeds Core.
type Machine interface {
	// Name is the target's name.
	Name() string
	// AddPortal adds a portal and returns its number, from 1; RemovePortal ends
	// what goes over it.
	AddPortal(pc PortalConfig) (int, error)
	RemovePortal(number int) error
	// Connect begins a connection at a portal; nil when there are too many, or
	// no such portal.
	Connect(portal int, now time.Time) *Conn
	// Tick runs what is due at now; Next is when it has something to do, ok
	// false when nothing waits.
	Tick(now time.Time)
	Next() (at time.Time, ok bool)

	base() *Core
}

// PortalConfig describes one portal.
type PortalConfig struct {
	// Address is what discovery tells, host:port. Server fills in its listening
	// address where it is empty: set it when that is 0.0.0.0 or [::].
	Address string
	// TPGT is the iSCSI target portal group tag (RFC 7143), 0 is 1: sessions are
	// reinstated within a portal group. Over NVMe/TCP it is the port identifier
	// that discovery tells, 0 is the portal's number.
	TPGT uint16
	// Group is the group of portals whose access state (ALUA, ANA) is one, 0 is 1.
	Group uint16
}

// Server serves a Machine on TCP. All methods may be called from any goroutine.
//
// One lock guards the machine, taken once per batch of requests; system calls
// are made outside it.
type Server struct {
	mu      sync.Mutex
	m       Machine
	core    *Core
	portals []*Portal
	timer   *time.Timer
	closed  bool
	wg      sync.WaitGroup
}

// Attached is one initiator's session, or a host's controller.
type Attached struct {
	Initiator string // its name
	Portal    string // PortalConfig.Address
}

// Portal is one listening address of a Server.
type Portal struct {
	s        *Server
	number   int
	addr     string
	listener net.Listener // nil while stopped; under s.mu
	conns    map[*conn]struct{}
	left     bool // serves no more; under s.mu
}

// New serves a machine. The caller must not touch it any more but in Enter.
func New(m Machine) *Server {
	s := &Server{m: m, core: m.base()}
	s.core.Run = s.run
	s.timer = time.AfterFunc(time.Hour, s.tick)
	return s
}

// Served is a Server, or what embeds one.
type Served interface{ shell() *Server }

func (s *Server) shell() *Server { return s }

// Name is the target's name.
func (s *Server) Name() string { return s.m.Name() }

// run does a store's slow job beside the machine.
func (s *Server) run(job func() error, done func(error)) {
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		err := job()
		s.Enter(func() { done(err) })
	}()
}

// Enter runs f with the machine's lock held, and sends what it causes.
func (s *Server) Enter(f func()) {
	s.mu.Lock()
	s.core.now = time.Now()
	f()
	s.settle(nil)
}

// Look runs f, which changes nothing, with the machine's lock held.
func (s *Server) Look(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// Change runs f as Enter does, and returns what it says.
func (s *Server) Change(f func() error) (err error) {
	s.Enter(func() { err = f() })
	return err
}

// ChangeAndWait runs f as Enter does, and returns once the jobs of tasks that
// match are over: what f ended has no effect after that (I3, I9).
func (s *Server) ChangeAndWait(match func(t *Task) bool, f func() error) error {
	over, err := s.ChangeAndTell(match, f)
	<-over
	return err
}

// ChangeAndTell is ChangeAndWait for those who cannot wait for ever: over is
// closed when ChangeAndWait would return. f has run.
func (s *Server) ChangeAndTell(match func(t *Task) bool, f func() error) (over <-chan struct{}, err error) {
	done := make(chan struct{})
	s.Enter(func() {
		err = f()
		s.core.WhenOver(match, func() { close(done) })
	})
	return done, err
}

// settle ends a turn of the machine: unlocks, closes and sends. own is the
// connection the caller sends for itself, after those that must end first.
func (s *Server) settle(own *conn) {
	var aborts, others []*conn
	for _, d := range s.core.Dirty() {
		k, ok := d.User.(*conn)
		switch {
		case !ok:
		case d.Aborting():
			aborts = append(aborts, k)
		case k != own:
			others = append(others, k)
		}
	}
	if s.core.rouse {
		s.core.rouse = false
		s.arm()
	}
	if s.closed {
		others = nil // all are about to be reset
	}
	s.mu.Unlock()
	for _, k := range aborts {
		_ = k.sock.Abort()
	}
	for _, k := range others {
		// Beside the caller: a peer that does not read must not hold it up.
		s.wg.Add(1)
		go func() { defer s.wg.Done(); k.flush(false) }()
	}
}

// arm sets the timer to what the machine waits for. Under s.mu.
func (s *Server) arm() {
	if at, ok := s.m.Next(); ok && !s.closed {
		s.timer.Reset(max(time.Until(at), 0))
	}
}

func (s *Server) tick() {
	s.mu.Lock()
	s.m.Tick(time.Now())
	s.arm()
	s.settle(nil)
}

// Listen adds a portal in portal group 1 at addr (host:port, port 0 for any).
func (s *Server) Listen(addr string) (*Portal, error) { return s.ListenPortal(addr, PortalConfig{}) }

// ListenPortal adds a portal.
func (s *Server) ListenPortal(addr string, pc PortalConfig) (*Portal, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, net.ErrClosed
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("target %s: %w", s.Name(), err)
	}
	addr = l.Addr().String()
	if pc.Address == "" {
		pc.Address = addr
	}
	p, err := s.add(addr, pc)
	if err != nil {
		_ = l.Close()
		return nil, err
	}
	p.accept(l)
	return p, nil
}

// join adds a portal without a listener of its own.
func (s *Server) join(addr string, pc PortalConfig) (*Portal, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.add(addr, pc)
}

// add adds a portal. Under s.mu.
func (s *Server) add(addr string, pc PortalConfig) (*Portal, error) {
	n, err := s.m.AddPortal(pc)
	if err != nil {
		return nil, err
	}
	p := &Portal{s: s, number: n, addr: addr, conns: map[*conn]struct{}{}}
	s.portals = append(s.portals, p)
	return p, nil
}

// Leave takes a portal away, and returns when nothing that came over it runs.
func (s *Server) Leave(p *Portal) {
	_ = s.ChangeAndWait(func(t *Task) bool { return t.Cmd.Traits().Portal == p.number },
		func() error {
			p.left = true
			return s.m.RemovePortal(p.number) // it is there
		})
	p.Drop()
}

// Addr is the portal's address; it stays the same.
func (p *Portal) Addr() string { return p.addr }

// Number is the portal's number in Match and Machine's methods.
func (p *Portal) Number() int { return p.number }

func (p *Portal) accept(l net.Listener) {
	p.listener = l
	p.s.wg.Go(func() { acceptAll(l, func(c net.Conn) { p.serve(c, Greeting{}) }) })
}

// acceptAll gives each connection to serve until l is closed. An error, as for
// want of file descriptors, is waited out.
func acceptAll(l net.Listener, serve func(net.Conn)) {
	for {
		c, err := l.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			time.Sleep(acceptPause)
		default:
			serve(c)
		}
	}
}

// Stop closes the listening port; open connections stay.
func (p *Portal) Stop() {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if p.listener != nil {
		_ = p.listener.Close()
		p.listener = nil
	}
}

// Start listens again after Stop or Kill.
func (p *Portal) Start() error {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if p.listener != nil || p.s.closed {
		return nil
	}
	l, err := net.Listen("tcp", p.addr)
	if err != nil {
		return fmt.Errorf("target %s: %w", p.s.Name(), err)
	}
	p.accept(l)
	return nil
}

// Drop resets all connections of the portal.
func (p *Portal) Drop() {
	p.s.mu.Lock()
	var all []*conn
	for k := range p.conns {
		all = append(all, k)
	}
	p.s.mu.Unlock()
	for _, k := range all {
		k.reset()
	}
}

// Kill stops the portal and resets its connections, as if its process died.
func (p *Portal) Kill() { p.Stop(); p.Drop() }

// Close resets all connections and returns when no goroutine is left. What
// is held is dropped. Stores stay open: they are the caller's.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	s.timer.Stop()
	portals := s.portals
	s.core.dropHeld()
	s.settle(nil)
	for _, p := range portals {
		p.Kill()
	}
	s.wg.Wait()
	return nil
}

// Machine is what is served. Its state belongs to Enter and Look.
func (s *Server) Machine() Machine { return s.m }
