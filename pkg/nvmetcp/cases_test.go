package nvmetcp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	"github.com/csi-mpath/csi-mpath/pkg/nvmetcp/pdu"
)

// bubble runs a test of a scripted controller in virtual time.
func bubble(t *testing.T, f func(t *testing.T, s *scripted)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newScripted(t)
		f(t, s)
		s.over()
	})
}

func newWrite(off uint64, b []byte) *blk.Command {
	return &blk.Command{Op: blk.Write, Off: off, Len: uint32(len(b)), Buf: b}
}

func newRead(off uint64, n int) *blk.Command {
	return &blk.Command{Op: blk.Read, Off: off, Len: uint32(n), Buf: make([]byte, n)}
}

// start submits a command and sends it.
func start(t *testing.T, n *Namespace, cmds ...*blk.Command) {
	t.Helper()
	for _, c := range cmds {
		if !n.Submit(c, 0) {
			t.Fatalf("%v of %d bytes was not taken", c.Op, c.Len)
		}
	}
	n.Kick(0)
}

// outcome waits for a command's end: its verdict, and whether it came back in Lost.
func (p *patient) outcome(t *testing.T) (c *blk.Command, lost bool) {
	t.Helper()
	select {
	case c = <-p.done:
	case l := <-p.lost:
		if len(l) != 1 {
			t.Fatalf("%d commands were lost", len(l))
		}
		return l[0], true
	}
	return c, false
}

// endsForViolation wants the controller to end for a violation, and its one command to
// come back lost.
func endsForViolation(t *testing.T, c *Controller, w *patient, sent *blk.Command) {
	t.Helper()
	got, lost := w.outcome(t)
	if got != sent || !lost {
		t.Fatalf("the command ended with %+v", got.Verdict)
	}
	<-c.Done()
	if !errors.Is(c.Err(), ErrViolation) {
		t.Errorf("the controller ended with %v", c.Err())
	}
}

func TestB01AWriteIsCutToMAXH2CDATA(t *testing.T) {
	for _, digests := range []bool{false, true} {
		t.Run(fmt.Sprint("digests ", digests), func(t *testing.T) {
			bubble(t, func(t *testing.T, s *scripted) {
				s.resp.MaxH2CData, s.id.CapsuleUnits = 4096, 4
				var seen []pdu.Data
				s.h2c = func(_ *scriptedQueue, d *pdu.Data, _ []byte) bool { seen = append(seen, *d); return false }
				cfg := s.settings()
				cfg.HeaderDigest, cfg.DataDigest = digests, digests
				_, n, w := s.opened(cfg)
				data := pattern(128 << 10, 1)
				w.finish(t, n, newWrite(1<<20, data))
				if !bytes.Equal(s.mem[1<<20:][:len(data)], data) {
					t.Error("other data arrived")
				}
				if len(seen) != 32 {
					t.Fatalf("%d H2CData", len(seen))
				}
				for i, d := range seen {
					if d.Len != 4096 || d.Offset != uint32(i)*4096 || d.Last != (i == 31) || d.Tag != seen[0].Tag {
						t.Errorf("H2CData %d: %+v", i, d)
					}
				}
			})
		})
	}
}

func TestB01AnImpossibleMAXH2CDATAEndsTheConnect(t *testing.T) {
	for _, most := range []uint32{0, 4095, 4098, 0xFFFFFFFF} {
		bubble(t, func(t *testing.T, s *scripted) {
			s.resp.MaxH2CData = most
			if c, err := Dial(t.Context(), s.settings()); !errors.Is(err, ErrViolation) {
				t.Errorf("MAXH2CDATA %d: %v, %v", most, c, err)
			}
		})
	}
}

