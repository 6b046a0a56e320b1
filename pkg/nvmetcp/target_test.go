package nvmetcp

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/nvmetcp/auth"
	"github.com/csi-mpath/csi-mpath/pkg/target"
	"github.com/csi-mpath/csi-mpath/pkg/target/subsystem"
)

// onLoopback is the embedded target on loopback, and the settings of its host.
func onLoopback(t testing.TB, cfg subsystem.Config) Config {
	t.Helper()
	cfg.Name = someSubsystem
	if cfg.Namespaces == nil {
		cfg.Namespaces = []subsystem.Namespace{{ID: 1, Store: target.NewRAM(16 << 20)}}
	}
	s, err := subsystem.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	p, err := s.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return Config{Portal: p.Addr(), Subsystem: someSubsystem, HostNQN: someHost, HostID: [16]byte{7}, Queues: 2}
}

// dialed is namespace 1 of the controller there.
func dialed(t testing.TB, cfg Config) (*Controller, *Namespace, *patient) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	c, err := Dial(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Abort(ErrClosed); <-c.Done() })
	p := newPatient()
	n := c.Namespace(1, 128, p)
	id, err := c.Identify(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	n.SetProfile(id)
	return c, n, p
}

func TestTheEmbeddedTargetIsWrittenAndRead(t *testing.T) {
	secret := auth.FormatSecret(auth.SHA256, bytes.Repeat([]byte{5}, 32))
	proof := auth.FormatSecret(auth.SHA384, bytes.Repeat([]byte{6}, 48))
	both := auth.Credentials{Secret: secret, ControllerSecret: proof, Groups: auth.GroupSet(auth.FFDHE2048)}
	for name, c := range map[string]struct {
		target subsystem.Config
		set    func(*Config)
	}{
		"plain":      {subsystem.Config{}, func(*Config) {}},
		"no success": {subsystem.Config{NoSuccess: true, NoTBKAS: true}, func(*Config) {}},
		"digests":    {subsystem.Config{Align: 3}, func(c *Config) { c.HeaderDigest, c.DataDigest = true, true }},
		"by R2T":     {subsystem.Config{InCapsule: subsystem.NoInCapsule, MaxH2CData: 4096, R2TSize: 64 << 10}, func(*Config) {}},
		"one queue":  {subsystem.Config{Queues: 1, Depth: 4}, func(c *Config) { c.Queues = 8 }},
		"auth":       {subsystem.Config{Auth: both}, func(c *Config) { c.Auth = both }},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := onLoopback(t, c.target)
			c.set(&cfg)
			ctl, n, p := dialed(t, cfg)
			want := pattern(1<<20, 3)
			var writes, reads []*blk.Command
			got := make([]byte, len(want))
			for off := 0; off < len(want); off += 64 << 10 {
				writes = append(writes, &blk.Command{Op: blk.Write, Off: uint64(off), Len: 64 << 10, Buf: want[off:][:64<<10]})
				reads = append(reads, &blk.Command{Op: blk.Read, Off: uint64(off), Len: 64 << 10, Buf: got[off:][:64<<10]})
			}
			p.finish(t, n, writes...)
			p.finish(t, n, &blk.Command{Op: blk.Flush})
			p.finish(t, n, reads...)
			if !bytes.Equal(got, want) {
				t.Error("the data differ")
			}
			if err := n.ReadFirst(t.Context()); err != nil {
				t.Error(err)
			}
			if err := ctl.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestTheWrongSecretIsAnAuthenticationError(t *testing.T) {
	cred := func(b byte) auth.Credentials {
		return auth.Credentials{Secret: auth.FormatSecret(auth.SHA256, bytes.Repeat([]byte{b}, 32)), Groups: auth.GroupSet(auth.Null)}
	}
	cfg := onLoopback(t, subsystem.Config{Auth: cred(1)})
	for _, c := range []auth.Credentials{cred(2), {}} {
		cfg.Auth = c
		if _, err := Dial(t.Context(), cfg); !errors.Is(err, ErrAuth) {
			t.Errorf("%v", err)
		}
	}
}

func TestRefusalsOfConnectAreTold(t *testing.T) {
	cfg := onLoopback(t, subsystem.Config{Hosts: []string{"nqn.2025-01.io.test:other"}})
	if _, err := Dial(t.Context(), cfg); !errors.Is(err, ErrForbidden) {
		t.Errorf("%v", err)
	}
	cfg = onLoopback(t, subsystem.Config{})
	cfg.Subsystem = "nqn.2025-01.io.test:unknown"
	if _, err := Dial(t.Context(), cfg); !errors.Is(err, ErrNotFound) {
		t.Errorf("%v", err)
	}
}

func TestANamespaceThatIsNotThereIsNamed(t *testing.T) {
	c, _, _ := dialed(t, onLoopback(t, subsystem.Config{}))
	if _, err := c.Identify(t.Context(), 9); !errors.Is(err, ErrNoNamespace) {
		t.Errorf("%v", err)
	}
}

// tally is a sink that counts how often each command is out; one that is not
// counted yet may come back first.
type tally struct {
	patient
	mu     sync.Mutex
	out    map[*blk.Command]int
	losses int
}

func (w *tally) add(c *blk.Command, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.out[c] += n
}

func (w *tally) Complete(c *blk.Command) { w.add(c, -1) }
func (w *tally) Lost(first *blk.Command, _ error) {
	for c := first; c != nil; c = c.Next {
		w.add(c, -1)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.losses++
}

func TestEveryCommandComesBackOnceWhenTheControllerDiesUnderLoad(t *testing.T) {
	cfg := onLoopback(t, subsystem.Config{})
	for round := range 10 {
		c, err := Dial(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		id, err := c.Identify(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		w := &tally{out: map[*blk.Command]int{}}
		n := c.Namespace(1, 64, w)
		n.SetProfile(id)
		var wg sync.WaitGroup
		for lane := range 3 {
			wg.Go(func() {
				for i := 0; ; i++ {
					size := 512
					if i%3 == 0 {
						size = 64 << 10
					}
					cmd := &blk.Command{Op: blk.Write, Off: uint64(i % 64 * 512), Len: uint32(size), Buf: make([]byte, size)}
					if n.Submit(cmd, lane) {
						w.add(cmd, 1)
					} else if c.Err() != nil {
						return
					}
					n.Kick(lane)
				}
			})
		}
		<-time.After(time.Duration(round) * time.Millisecond)
		c.Abort(ErrClosed)
		wg.Wait()
		<-c.Done()
		for _, n := range w.out {
			if n != 0 {
				t.Fatalf("a command came back %d times", 1-n)
			}
		}
		if w.losses != 1 {
			t.Fatalf("Lost was called %d times", w.losses)
		}
	}
}
