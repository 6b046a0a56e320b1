package nbd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Server serves exports to NBD clients. Its methods may be called from any
// goroutine.
type Server struct {
	cfg Config
	// exports is replaced as a whole by SetExports and read once per handshake;
	// a stale map serves a client as if it had come a moment earlier.
	exports atomic.Pointer[map[string]Export]
	notify  func(client string, err error)

	mu        sync.Mutex // guards what follows; never taken per I/O
	draining  bool
	listeners map[net.Listener]struct{}
	shaking   map[net.Conn]struct{}
	conns     map[*conn]struct{}
	past      Stats // of connections that ended
	wg        sync.WaitGroup
}

// Stats counts what connections did, those that ended included.
type Stats struct {
	Conns    int    // open now
	Requests uint64 // headers read
	Recvs    uint64 // receive calls to the kernel
	Sends    uint64 // send calls to the kernel
	Again    uint64 // receive calls that found nothing
}

// NewServer makes a server of exports by name. The empty name a client asks
// for means the only export, where there is one. notify, which may be nil, is
// told why a connection ended when that was not clean.
func NewServer(exports map[string]Export, cfg Config, notify func(client string, err error)) *Server {
	cfg.fill()
	if notify == nil {
		notify = func(string, error) {}
	}
	s := &Server{
		cfg: cfg, notify: notify,
		listeners: map[net.Listener]struct{}{},
		shaking:   map[net.Conn]struct{}{},
		conns:     map[*conn]struct{}{},
	}
	s.SetExports(exports)
	return s
}

// SetExports replaces the exports new clients may choose from. The map must
// not change afterwards.
func (s *Server) SetExports(exports map[string]Export) { s.exports.Store(&exports) }

// Serve serves exports on l until ctx ends, with the default configuration.
func Serve(ctx context.Context, l net.Listener, exports map[string]Export) error {
	return NewServer(exports, Config{}, nil).Serve(ctx, l)
}

// ErrDraining is what Serve and ServeConn return after Drain.
var ErrDraining = errors.New("nbd: server is draining")

// Serve accepts clients on l until ctx ends (then connections are cut) or
// Drain is called. It closes l, and returns when its connections are gone.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	if !s.addListener(l) {
		_ = l.Close()
		return ErrDraining
	}
	stop := context.AfterFunc(ctx, func() {
		_ = l.Close()
		s.abortAll()
	})
	defer stop()
	var clients sync.WaitGroup
	err := s.accept(ctx, l, &clients)
	_ = l.Close()
	clients.Wait()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case s.Draining():
		return ErrDraining
	}
	return err
}

func (s *Server) accept(ctx context.Context, l net.Listener, clients *sync.WaitGroup) error {
	pause := time.Duration(0)
	for {
		nc, err := l.Accept()
		var temporary interface{ Temporary() bool }
		switch {
		case err == nil:
			pause = 0
			s.start(ctx, nc, clients)
		case errors.As(err, &temporary) && temporary.Temporary() && ctx.Err() == nil:
			// Out of file descriptors, most likely: do not spin.
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
		default:
			return fmt.Errorf("nbd: accept on %v: %w", l.Addr(), err)
		}
	}
}

func (s *Server) start(ctx context.Context, nc net.Conn, clients *sync.WaitGroup) {
	if err := s.addShaking(nc); err != nil {
		_ = nc.Close()
		s.notify(clientName(nc), err)
		return
	}
	clients.Go(func() {
		defer s.wg.Done()
		if err := s.serveClient(ctx, nc); err != nil && !errors.Is(err, errAborted) {
			s.notify(clientName(nc), err)
		}
	})
}

// serveClient runs handshake and transmission of one client, and closes it.
func (s *Server) serveClient(ctx context.Context, nc net.Conn) error {
	defer func() { _ = nc.Close() }()
	var lane Lane
	h := newHandshake(*s.exports.Load(), func(e Export) (err error) {
		lane, err = e.OpenLane(s.cfg.Depth)
		return err
	})
	pre, err := shake(nc, h)
	if !s.removeShaking(nc) || err != nil || ctx.Err() != nil {
		if lane != nil {
			lane.Close()
		}
		return cleanEnd(err)
	}
	if err := s.transmit(ctx, nc, h.chosen, lane, h.structured, pre); !errors.Is(err, ErrHungUp) {
		return err
	}
	return nil // clients may leave as they like
}

// ErrHungUp: the client went away without saying goodbye (NBD_CMD_DISC).
var ErrHungUp = errors.New("nbd: the client hung up without a goodbye")

// ServeConn serves one connection that is already in the transmission phase,
// with simple replies: one end of a socketpair whose other end the kernel has.
// It closes nc, and returns when every request has come back: nil after the
// client's goodbye, a drain or the end of ctx, and ErrHungUp when the client is
// gone without a word, as the kernel does that keeps its device.
func (s *Server) ServeConn(ctx context.Context, nc net.Conn, e Export) error {
	lane, err := e.OpenLane(s.cfg.Depth)
	if err != nil {
		_ = nc.Close()
		return fmt.Errorf("nbd: export %q: %w", e.Info().Name, err)
	}
	return s.transmit(ctx, nc, e, lane, false, nil)
}

func (s *Server) transmit(ctx context.Context, nc net.Conn, e Export, lane Lane, structured bool, pre []byte) error {
	c, err := newConn(nc, e, lane, structured, s.cfg)
	if err == nil {
		err = s.addConn(c)
	}
	if err != nil {
		lane.Close()
		_ = nc.Close()
		return err
	}
	defer s.removeConn(c)
	defer context.AfterFunc(ctx, c.abort)()
	return c.run(pre)
}

// shake runs the handshake over nc and returns what was read past its end.
func shake(nc net.Conn, h *handshake) ([]byte, error) {
	if err := nc.SetDeadline(time.Now().Add(HandshakeTimeout)); err != nil {
		return nil, err
	}
	buf, n := make([]byte, maxHandshakeInput), 0
	for {
		if len(h.out) > 0 {
			if _, err := nc.Write(h.out); err != nil {
				return nil, err
			}
			h.out = h.out[:0]
		}
		if h.chosen != nil {
			return buf[:n], nc.SetDeadline(time.Time{})
		}
		used, err := h.step(buf[:n])
		n = copy(buf, buf[used:n])
		switch {
		case err != nil:
			_, _ = nc.Write(h.out) // the acknowledgement of an ABORT; it may not be read
			return nil, err
		case used > 0:
			continue
		}
		m, err := nc.Read(buf[n:])
		if n += m; err != nil {
			return nil, err
		}
	}
}

func clientName(nc net.Conn) string {
	if a := nc.RemoteAddr(); a != nil && a.String() != "" {
		return a.String()
	}
	return "local client"
}
