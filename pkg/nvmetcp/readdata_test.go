package nvmetcp

import (
	"bytes"
	"testing"
	"testing/synctest"

	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	"github.com/csi-mpath/csi-mpath/pkg/nvmetcp/pdu"
)

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

// Whatever the controller calls it, data that did not come is no success, and
// data that nobody asked for lands nowhere.
func TestB03ShortOrStrayDataEndsTheController(t *testing.T) {
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
		"more after the last": func(q *scriptedQueue, d *pdu.Data, b []byte) {
			first := *d
			first.Len, first.Success = 512, false
			q.data(&first, b[:512])
			d.Offset, d.Len = d.Offset+512, d.Len-512
			q.data(d, b[512:])
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *scripted) {
				s.io = pieces(end)
				c, n, w := s.opened(s.settings())
				buf := bytes.Repeat([]byte{0xEE}, 32<<10)
				cmd := newRead(0, 16<<10)
				cmd.Buf = buf[:16<<10]
				start(t, n, cmd)
				endsForViolation(t, c, w, cmd)
				if !bytes.Equal(buf[16<<10:], bytes.Repeat([]byte{0xEE}, 16<<10)) {
					t.Error("something landed behind the buffer")
				}
			})
		})
	}
}
