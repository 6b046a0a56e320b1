package iscsi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/iscsi/auth"
	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
)

// portal serves each connection with f and returns its address.
func portal(t *testing.T, f func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			f(c)
			c.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().String()
}

// dialFails wants an error that names portal and target. limit is the login's
// own: short where the target never ends it.
func dialFails(t *testing.T, addr string, limit time.Duration) error {
	t.Helper()
	cfg := *loginConfig()
	cfg.Portal, cfg.LoginTimeout = addr, limit
	s, err := Dial(testCtx(t), cfg)
	if err == nil {
		s.Abort(errTest)
		t.Fatal("logged in")
	}
	var se *SessionError
	if !errors.As(err, &se) || !strings.Contains(err.Error(), addr) || !strings.Contains(err.Error(), cfg.TargetName) {
		t.Errorf("does not name portal and target: %v", err)
	}
	return err
}

func TestAPortalThatCannotServeGivesAClearError(t *testing.T) {
	const soon = 300 * time.Millisecond
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	dialFails(t, l.Addr().String(), soon) // nobody listens
	dialFails(t, portal(t, func(c net.Conn) {
		_, _ = c.Write([]byte("SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n" + strings.Repeat("x", 100)))
	}), soon)
	dialFails(t, portal(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }), soon)          // says nothing
	dialFails(t, portal(t, func(c net.Conn) { _, _ = io.Copy(c, endless{}) }), soon)           // never ends
	dialFails(t, portal(t, func(c net.Conn) { _, _ = io.Copy(c, &legs{csg: 1, n: 0}) }), soon) // wrong stage
}

// endless is a stream of zeroes.
type endless struct{}

func (endless) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// legs is an endless stream of empty login answers.
type legs struct {
	csg uint8
	n   int
}

func (l *legs) Read(b []byte) (int, error) {
	(&pdu.LoginResponse{CSG: l.csg}).Put(b)
	l.n++
	return pdu.HeaderLen, nil
}

func TestATargetThatClosesAtAnyByteOfTheLoginIsAnError(t *testing.T) {
	a := bytesFor(pdu.Layout{}, &pdu.LoginResponse{Transit: true, NSG: 1}, segment("AuthMethod=None"))
	b := bytesFor(pdu.Layout{}, &pdu.LoginResponse{Transit: true, CSG: 1, NSG: 3, TSIH: 1, Window: pdu.Window{StatSN: 1}}, segment(usual))
	script := append(a, b...)
	var cut atomic.Int32
	addr := portal(t, func(c net.Conn) {
		_, _ = c.Write(script[:cut.Load()])
		if tc, ok := c.(*net.TCPConn); ok {
			_ = tc.CloseWrite()
		}
		_, _ = io.Copy(io.Discard, c)
	})
	for ; int(cut.Load()) < len(script); cut.Add(7) {
		if err := dialFails(t, addr, time.Minute); !strings.Contains(err.Error(), "closed the connection") {
			t.Errorf("cut at %d: %v", cut.Load(), err)
		}
	}
}

