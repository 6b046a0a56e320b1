package nbd

import (
	"context"
	"errors"
	"fmt"
	"net"
)

// Drain ends the server gracefully: no new client, no new request after the
// one being received, every request in flight answered, then closed. When ctx
// ends first, the rest is cut off, and the error says how many connections
// that were; their requests come back to the lanes' care.
func (s *Server) Drain(ctx context.Context) error {
	s.mu.Lock()
	s.draining = true
	for l := range s.listeners {
		_ = l.Close()
	}
	for nc := range s.shaking {
		_ = nc.Close()
	}
	for c := range s.conns {
		c.drain()
	}
	s.mu.Unlock()
	done := make(chan struct{})
	go func() {
		s.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		n := s.abortAll()
		return fmt.Errorf("nbd: drain cut %d connections with requests in flight: %w", n, ctx.Err())
	}
}

// Stats counts what the server did so far.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.past
	t.Conns = len(s.conns)
	for c := range s.conns {
		t.add(c)
	}
	return t
}

func (t *Stats) add(c *conn) {
	t.Requests += c.requests.Load()
	t.Recvs += c.sock.Stats.Recvs.Load()
	t.Sends += c.sock.Stats.Sends.Load()
	t.Again += c.sock.Stats.Again.Load()
}

// abortAll cuts every connection and returns how many there were.
func (s *Server) abortAll() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for nc := range s.shaking {
		_ = nc.Close()
	}
	for c := range s.conns {
		c.abort()
	}
	return len(s.conns)
}

// Draining reports whether Drain was called.
func (s *Server) Draining() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.draining
}

func (s *Server) addListener(l net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return false
	}
	s.listeners[l] = struct{}{}
	return true
}

func (s *Server) addShaking(nc net.Conn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return ErrDraining
	}
	if len(s.shaking)+len(s.conns) >= MaxConns {
		return fmt.Errorf("nbd: more than %d connections; the newest was closed", MaxConns)
	}
	s.shaking[nc] = struct{}{}
	s.wg.Add(1)
	return nil
}

// removeShaking reports whether the client may go on to transmission.
func (s *Server) removeShaking(nc net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.shaking, nc)
	return !s.draining
}

func (s *Server) addConn(c *conn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return errors.Join(ErrDraining, c.arena.Close())
	}
	s.conns[c] = struct{}{}
	s.wg.Add(1)
	return nil
}

func (s *Server) removeConn(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.past.add(c)
	delete(s.conns, c)
	s.wg.Done()
}