// What a controller says to a write of 64 KiB, or to a read of 4 KiB.
func TestB02ABadR2TEndsTheController(t *testing.T) {
	const size = 64 << 10
	for name, ask := range map[string]func(q *scriptedQueue, c *nvme.Command){
		"for nothing":  func(q *scriptedQueue, c *nvme.Command) { q.ask(&pdu.R2T{CID: c.CID, Tag: 1}) },
		"past the end": func(q *scriptedQueue, c *nvme.Command) { q.ask(&pdu.R2T{CID: c.CID, Tag: 1, Offset: 4096, Len: size}) },
		"far past the end": func(q *scriptedQueue, c *nvme.Command) {
			q.ask(&pdu.R2T{CID: c.CID, Tag: 1, Offset: 1 << 31, Len: 1 << 31})
		},
		"not in order":       func(q *scriptedQueue, c *nvme.Command) { q.ask(&pdu.R2T{CID: c.CID, Tag: 1, Offset: 4096, Len: 4096}) },
		"of an unknown CID":  func(q *scriptedQueue, c *nvme.Command) { q.ask(&pdu.R2T{CID: c.CID + 1, Tag: 1, Len: 4096}) },
		"of no possible CID": func(q *scriptedQueue, _ *nvme.Command) { q.ask(&pdu.R2T{CID: 0xFFFF, Tag: 1, Len: 4096}) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *scripted) {
				s.io = func(q *scriptedQueue, c *nvme.Command, _ []byte) bool { ask(q, c); return true }
				s.h2c = func(_ *scriptedQueue, d *pdu.Data, _ []byte) bool { t.Errorf("the host sent %+v", d); return true }
				c, n, w := s.opened(s.settings())
				cmd := newWrite(0, pattern(size, 1))
				start(t, n, cmd)
				endsForViolation(t, c, w, cmd)
			})
		})
	}
}

func TestB02AnR2TForAReadEndsTheController(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted) {
		s.io = func(q *scriptedQueue, c *nvme.Command, _ []byte) bool {
			q.ask(&pdu.R2T{CID: c.CID, Tag: 1, Len: 4096})
			return true
		}
		c, n, w := s.opened(s.settings())
		cmd := newRead(0, 4096)
		start(t, n, cmd)
		endsForViolation(t, c, w, cmd)
	})
}

func TestB02AnR2TForWhatWasSentEndsTheController(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted) {
		sent := 0
		s.io = func(q *scriptedQueue, c *nvme.Command, _ []byte) bool {
			q.ask(&pdu.R2T{CID: c.CID, Tag: 1, Len: 32 << 10})
			return true
		}
		s.h2c = func(q *scriptedQueue, d *pdu.Data, b []byte) bool {
			if sent += len(b); sent == 32<<10 {
				q.ask(&pdu.R2T{CID: d.CID, Tag: 2, Offset: 4096, Len: 4096})
			}
			return true
		}
		c, n, w := s.opened(s.settings())
		cmd := newWrite(0, pattern(64<<10, 1))
		start(t, n, cmd)
		endsForViolation(t, c, w, cmd)
		if sent != 32<<10 {
			t.Errorf("%d bytes were sent", sent)
		}
	})
}

// The host's sender is stuck in the first: the second one is one too many.
func TestB02MoreR2TsThanTheHostAskedForEndTheController(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted) {
		most := uint32(0)
		s.init = func(_ *scriptedQueue, req *pdu.ICReq) bool { most = req.MaxR2T; return false }
		s.io = func(q *scriptedQueue, c *nvme.Command, _ []byte) bool {
			q.rx.full, q.silent = 4096, true
			for i := range most + 1 {
				q.ask(&pdu.R2T{CID: c.CID, Tag: uint16(i), Offset: i * (32 << 10), Len: 32 << 10})
			}
			return true
		}
		c, n, w := s.opened(s.settings())
		if most > 16 {
			t.Fatalf("the host takes %d R2Ts for one command", most)
		}
		cmd := newWrite(0, pattern(int(most+1)*(32<<10), 1))
		start(t, n, cmd)
		endsForViolation(t, c, w, cmd)
	})
}

