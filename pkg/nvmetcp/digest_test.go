package nvmetcp

import (
	"bytes"
	"io"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	"github.com/csi-mpath/csi-mpath/pkg/nvmetcp/pdu"
)

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
