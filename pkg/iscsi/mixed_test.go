package iscsi

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
)

// extended puts additional header segments of 4 x words bytes into a PDU.
func extended(l pdu.Layout, b []byte, words int) []byte {
	rest := b[l.DataStart(0):]
	out := append([]byte{}, b[:pdu.HeaderLen]...)
	out[4] = byte(words)
	out = append(out, make([]byte, 4*words)...)
	if l.HeaderDigest {
		out = binary.LittleEndian.AppendUint32(out, pdu.CRC(0, out))
	}
	return append(out, rest...)
}

// mixed is reads of all sizes, their answers interleaved with other PDUs.
type mixed struct {
	r      *rig
	rng    *rand.Rand
	cmds   []*blk.Command
	flat   [][]byte // what each read's pieces are of
	want   [][]byte
	at     []int
	sn     []uint32
	stream []byte
}

func (x *mixed) add(p putter, data []byte) {
	b := x.r.wire(p, data)
	if x.rng.IntN(8) == 0 {
		b = extended(x.r.m.p.Layout, b, x.rng.IntN(256))
	}
	x.stream = append(x.stream, b...)
}

func (x *mixed) read() {
	n := 512 * (1 + x.rng.IntN([]int{1, 8, 64, 700}[x.rng.IntN(4)]))
	buf, want := make([]byte, n), make([]byte, n)
	for i := range want {
		want[i] = byte(x.rng.Uint32())
	}
	c := &blk.Command{Op: blk.Read, Len: uint32(n), Buf: buf}
	if x.rng.IntN(3) == 0 {
		c = inPieces(x.rng, c)
	}
	x.cmds, x.flat, x.want, x.at, x.sn = append(x.cmds, c), append(x.flat, buf), append(x.want, want), append(x.at, 0), append(x.sn, 0)
	x.r.submit(c)
	x.r.take()
}

// answer adds a piece of one read's data; false: all is answered.
func (x *mixed) answer() bool {
	var open []int
	for i := range x.cmds {
		if x.at[i] < len(x.want[i]) {
			open = append(open, i)
		}
	}
	if len(open) == 0 {
		return false
	}
	i := open[x.rng.IntN(len(open))]
	left := len(x.want[i]) - x.at[i]
	k := min(left, 1+x.rng.IntN([]int{10, 5000, 40 << 10, 256 << 10}[x.rng.IntN(4)]))
	last := k == left
	x.add(&pdu.DataIn{Final: last, HasStatus: last, Status: scsi.StatusGood, ITT: x.cmds[i].Tag, TTT: pdu.NoTag,
		Window: x.r.window(last), DataSN: x.sn[i], Offset: uint32(x.at[i])}, x.want[i][x.at[i]:x.at[i]+k])
	x.at[i] += k
	x.sn[i]++
	switch x.rng.IntN(6) {
	case 0:
		x.add(&pdu.NOPIn{ITT: pdu.NoTag, TTT: pdu.NoTag, Window: x.r.window(false)}, make([]byte, x.rng.IntN(60<<10)))
	case 1: // of a tag that is not in use any more
		x.add(&pdu.DataIn{ITT: x.cmds[i].Tag ^ 1<<20, TTT: pdu.NoTag, Window: x.r.window(false)}, make([]byte, x.rng.IntN(100<<10)))
	}
	return true
}

func TestAMixedStreamLandsHoweverItArrives(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 5))
		p := defaultParams()
		p.Layout = layouts[rng.IntN(len(layouts))]
		x := &mixed{r: newRig(t, p), rng: rng}
		for range 1 + rng.IntN(12) {
			x.read()
		}
		for x.answer() {
		}
		sizes := make([]int, 3000)
		most := []int{60, 3000, 20000, 1 << 18}[rng.IntN(4)]
		for i := range sizes {
			sizes[i] = 1 + rng.IntN(most)
		}
		if err := x.r.feed(x.stream, append(sizes, 1<<18)...); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if n := len(x.r.sink[0].done); n != len(x.cmds) {
			t.Fatalf("seed %d: %d of %d done", seed, n, len(x.cmds))
		}
		for i, c := range x.cmds {
			if c.Verdict.Class != blk.Good || !bytes.Equal(x.flat[i], x.want[i]) {
				t.Fatalf("seed %d: read %d of %d bytes: %v, or other data", seed, i, c.Len, c.Verdict)
			}
		}
	}
}