// pieces answers a read in three C2HData; end makes the last of them and what follows.
func pieces(end func(q *scriptedQueue, d *pdu.Data, b []byte)) func(q *scriptedQueue, c *nvme.Command, _ []byte) bool {
	return func(q *scriptedQueue, c *nvme.Command, _ []byte) bool {
		b := q.s.mem[int(c.LBA())*512:][:c.SGL.Len]
		third := len(b) / 3 &^ 3
		q.data(&pdu.Data{CID: c.CID, Len: uint32(third)}, b[:third])
		q.data(&pdu.Data{CID: c.CID, Offset: uint32(third), Len: uint32(third)}, b[third:2*third])
		end(q, &pdu.Data{CID: c.CID, Offset: uint32(2 * third), Len: uint32(len(b) - 2*third), Last: true, Success: true}, b[2*third:])
		return true
	}
}

func TestB03DataWithSUCCESSCompletesTheRead(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted) {
		copy(s.mem, pattern(1<<20, 1))
		s.io = pieces(func(q *scriptedQueue, d *pdu.Data, b []byte) { q.data(d, b) })
		_, n, w := s.opened(s.settings())
		for off := uint64(0); off < 1<<20; off += 16 << 10 {
			cmd := newRead(off, 16<<10)
			w.finish(t, n, cmd)
			if !bytes.Equal(cmd.Buf, s.mem[off:][:16<<10]) {
				t.Fatalf("other data at %d", off)
			}
		}
	})
}

func TestB03SUCCESSWithoutLASTEndsTheController(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted) {
		s.io = pieces(func(q *scriptedQueue, d *pdu.Data, b []byte) { d.Last = false; q.data(d, b) })
		c, n, w := s.opened(s.settings())
		cmd := newRead(0, 16<<10)
		start(t, n, cmd)
		endsForViolation(t, c, w, cmd)
	})
}

func TestB03ASecondCompletionIsSeenAndCompletesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted) {
		copy(s.mem, pattern(16<<10, 1))
		s.io = pieces(func(q *scriptedQueue, d *pdu.Data, b []byte) {
			_, _ = q.Write(append(q.dataPDU(d, b), q.capsule(&nvme.Completion{CID: d.CID})...))
		})
		c, n, w := s.opened(s.settings())
		cmd := newRead(0, 16<<10)
		w.finish(t, n, cmd)
		if !bytes.Equal(cmd.Buf, s.mem[:16<<10]) {
			t.Error("other data")
		}
		synctest.Wait()
		if _, _, stale := c.Stats(); stale == 0 && c.Err() == nil {
			t.Error("the second completion was not seen")
		}
		if len(w.done) != 0 {
			t.Error("the command was completed twice")
		}
	})
}

// Whatever the controller calls it, data that did not come is no success.
func TestB03ShortDataIsNeverGood(t *testing.T) {
	for name, end := range map[string]func(q *scriptedQueue, d *pdu.Data, b []byte){
		"SUCCESS on less": func(q *scriptedQueue, d *pdu.Data, b []byte) { d.Len -= 512; q.data(d, b[:d.Len]) },
		"a capsule after two of three": func(q *scriptedQueue, d *pdu.Data, _ []byte) {
			q.respond(d.CID, 0, nvme.Success)
		},
		"a hole": func(q *scriptedQueue, d *pdu.Data, b []byte) {
			d.Offset, d.Len = d.Offset+512, d.Len-512
			q.data(d, b[512:])
		},
		"a piece twice": func(q *scriptedQueue, d *pdu.Data, b []byte) { d.Offset = 0; q.data(d, b) },
		"more than asked for": func(q *scriptedQueue, d *pdu.Data, b []byte) {
			d.Len += 512
			q.data(d, append(bytes.Clone(b), make([]byte, 512)...))
		},
		"far away": func(q *scriptedQueue, d *pdu.Data, b []byte) { d.Offset = 1 << 31; q.data(d, b) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *scripted) {
				s.io = pieces(end)
				c, n, w := s.opened(s.settings())
				cmd := newRead(0, 16<<10)
				start(t, n, cmd)
				got, lost := w.outcome(t)
				if got != cmd || !lost && got.Verdict.Class == blk.Good {
					t.Errorf("%+v, lost %v", got.Verdict, lost)
				}
				c.Abort(io.EOF)
			})
		})
	}
}

