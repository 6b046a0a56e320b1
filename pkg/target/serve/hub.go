package serve

import (
	"fmt"
	"net"
	"slices"
	"sync"
	"time"
)

// Hub lets several targets share listening addresses, which a Server alone
// does not: a login goes to the target it names, and a discovery session sees
// all targets that let its initiator in. All methods may be called from any
// goroutine.
//
// The flow of a connection: a Door accepts it and reads its first PDU
// (peek.go); the target named there gets the connection with those bytes, and
// the Hub is out of its way from then on. Discovery sessions, unknown names and
// what is no login go to the directory, a target without a name.
type Hub struct {
	directory *Server
	greet     Greet
	targets   roster

	mu     sync.Mutex // before the locks of Servers
	doors  []*Door
	closed bool
	wg     sync.WaitGroup
}

// Door is one listening address of a Hub.
type Door struct {
	h         *Hub
	addr      string
	directory *Portal

	// Under h.mu.
	listener net.Listener          // nil while stopped
	portals  map[string]*Portal    // by the target's name
	waiting  map[net.Conn]struct{} // have not said yet for whom they are
}

// Greeting is what a connection began with.
type Greeting struct {
	First []byte // that was read and not answered, whole or not
	Name  string // for whom the connection is; "" for nobody
	// Said is what was said already, for Resumer; nil is nothing.
	Said any
}

// Resumer is a Wire whose connection has begun before it came to its machine.
type Resumer interface{ Resume(said any) }

// Greet reads what a connection begins with, up to where it says for whom it is.
type Greet func(c net.Conn) (Greeting, error)

// NewHub returns a Hub without targets. directory answers the questions which
// targets there are, and gets what is for nobody.
func NewHub(directory Served, greet Greet) *Hub {
	return &Hub{directory: directory.shell(), greet: greet, targets: roster{byName: map[string]entry{}}}
}

// Each calls f for each target. No lock is held: f asks the target's with Look.
func (h *Hub) Each(f func(s *Server)) {
	for _, s := range h.targets.all() {
		f(s)
	}
}

// Add makes a target known; Door.Add makes it reachable.
func (h *Hub) Add(t Served) error {
	s := t.shell()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return net.ErrClosed
	}
	return h.targets.add(s)
}

// Remove takes a target away from all doors. Its sessions stay: Close ends it.
func (h *Hub) Remove(t Served) {
	s := t.shell()
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.targets.drop(s) {
		return
	}
	for _, d := range h.doors {
		delete(d.portals, s.Name())
	}
}

// Listen opens a door at addr (host:port, port 0 for any).
func (h *Hub) Listen(addr string) (*Door, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, net.ErrClosed
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("portal %s: %w", addr, err)
	}
	d := &Door{h: h, addr: l.Addr().String(), portals: map[string]*Portal{}, waiting: map[net.Conn]struct{}{}}
	if d.directory, err = h.directory.join(d.addr, PortalConfig{Address: d.addr}); err != nil {
		_ = l.Close()
		return nil, err
	}
	h.doors = append(h.doors, d)
	d.accept(l)
	return d, nil
}

// Close closes all doors and returns when no goroutine of the hub is left. The
// targets are the caller's.
func (h *Hub) Close() error {
	h.mu.Lock()
	h.closed = true
	doors := slices.Clone(h.doors)
	h.mu.Unlock()
	for _, d := range doors {
		d.Kill()
	}
	h.wg.Wait()
	return h.directory.Close()
}

// Addr is the door's address; it stays the same.
func (d *Door) Addr() string { return d.addr }

