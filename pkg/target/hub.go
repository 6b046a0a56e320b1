package target

import (
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/iscsi/auth"
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
	// targets, in the order of SendTargets. Written under mu; read by list, which
	// has the directory's lock and may not wait for mu: Listen takes them the other
	// way round. What list misses came or went in that moment.
	targets atomic.Pointer[[]*Server]

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
	listener net.Listener // nil while stopped
	portals  map[*Server]*Portal
	waiting  map[net.Conn]struct{} // have not said yet for whom they are
}

// NewHub returns a Hub without targets. discovery, if enabled, is demanded of
// discovery sessions; those of the targets play no part in them.
func NewHub(discovery auth.Credentials) (*Hub, error) {
	// No session of the directory's reaches a LUN, but a target has one.
	d, err := New(Config{Auth: discovery, LUNs: []LUN{{Store: NewRAM(512)}}})
	if err != nil {
		return nil, err
	}
	h := &Hub{directory: d}
	h.targets.Store(&[]*Server{})
	d.m.directory = h.list
	return h, nil
}

// list appends the answer to SendTargets for one target (only), or all. It is
// called with the directory's lock held; no target's lock is held then.
func (h *Hub) list(out []byte, initiator, only string) []byte {
	for _, s := range *h.targets.Load() {
		s.mu.Lock()
		if (only == "" || only == s.m.cfg.Name) && s.m.admits(initiator) && len(out) < maxTextAnswer {
			out = s.m.appendTargets(out)
		}
		s.mu.Unlock()
	}
	return out
}

// SetDiscoveryAuth changes what is demanded of the discovery sessions to come.
func (h *Hub) SetDiscoveryAuth(c auth.Credentials) error {
	return h.directory.SetAccess(nil, c)
}

// Add makes a target known; Door.Add makes it reachable.
func (h *Hub) Add(s *Server) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return net.ErrClosed
	}
	all := *h.targets.Load()
	if len(all) >= maxTargets {
		return fmt.Errorf("target %s: more than %d targets", s.Name(), maxTargets)
	}
	for _, o := range all {
		if o.Name() == s.Name() {
			return fmt.Errorf("target %s is there already", s.Name())
		}
	}
	all = append(slices.Clone(all), s)
	h.targets.Store(&all)
	return nil
}

// Remove takes a target away from all doors. Its sessions stay: Close ends it.
func (h *Hub) Remove(s *Server) {
	h.mu.Lock()
	all := slices.DeleteFunc(slices.Clone(*h.targets.Load()), func(o *Server) bool { return o == s })
	h.targets.Store(&all)
	for _, d := range h.doors {
		delete(d.portals, s)
	}
	h.mu.Unlock()
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
	d := &Door{h: h, addr: l.Addr().String(), portals: map[*Server]*Portal{}, waiting: map[net.Conn]struct{}{}}
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
func (d *Door) Add(s *Server, pc PortalConfig) (*Portal, error) {
	d.h.mu.Lock()
	defer d.h.mu.Unlock()
	if !slices.Contains(*d.h.targets.Load(), s) || d.portals[s] != nil {
		return nil, fmt.Errorf("target %s at portal %s: unknown, or there already", s.Name(), d.addr)
	}
	if pc.Address == "" {
		pc.Address = d.addr
	}
	p, err := s.join(d.addr, pc)
	if err != nil {
		return nil, err
	}
	d.portals[s] = p
	return p, nil
}

// Remove ends a target's being reachable here, and its sessions here.
func (d *Door) Remove(s *Server) {
	d.h.mu.Lock()
	p := d.portals[s]
	delete(d.portals, s)
	d.h.mu.Unlock()
	if p != nil {
		s.leave(p)
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
	d.h.directory.leave(d.directory)
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
	_ = c.SetReadDeadline(time.Now().Add(loginTimeout))
	first, g, err := readGreeting(c)
	if err != nil {
		_ = c.Close()
		return
	}
	_ = c.SetReadDeadline(time.Time{})
	d.choose(g).serve(c, first)
}

// choose finds the portal of the target that a greeting is for.
func (d *Door) choose(g greeting) *Portal {
	d.h.mu.Lock()
	defer d.h.mu.Unlock()
	if !g.discovery {
		for s, p := range d.portals {
			if s.Name() == g.target {
				return p
			}
		}
	}
	return d.directory
}