func TestB05ADigestThatIsNotGrantedIsRefused(t *testing.T) {
	for i := range 16 {
		bubble(t, func(t *testing.T, s *scripted) {
			s.init = func(q *scriptedQueue, req *pdu.ICReq) bool {
				q.greet(req, &pdu.ICResp{HeaderDigest: i&4 != 0, DataDigest: i&8 != 0, MaxH2CData: 8192})
				return true
			}
			cfg := s.settings()
			cfg.HeaderDigest, cfg.DataDigest = i&1 != 0, i&2 != 0
			c, err := Dial(t.Context(), cfg)
			if same := i&3 == i>>2; (err == nil) != same {
				t.Errorf("asked for %02b, got %02b: %v", i&3, i>>2, err)
			}
			if err == nil {
				c.Abort(io.EOF)
				<-c.Done()
			}
		})
	}
}

// withDigests asks for both digests.
func withDigests(s *scripted) Config {
	cfg := s.settings()
	cfg.HeaderDigest, cfg.DataDigest = true, true
	return cfg
}

func TestB05AFlippedBitInReadDataFailsTheCommandAlone(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted) {
		copy(s.mem, pattern(64<<10, 1))
		bad := true
		s.io = func(q *scriptedQueue, c *nvme.Command, _ []byte) bool {
			p := q.dataPDU(&pdu.Data{CID: c.CID, Len: c.SGL.Len, Last: true}, q.s.mem[:c.SGL.Len])
			if bad {
				p[len(p)/2] ^= 0x10
			}
			_, _ = q.Write(p)
			q.complete(c, 0, nvme.Success)
			return true
		}
		c, n, w := s.opened(withDigests(s))
		for _, size := range []int{512, 64 << 10} {
			bad = true
			cmd := newRead(0, size)
			start(t, n, cmd)
			got, lost := w.outcome(t)
			if lost || got.Verdict.Class != blk.Retry {
				t.Fatalf("%d bytes: %+v, lost %v, %v", size, got.Verdict, lost, c.Err())
			}
			bad = false
			w.finish(t, n, cmd)
			if !bytes.Equal(cmd.Buf, s.mem[:size]) {
				t.Fatal("other data")
			}
		}
	})
}

func TestB05AFlippedBitInAHeaderEndsTheController(t *testing.T) {
	for name, bad := range map[string]func(q *scriptedQueue, c *nvme.Command) []byte{
		"response": func(q *scriptedQueue, c *nvme.Command) []byte {
			p := q.capsule(&nvme.Completion{CID: c.CID})
			p[9] ^= 1
			return p
		},
		"data": func(q *scriptedQueue, c *nvme.Command) []byte {
			p := q.dataPDU(&pdu.Data{CID: c.CID, Len: c.SGL.Len, Last: true}, q.s.mem[:c.SGL.Len])
			p[13] ^= 1
			return p
		},
		"data digest flag missing": func(q *scriptedQueue, c *nvme.Command) []byte {
			return (&scriptedQueue{s: q.s, out: pdu.Layout{HeaderDigest: true}}).dataPDU(
				&pdu.Data{CID: c.CID, Len: c.SGL.Len, Last: true, Success: true}, q.s.mem[:c.SGL.Len])
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *scripted) {
				s.io = func(q *scriptedQueue, c *nvme.Command, _ []byte) bool { _, _ = q.Write(bad(q, c)); return true }
				c, n, w := s.opened(withDigests(s))
				cmd := newRead(0, 4096)
				start(t, n, cmd)
				endsForViolation(t, c, w, cmd)
			})
		})
	}
}

