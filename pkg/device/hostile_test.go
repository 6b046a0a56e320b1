package device_test

import (
	"context"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/datapath"
	"github.com/csi-mpath/csi-mpath/pkg/device"
	"github.com/csi-mpath/csi-mpath/pkg/target"
	"github.com/csi-mpath/csi-mpath/test/faultproxy"
)

// listen serves every connection with f until the test ends.
func listen(t *testing.T, f func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { defer func() { _ = c.Close() }(); f(c) }()
		}
	}()
	return l.Addr().String()
}

// tryOpen opens a volume that can not come up and returns the error.
func (r *rig) tryOpen(cfg device.Config, limit time.Duration) error {
	r.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	start := time.Now()
	d, err := device.Open(ctx, cfg)
	if err == nil {
		_ = d.Close(ctx)
		return nil
	}
	if took := time.Since(start); took > limit+patience/2 {
		r.Errorf("took %v, the limit was %v", took, limit)
	}
	if !strings.Contains(err.Error(), cfg.Portals[0]) {
		r.Errorf("the error does not name the portal: %v", err)
	}
	return err
}

func TestTargetsThatSpeakGarbageAreNamedAndHarmless(t *testing.T) {
	overBoth(t, func(t *testing.T, over kind) {
		r := over(t, 1)
		for name, f := range map[string]func(net.Conn){
			"closes at once": func(net.Conn) {},
			"never answers":  func(c net.Conn) { _, _ = c.Read(make([]byte, 1<<20)); _, _ = c.Read(make([]byte, 1)) },
			"answers HTTP": func(c net.Conn) {
				_, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n" + strings.Repeat("x", 100)))
			},
			"answers zeroes":   func(c net.Conn) { _, _ = c.Write(make([]byte, 4096)) },
			"answers 0xff":     func(c net.Conn) { _, _ = c.Write([]byte(strings.Repeat("\xff", 4096))) },
			"answers for ever": func(c net.Conn) { forever(c) },
		} {
			t.Run(name, func(t *testing.T) {
				cfg := r.config()
				cfg.Portals = []string{listen(t, f)}
				if err := r.tryOpen(cfg, 300*time.Millisecond); err == nil {
					t.Fatal("it came up")
				}
			})
		}
	})
}

// forever repeats a login response that never finishes the login.
func forever(c net.Conn) {
	b := make([]byte, 48)
	b[0] = 0x23
	for {
		if _, err := c.Write(b); err != nil {
			return
		}
	}
}

// Every prefix of what a target says, then the end of the connection: a clear
// error, no hang, no goroutine left behind.
func TestAConnectionClosedAtAnyByteOfLoginAndIdentificationIsAnError(t *testing.T) {
	overBoth(t, func(t *testing.T, over kind) {
		r := over(t, 1)
		before := runtime.NumGoroutine()
		ok := 0
		for n := int64(0); n < 1400 && ok < 3; n += 1 + n/16 {
			p, err := faultproxy.Listen("127.0.0.1:0", r.portals[0].Addr())
			if err != nil {
				t.Fatal(err)
			}
			if err := p.AtByte(n, faultproxy.Fault{Kind: faultproxy.Cut, Dir: faultproxy.ToClient}); err != nil {
				t.Fatal(err)
			}
			cfg := r.config()
			cfg.Portals = []string{p.Addr()}
			if r.tryOpen(cfg, 60*time.Millisecond) == nil {
				ok++ // past the end of identification
			}
			if err := p.Close(); err != nil {
				t.Fatal(err)
			}
		}
		r.until("all goroutines gone", func() bool { return runtime.NumGoroutine() <= before+2 })
	})
}

func TestABlackHoledPathIsLeftWithinThePathTimeout(t *testing.T) {
	overBoth(t, func(t *testing.T, over kind) {
		r := over(t, 2)
		p, err := faultproxy.Listen("127.0.0.1:0", r.portals[0].Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = p.Close() }()
		cfg := r.config()
		cfg.Portals[0] = p.Addr()
		cfg.PathTimeout = 3 * time.Second // the sibling has as long for an answer
		r.open(cfg, 2)
		if err := p.Now(faultproxy.Fault{Kind: faultproxy.BlackHole, Dir: faultproxy.Both}); err != nil {
			t.Fatal(err)
		}
		for i := range 4 {
			if q := r.do(blk.Write, uint64(i)*4096, 4096, 1); q.Status != blk.OK {
				t.Fatal(q.Status)
			}
		}
		r.until("the path down", func() bool { return r.saw(datapath.PathDown) == 1 })
		if st := r.dev.Status(); st.Paths[1].Errors != 0 || st.Paths[1].Connects != 1 {
			t.Fatalf("the sibling was touched: %+v", st.Paths[1])
		}
	})
}

func TestBadConfigurationIsRefusedWithTheReason(t *testing.T) {
	r := newRig(t, 1, target.Config{})
	for want, change := range map[string]func(*device.Config){
		"given twice":     func(c *device.Config) { c.Portals = append(c.Portals, c.Portals[0]) },
		"not a port":      func(c *device.Config) { c.Portals = []string{"host:nope"} },
		"host, host:port": func(c *device.Config) { c.Portals = []string{"a/b:3260"} },
		"0 portals":       func(c *device.Config) { c.Portals = nil },
		"path selector":   func(c *device.Config) { c.PathSelector = "fastest" },
		"state directory": func(c *device.Config) { c.StateDir = "" },
		"target name":     func(c *device.Config) { c.Protocol = device.ISCSI{} },
		"no iSCSI name":   func(c *device.Config) { c.Protocol = device.ISCSI{Target: "bogus"} },
		"no protocol":     func(c *device.Config) { c.Protocol = nil },
		"minPaths":        func(c *device.Config) { c.MinPaths = 5 },
		"negative":        func(c *device.Config) { c.PathTimeout = -1 },
	} {
		t.Run(want, func(t *testing.T) {
			cfg := r.config()
			change(&cfg)
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			if _, err := device.Open(ctx, cfg); err == nil || !strings.Contains(err.Error(), want) {
				t.Fatalf("%v", err)
			}
		})
	}
}