// Add makes a target reachable here. An empty pc.Address is the door's. The
// door stops and starts, the portal that is returned only Drops.
func (d *Door) Add(t Served, pc PortalConfig) (*Portal, error) {
	s := t.shell()
	d.h.mu.Lock()
	defer d.h.mu.Unlock()
	if !d.h.targets.has(s) || d.portals[s.Name()] != nil {
		return nil, fmt.Errorf("target %s at portal %s: unknown, or there already", s.Name(), d.addr)
	}
	if pc.Address == "" {
		pc.Address = d.addr
	}
	p, err := s.join(d.addr, pc)
	if err != nil {
		return nil, err
	}
	d.portals[s.Name()] = p
	return p, nil
}

// Remove ends a target's being reachable here, and its sessions here.
func (d *Door) Remove(t Served) {
	s := t.shell()
	d.h.mu.Lock()
	p := d.portals[s.Name()]
	if p != nil && p.s == s {
		delete(d.portals, s.Name())
	}
	d.h.mu.Unlock()
	if p != nil && p.s == s {
		s.Leave(p)
	}
}

// Targets counts the targets that are reachable here.
func (d *Door) Targets() int {
	d.h.mu.Lock()
	defer d.h.mu.Unlock()
	return len(d.portals)
}

// Close closes the door for good.
func (d *Door) Close() {
	d.Kill()
	d.h.mu.Lock()
	d.h.doors = slices.DeleteFunc(d.h.doors, func(o *Door) bool { return o == d })
	d.h.mu.Unlock()
	d.h.directory.Leave(d.directory)
}

// Stop closes the listening port; open connections stay.
func (d *Door) Stop() {
	d.h.mu.Lock()
	defer d.h.mu.Unlock()
	if d.listener != nil {
		_ = d.listener.Close()
		d.listener = nil
	}
}

// Start listens again after Stop or Kill.
func (d *Door) Start() error {
	d.h.mu.Lock()
	defer d.h.mu.Unlock()
	if d.listener != nil || d.h.closed {
		return nil
	}
	l, err := net.Listen("tcp", d.addr)
	if err != nil {
		return fmt.Errorf("portal %s: %w", d.addr, err)
	}
	d.accept(l)
	return nil
}

// Drop resets all connections that came through the door.
func (d *Door) Drop() {
	d.h.mu.Lock()
	all := []*Portal{d.directory}
	for _, p := range d.portals {
		all = append(all, p)
	}
	// First those that nobody serves yet: in this order none slips through.
	for c := range d.waiting {
		_ = c.Close()
	}
	d.h.mu.Unlock()
	for _, p := range all {
		p.Drop()
	}
}

// Kill stops the door and resets its connections, as if its controller died.
func (d *Door) Kill() { d.Stop(); d.Drop() }

// accept serves a listener. Under h.mu.
func (d *Door) accept(l net.Listener) {
	d.listener = l
	d.h.wg.Go(func() { acceptAll(l, d.greet) })
}

// greet reads beside the listener for whom a connection is.
func (d *Door) greet(c net.Conn) {
	d.h.mu.Lock()
	defer d.h.mu.Unlock()
	if d.h.closed || d.listener == nil || len(d.waiting) >= maxGreetings {
		_ = c.Close()
		return
	}
	d.waiting[c] = struct{}{}
	d.h.wg.Go(func() {
		d.route(c)
		d.h.mu.Lock()
		delete(d.waiting, c)
		d.h.mu.Unlock()
	})
}

// route gives a connection to whom it is for.
func (d *Door) route(c net.Conn) {
	_ = c.SetDeadline(time.Now().Add(LoginTimeout))
	g, err := d.h.greet(c)
	if err != nil {
		_ = c.Close()
		return
	}
	_ = c.SetDeadline(time.Time{})
	d.choose(g.Name).serve(c, g)
}

// choose finds the portal of the target that has a name.
func (d *Door) choose(name string) *Portal {
	d.h.mu.Lock()
	defer d.h.mu.Unlock()
	if p := d.portals[name]; p != nil {
		return p
	}
	return d.directory
}

// Locked runs f with the hub's lock held, for tests of who waits for whom.
func (h *Hub) Locked(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
}