func TestB06DataGoesInTheCapsuleOnlyWhereItFits(t *testing.T) {
	for _, c := range []struct {
		units uint32
		most  int // bytes in capsule
	}{{0, 0}, {4, 0}, {260, 4096}, {8196, 128 << 10}, {260 + 256, 8192}} {
		t.Run(fmt.Sprint("IOCCSZ ", c.units), func(t *testing.T) {
			bubble(t, func(t *testing.T, s *scripted) {
				s.id.CapsuleUnits = c.units
				var sgl nvme.SGL
				capsule := 0
				s.io = func(_ *scriptedQueue, c *nvme.Command, data []byte) bool {
					sgl, capsule = c.SGL, len(data)
					return false
				}
				_, n, w := s.opened(s.settings())
				for _, size := range []int{512, 4096, 8192, 64 << 10} {
					data := pattern(size, 1)
					w.finish(t, n, newWrite(0, data))
					if !bytes.Equal(s.mem[:size], data) {
						t.Fatalf("%d bytes: other data", size)
					}
					if capsule > c.most || (sgl.Kind == nvme.SGLInCapsule) != (capsule > 0) || int(sgl.Len) != size || sgl.Offset != 0 {
						t.Errorf("%d bytes: %d in the capsule, %+v", size, capsule, sgl)
					}
					if size <= min(c.most, 4096) && capsule != size {
						t.Errorf("%d bytes would fit the capsule", size)
					}
				}
			})
		})
	}
}

func TestB06AnOffsetOfDataInCapsulesIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted) {
		s.id.DataOffset = 1
		if c, err := Dial(t.Context(), s.settings()); !errors.Is(err, ErrViolation) {
			t.Errorf("%v, %v", c, err)
		}
	})
}

func TestB07NoMoreCommandsThanTheQueueHolds(t *testing.T) {
	for _, c := range []struct {
		entries uint32 // MQES + 1
		maxcmd  uint16
		depth   int // asked for
	}{{128, 0, 32}, {16, 8, 128}, {16, 0, 128}, {128, 8, 128}, {3, 0, 128}, {128, 128, 128}} {
		t.Run(fmt.Sprintf("MQES %d MAXCMD %d depth %d", c.entries-1, c.maxcmd, c.depth), func(t *testing.T) {
			bubble(t, func(t *testing.T, s *scripted) {
				s.caps.MaxEntries, s.id.MaxCommands = c.entries, c.maxcmd
				held := map[uint16]nvme.Command{}
				var q *scriptedQueue
				s.io = func(on *scriptedQueue, c *nvme.Command, _ []byte) bool {
					if _, twice := held[c.CID]; twice {
						t.Errorf("CID %d is out twice", c.CID)
					}
					held[c.CID], q = *c, on
					return true
				}
				cfg := s.settings()
				cfg.QueueDepth = c.depth
				_, n, w := s.opened(cfg)
				for left := 200; left > 0; {
					for left > 0 && n.Submit(newRead(0, 512), 0) {
						left--
					}
					n.Kick(0)
					synctest.Wait()
					s.mu.Lock()
					checkQueue(t, s, q, c.depth)
					for _, h := range held {
						q.give(&h, s.mem[:512])
					}
					clear(held)
					s.mu.Unlock()
					synctest.Wait()
				}
				if len(w.done) != 200 || len(w.lost) != 0 {
					t.Errorf("%d of 200 came back", len(w.done))
				}
			})
		})
	}
}

// checkQueue holds an I/O queue against what the controller said.
func checkQueue(t *testing.T, s *scripted, q *scriptedQueue, depth int) {
	t.Helper()
	most := q.size
	if q.conn.Attributes&nvme.ConnectNoFlowControl == 0 {
		most-- // a queue is full with one entry free
	}
	if s.id.MaxCommands > 0 {
		most = min(most, int(s.id.MaxCommands))
	}
	if q.size > int(s.caps.MaxEntries) || q.most > most || q.most > depth || q.most == 0 {
		t.Fatalf("a queue of %d entries, %d commands at once: want at most %d entries, %d commands", q.size, q.most,
			s.caps.MaxEntries, min(most, depth))
	}
}