func TestDialEndsWithItsContext(t *testing.T) {
	addr := portal(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	cfg := *loginConfig()
	cfg.Portal = addr
	ctx, cancel := context.WithCancelCause(context.Background())
	cancelled := errors.New("stopped by the caller")
	time.AfterFunc(50*time.Millisecond, func() { cancel(cancelled) })
	if _, err := Dial(ctx, cfg); !errors.Is(err, cancelled) {
		t.Fatal(err)
	}
}

func TestAConfigurationThatCannotWorkIsRefused(t *testing.T) {
	for name, spoil := range map[string]func(*Config){
		"portal":         func(c *Config) { c.Portal = "10.0.0.1" },
		"initiator name": func(c *Config) { c.InitiatorName = "host1" },
		"target name":    func(c *Config) { c.TargetName = "iqn. x" },
		"no target":      func(c *Config) { c.TargetName = "" },
		"depth":          func(c *Config) { c.QueueDepth = maxDepth + 1 },
		"burst":          func(c *Config) { c.MaxBurst = 100 },
		"first burst":    func(c *Config) { c.FirstBurst = 2 << 20 },
		"timeout":        func(c *Config) { c.PathTimeout = -1 },
		"secret":         func(c *Config) { c.Auth = auth.Credentials{User: "u", Secret: "tooshort"} },
	} {
		cfg := Config{Portal: "127.0.0.1:1", InitiatorName: "iqn.2001-04.com.example:i", TargetName: "iqn.2001-04.com.example:t"}
		spoil(&cfg)
		_, err := Dial(testCtx(t), cfg)
		if err == nil || strings.Contains(err.Error(), "refused") || strings.Contains(err.Error(), "tooshort") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSessionsUseTheSourceAddressAskedFor(t *testing.T) {
	f := newFake(t)
	cfg := f.config()
	cfg.Source = "127.0.0.9"
	s := f.dial(cfg)
	if a, ok := s.Info().Local.(*net.TCPAddr); !ok || a.IP.String() != "127.0.0.9" {
		t.Errorf("%v", s.Info().Local)
	}
}

// many is a SendTargets answer with n targets of two portals each.
func many(n int) (text []byte) {
	for i := range n {
		text = pdu.AppendPair(text, "TargetName", fmt.Sprintf("iqn.2001-04.com.example:t%d", i))
		text = pdu.AppendPair(text, "TargetAddress", fmt.Sprintf("10.0.0.1:%d,1", 1+i))
		text = pdu.AppendPair(text, "TargetAddress", "[2001:db8::1]:3260,2")
	}
	return text
}

func TestDiscoveryJoinsAnAnswerCutAnywhere(t *testing.T) {
	text := many(300)
	for _, size := range []int{len(text), 4096, 37} {
		f := newFake(t)
		rest := text
		var itt uint32
		f.text = func(c *fakeConn, h *pdu.TextRequest, data []byte) {
			c.exp++
			if first := h.TTT == pdu.NoTag; first {
				itt = h.ITT
				if string(data) != "SendTargets=All\x00" {
					t.Errorf("asked %q", data)
				}
			} else if h.TTT != 0x11 || h.ITT != itt || len(data) != 0 {
				t.Errorf("goes on with %+v and %d bytes", h, len(data))
			}
			n := min(size, len(rest))
			r := pdu.TextResponse{ITT: h.ITT, TTT: 0x11, Continue: n < len(rest), Window: c.window(true)}
			if n == len(rest) {
				r.Final, r.TTT = true, pdu.NoTag
			}
			c.send(&r, rest[:n])
			rest = rest[n:]
		}
		found, err := Discover(testCtx(t), f.config())
		if err != nil || len(found) != 300 {
			t.Fatalf("%d targets, %v", len(found), err)
		}
		if x := found[299]; x.Name != "iqn.2001-04.com.example:t299" || len(x.Portals) != 2 || x.Portals[0] != (Portal{"10.0.0.1:300", 1}) ||
			x.Portals[1] != (Portal{"[2001:db8::1]:3260", 2}) {
			t.Errorf("%+v", x)
		}
	}
}

func TestDiscoveryIsBounded(t *testing.T) {
	for name, answer := range map[string]func(c *fakeConn, h *pdu.TextRequest){
		"no end": func(c *fakeConn, h *pdu.TextRequest) {
			c.send(&pdu.TextResponse{ITT: h.ITT, TTT: 1}, make([]byte, 100<<10))
		},
		"nothing, ever": func(c *fakeConn, h *pdu.TextRequest) { c.send(&pdu.TextResponse{ITT: h.ITT, TTT: 1}, nil) },
		"no tag":        func(c *fakeConn, h *pdu.TextRequest) { c.send(&pdu.TextResponse{ITT: h.ITT, TTT: pdu.NoTag}, nil) },
		"final and tag": func(c *fakeConn, h *pdu.TextRequest) { c.send(&pdu.TextResponse{Final: true, ITT: h.ITT, TTT: 1}, nil) },
		"other tag": func(c *fakeConn, h *pdu.TextRequest) {
			c.send(&pdu.TextResponse{Final: true, ITT: 77, TTT: pdu.NoTag}, nil)
		},
		"no NUL": func(c *fakeConn, h *pdu.TextRequest) {
			c.send(&pdu.TextResponse{Final: true, ITT: h.ITT, TTT: pdu.NoTag}, []byte("TargetName=iqn.x"))
		},
		"too many": func(c *fakeConn, h *pdu.TextRequest) {
			text := many(maxTargets + 1)
			for len(text) > 200<<10 {
				c.send(&pdu.TextResponse{ITT: h.ITT, TTT: 1}, text[:200<<10])
				text = text[200<<10:]
			}
			c.send(&pdu.TextResponse{Final: true, ITT: h.ITT, TTT: pdu.NoTag}, text)
		},
		"an address first": func(c *fakeConn, h *pdu.TextRequest) {
			c.send(&pdu.TextResponse{Final: true, ITT: h.ITT, TTT: pdu.NoTag}, segment("TargetAddress=10.0.0.1"))
		},
	} {
		f := newFake(t)
		f.text = func(c *fakeConn, h *pdu.TextRequest, _ []byte) { answer(c, h) }
		if found, err := Discover(testCtx(t), f.config()); !errors.Is(err, ErrViolation) {
			t.Errorf("%s: %d targets, %v", name, len(found), err)
		}
	}
	f := newFake(t)
	f.text = func(c *fakeConn, h *pdu.TextRequest, _ []byte) {
		c.send(&pdu.TextResponse{Final: true, ITT: h.ITT, TTT: pdu.NoTag}, nil)
	}
	if found, err := Discover(testCtx(t), f.config()); err != nil || len(found) != 0 {
		t.Errorf("no targets: %v, %v", found, err)
	}
}

func TestSendTargetsWorksInANormalSession(t *testing.T) {
	f := newFake(t)
	text := many(4000)
	const first = offerMaxRecv // with its header larger than the receive buffer
	f.text = func(c *fakeConn, h *pdu.TextRequest, _ []byte) {
		if h.TTT == pdu.NoTag {
			c.send(&pdu.TextResponse{Continue: true, ITT: h.ITT, TTT: 5, Window: c.window(true)}, text[:first])
			return
		}
		c.send(&pdu.TextResponse{Final: true, ITT: h.ITT, TTT: pdu.NoTag, Window: c.window(true)}, text[first:])
	}
	s := f.dial(f.config())
	for range controlTags + 1 {
		if found, err := s.SendTargets(testCtx(t), ""); err != nil || len(found) != 4000 {
			t.Fatalf("%d targets, %v", len(found), err)
		}
	}
}
