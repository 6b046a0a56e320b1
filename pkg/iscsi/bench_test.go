package iscsi

import (
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
)

// BenchmarkMachine is the machine's own cost of one 4 KiB I/O at depth 32:
// submit, encode, decode, copy, complete. No socket.
func BenchmarkMachine(b *testing.B) {
	for name, op := range map[string]blk.Op{"read": blk.Read, "write": blk.Write} {
		b.Run(name, func(b *testing.B) {
			r := newRig(b, defaultParams())
			r.sink[0].done = make([]*blk.Command, 0, 64)
			var cmds []*blk.Command
			for i := range 32 {
				cmds = append(cmds, &blk.Command{Op: op, Off: uint64(i) << 12, Len: 4096, Buf: make([]byte, 4096)})
			}
			stream := make([]byte, 32*(4096+pdu.HeaderLen))
			b.ReportAllocs()
			for b.Loop() {
				r.sink[0].done = r.sink[0].done[:0]
				r.maxC += 32
				for _, c := range cmds {
					r.luns[0].Submit(c, 0)
				}
				for iov := r.m.Gather(); len(iov) > 0; iov = r.m.Gather() {
					n := 0
					for i := range iov {
						n += int(iov[i].Len)
					}
					r.m.Accept(n)
				}
				n := 0
				for _, c := range cmds {
					n += r.putAnswer(stream[n:], c)
				}
				for s := stream[:n]; len(s) > 0; {
					x, y := r.m.In.Space()
					k := copy(x, s)
					k += copy(y, s[k:])
					_ = r.m.In.Fed(k)
					r.m.EndBatch()
					s = s[k:]
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/32, "ns/io")
		})
	}
}
