package iscsi

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
)

// inPieces cuts a command's buffer into pieces of whole blocks.
func inPieces(rng *rand.Rand, c *blk.Command) *blk.Command {
	d := &blk.Command{Op: c.Op, Off: c.Off, Len: c.Len}
	for b := c.Buf[:c.Len]; len(b) > 0; {
		n := min(len(b), 512*(1+rng.IntN(16)))
		d.Vec = append(d.Vec, b[:n:n])
		b = b[n:]
	}
	return d
}

func TestAWriteInPiecesSendsWhatAFlatOneSends(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, l := range layouts {
		for range 40 {
			p := defaultParams()
			p.Layout, p.MaxSend = l, []uint32{512, 1000, 8192, 64 << 10}[rng.IntN(4)]
			p.ImmediateData, p.InitialR2T = rng.IntN(2) == 0, rng.IntN(2) == 0
			flat := write(0, 512*(1+rng.IntN(256)))
			var streams [2][]byte
			for i, c := range []*blk.Command{flat, inPieces(rng, flat)} {
				r := newRig(t, p)
				r.submit(c)
				got := make([]byte, c.Len)
				moved := r.collect(got, r.take())
				for sn := uint32(0); moved < int(c.Len); sn++ {
					n := min(p.MaxBurst, c.Len-uint32(moved))
					if err := r.feed(r.r2t(c.Tag, 7+sn, sn, uint32(moved), n)); err != nil {
						t.Fatal(err)
					}
					moved += r.collect(got, r.take())
				}
				streams[i] = got
				if c.Tx.Load() != 0 {
					t.Fatal("the payload is still referred to")
				}
			}
			if !bytes.Equal(streams[0], streams[1]) || !bytes.Equal(streams[0], flat.Buf[:flat.Len]) {
				t.Fatalf("layout %+v, MaxSend %d: other bytes", l, p.MaxSend)
			}
		}
	}
}

func TestAReadLandsInItsPiecesHoweverItArrives(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, l := range layouts {
		for range 60 {
			p := defaultParams()
			p.Layout = l
			r := newRig(t, p)
			n := 512 * (1 + rng.IntN(200))
			buf := make([]byte, n)
			c := inPieces(rng, &blk.Command{Op: blk.Read, Len: uint32(n), Buf: buf})
			r.submit(c)
			r.take()
			want := make([]byte, n)
			for i := range want {
				want[i] = byte(rng.Uint32())
			}
			var stream []byte
			for at, sn := 0, uint32(0); at < n; sn++ {
				k := min(n-at, 1+rng.IntN(64<<10))
				last := at+k == n
				stream = append(stream, r.wire(&pdu.DataIn{Final: last, HasStatus: last, Status: scsi.StatusGood, ITT: c.Tag,
					TTT: pdu.NoTag, Window: r.window(last), DataSN: sn, Offset: uint32(at)}, want[at:at+k])...)
				at += k
			}
			var sizes []int
			for range 50 {
				sizes = append(sizes, 1+rng.IntN([]int{3, 600, 9000, 1 << 18}[rng.IntN(4)]))
			}
			if err := r.feed(stream, append(sizes, 1<<18)...); err != nil {
				t.Fatal(err)
			}
			if len(r.sink[0].done) != 1 || c.Verdict.Class != blk.Good || !bytes.Equal(buf, want) {
				t.Fatalf("layout %+v: %d done, %v, or other data", l, len(r.sink[0].done), c.Verdict)
			}
		}
	}
}
