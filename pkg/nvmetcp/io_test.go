package nvmetcp

import (
	"bytes"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/nvme"
)

func pattern(n int, seed byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7) + byte(i>>8) + seed
	}
	return b
}

// opened is namespace 1 of a controller, identified.
func (s *scripted) opened(cfg Config) (*Controller, *Namespace, *patient) {
	s.t.Helper()
	c := s.bring(cfg)
	p := newPatient()
	n := c.Namespace(1, 128, p)
	id, err := c.Identify(s.t.Context(), 1)
	if err != nil {
		s.t.Fatal(err)
	}
	n.SetProfile(id)
	return c, n, p
}

// finish runs commands to their end, on lane 0.
func (p *patient) finish(t testing.TB, n *Namespace, cmds ...*blk.Command) {
	t.Helper()
	sent, back := 0, 0
	for back < len(cmds) {
		for sent < len(cmds) && n.Submit(cmds[sent], 0) {
			sent++
		}
		n.Kick(0)
		select {
		case <-p.done:
			back++
		case <-p.lost:
			t.Fatalf("controller lost: %v", n.c.Err())
		}
	}
	for _, c := range cmds {
		if c.Verdict.Class != blk.Good {
			t.Fatalf("%v of %d bytes at %d: %v", c.Op, c.Len, c.Off, c.Verdict)
		}
	}
}

func TestWhatWasWrittenIsReadWhateverWayTheDataGoes(t *testing.T) {
	for name, set := range map[string]func(s *scripted, c *Config){
		"plain":     func(*scripted, *Config) {},
		"digests":   func(_ *scripted, c *Config) { c.HeaderDigest, c.DataDigest = true, true },
		"alignment": func(s *scripted, c *Config) { s.resp.Align, c.DataDigest = 31, true },
		"nothing in capsules, small H2CData": func(s *scripted, c *Config) {
			s.id.CapsuleUnits, s.resp.MaxH2CData = 4, 4096
		},
		"queues": func(_ *scripted, c *Config) { c.Queues = 4 },
	} {
		t.Run(name, func(t *testing.T) {
			s := newScripted(t)
			cfg := s.settings()
			set(s, &cfg)
			_, n, p := s.opened(cfg)
			for _, size := range []int{512, 4096, 8192, 128 << 10, 1 << 20} {
				want := pattern(size, byte(size>>9))
				got := make([]byte, size)
				third := size / 1024 * 512
				p.finish(t, n, &blk.Command{Op: blk.Write, Off: 1 << 20, Len: uint32(size), Vec: [][]byte{want[:third], want[third:]}})
				p.finish(t, n, &blk.Command{Op: blk.Read, Off: 1 << 20, Len: uint32(size), Buf: got})
				if !bytes.Equal(got, want) {
					t.Fatalf("%d bytes differ", size)
				}
			}
			p.finish(t, n, &blk.Command{Op: blk.WriteZeroes, Off: 1 << 20, Len: 8192}, &blk.Command{Op: blk.Flush},
				&blk.Command{Op: blk.Trim, Off: 4 << 20, Len: 1 << 20})
			if s.mem[1<<20] != 0 {
				t.Error("not zeroed")
			}
		})
	}
}

func TestAControllerThatShutsDownAcknowledges(t *testing.T) {
	s := newScripted(t)
	c, _, p := s.opened(s.settings())
	if err := c.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-c.Done()
	if lost := <-p.lost; len(lost) != 0 || nvme.ParseConfig(s.config).Shutdown != nvme.ShutdownNormal {
		t.Errorf("%d lost, CC %#x", len(lost), s.config)
	}
}

func TestALostConnectionLosesTheControllerOnce(t *testing.T) {
	s := newScripted(t)
	cfg := s.settings()
	cfg.Queues = 3
	s.io = func(*scriptedQueue, *nvme.Command, []byte) bool { return true } // never answered
	c, n, p := s.opened(cfg)
	for i := range 9 {
		n.Submit(&blk.Command{Op: blk.Write, Off: uint64(i) << 12, Len: 4096, Buf: make([]byte, 4096)}, i)
	}
	for i := range 2 { // what went to the third queue is not sent
		n.Kick(i)
	}
	s.mu.Lock()
	s.conns[2].Close()
	s.mu.Unlock()
	lost := <-p.lost
	<-c.Done()
	sent := 0
	for _, c := range lost {
		if c.Verdict.Class != blk.PathLost {
			t.Errorf("%v", c.Verdict)
		}
		if c.Sent {
			sent++
		}
	}
	if len(lost) != 9 || sent < 6 || n.Inflight() != 0 || len(p.lost) != 0 {
		t.Errorf("%d lost, %d of them sent, %d in flight", len(lost), sent, n.Inflight())
	}
}
