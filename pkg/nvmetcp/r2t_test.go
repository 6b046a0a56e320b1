package nvmetcp

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	"github.com/csi-mpath/csi-mpath/pkg/nvmetcp/pdu"
)

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
				data := pattern(128<<10, 1)
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
		"longer than the data": func(q *scriptedQueue, c *nvme.Command) {
			q.ask(&pdu.R2T{CID: c.CID, Tag: 1, Len: size + 4096})
		},
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
