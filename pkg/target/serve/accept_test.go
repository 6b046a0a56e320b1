package serve

import (
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// shortListener is out of file descriptors until it is closed.
type shortListener struct {
	net.Listener
	tries  atomic.Int64
	closed atomic.Bool
}

func (l *shortListener) Accept() (net.Conn, error) {
	if l.tries.Add(1) > 1e6 || l.closed.Load() {
		return nil, net.ErrClosed
	}
	return nil, &net.OpError{Op: "accept", Err: unix.EMFILE}
}

func (l *shortListener) Close() error { l.closed.Store(true); return nil }

// deaf is a machine that takes no connection.
type deaf struct{ Core }

func (*deaf) Name() string                        { return "deaf" }
func (*deaf) AddPortal(PortalConfig) (int, error) { return 1, nil }
func (*deaf) RemovePortal(int) error              { return nil }
func (*deaf) Connect(int, time.Time) *Conn        { return nil }
func (*deaf) Tick(time.Time)                      {}
func (*deaf) Next() (time.Time, bool)             { return time.Time{}, false }

func TestAShortageOfFilesDoesNotSpin(t *testing.T) {
	for name, open := range map[string]func(t *testing.T, l net.Listener) (end func() error){
		"portal": func(t *testing.T, l net.Listener) func() error {
			s := New(&deaf{})
			p, err := s.join("a:1", PortalConfig{})
			if err != nil {
				t.Fatal(err)
			}
			s.mu.Lock()
			p.accept(l)
			s.mu.Unlock()
			return s.Close
		},
		"door": func(_ *testing.T, l net.Listener) func() error {
			h := &Hub{}
			d := &Door{h: h}
			h.mu.Lock()
			d.accept(l)
			h.mu.Unlock()
			return func() error { d.Stop(); h.wg.Wait(); return nil }
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &shortListener{}
				end := open(t, l)
				time.Sleep(time.Second)
				if n := l.tries.Load(); n < 2 || n > 100 {
					t.Errorf("%d tries in a second", n)
				}
				if err := end(); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}
