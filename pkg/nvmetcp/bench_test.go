package nvmetcp

import (
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	"github.com/csi-mpath/csi-mpath/pkg/nvmetcp/pdu"
)

func TestASteadyStateAllocatesNothing(t *testing.T) {
	for name, l := range layouts() {
		r := newRig(t, l)
		r.sink.done = make([]*blk.Command, 0, 64)
		rd, wr, big := newRead(0, 4096), newWrite(0, pattern(4096, 7)), newWrite(8192, pattern(64<<10, 7))
		var stream []byte
		round := func() {
			r.sink.done = r.sink.done[:0]
			r.n.Submit(rd, 0)
			r.n.Submit(wr, 0)
			r.n.Submit(big, 0)
			drain(r.q)
			stream = stream[:4096+3*pdu.MaxHeader]
			n := putAnswers(r.q, stream, rd, wr, big)
			for s := stream[:n]; len(s) > 0; {
				x, y := r.q.In.Space()
				k := copy(x, s)
				k += copy(y, s[k:])
				if err := r.q.In.Fed(k); err != nil {
					t.Fatal(err)
				}
				s = s[k:]
			}
			drain(r.q)
			n = putResponse(r.q, stream, big)
			x, _ := r.q.In.Space()
			_ = r.q.In.Fed(copy(x, stream[:n]))
			r.q.EndBatch()
			if len(r.sink.done) != 3 {
				t.Fatalf("%d of 3 done", len(r.sink.done))
			}
		}
		stream = make([]byte, 4096+3*pdu.MaxHeader)
		round()
		for range 100 { // every tag has what it needs once
			round()
		}
		if n := testing.AllocsPerRun(200, round); n >= 1 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func drain(q *queue) {
	for iov := q.Gather(); len(iov) > 0; iov = q.Gather() {
		n := 0
		for i := range iov {
			n += int(iov[i].Len)
		}
		q.Accept(n)
	}
}

// putAnswers answers a read and a write of 4 KiB, and asks for a large write.
func putAnswers(q *queue, b []byte, rd, wr, big *blk.Command) int {
	d := pdu.Data{CID: uint16(rd.Tag), Len: 4096, Last: true, Success: true}
	n := d.PutC2H(b, q.recv)
	n += copy(b[n:], wr.Buf)
	n += q.recv.PutTrailer(b[n:], 4096, pdu.CRC(0, wr.Buf))
	n += putResponse(q, b[n:], wr)
	p := pdu.R2T{CID: uint16(big.Tag), Len: big.Len}
	return n + p.Put(b[n:], q.recv)
}

func putResponse(q *queue, b []byte, c *blk.Command) int {
	a := nvme.Completion{CID: uint16(c.Tag)}
	a.Put(pdu.ResponseSpace(b))
	return q.recv.PutCapsuleResp(b)
}

// BenchmarkQueue is the codec's own cost of one 4 KiB I/O at depth 32: submit,
// encode, decode, copy, complete. No socket.
func BenchmarkQueue(b *testing.B) {
	for name, op := range map[string]blk.Op{"read": blk.Read, "write": blk.Write} {
		b.Run(name, func(b *testing.B) {
			r := newRig(b, pdu.Layout{})
			r.sink.done = make([]*blk.Command, 0, 64)
			var cmds []*blk.Command
			for i := range 32 {
				cmds = append(cmds, &blk.Command{Op: op, Off: uint64(i) << 12, Len: 4096, Buf: make([]byte, 4096)})
			}
			stream := make([]byte, 32*(4096+2*pdu.MaxHeader))
			b.ReportAllocs()
			for b.Loop() {
				r.sink.done = r.sink.done[:0]
				r.submit(cmds...)
				drain(r.q)
				n := 0
				for _, c := range cmds {
					if op == blk.Read {
						d := pdu.Data{CID: uint16(c.Tag), Len: 4096, Last: true, Success: true}
						n += d.PutC2H(stream[n:], r.q.recv) + 4096
					} else {
						n += putResponse(r.q, stream[n:], c)
					}
				}
				for s := stream[:n]; len(s) > 0; {
					x, y := r.q.In.Space()
					k := copy(x, s)
					k += copy(y, s[k:])
					_ = r.q.In.Fed(k)
					r.q.EndBatch()
					s = s[k:]
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/32, "ns/io")
		})
	}
}
