package iscsi

import (
	"bytes"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
)

// FuzzFullFeature feeds what a hostile target may send, cut as it likes, with
// the sender stopped anywhere in its batch. No command may come back twice or
// never, and no byte outside a read's buffer may change.
func FuzzFullFeature(f *testing.F) {
	for _, digest := range []bool{false, true} {
		p := fuzzParams(digest)
		r := newRig(f, p)
		cmds := fuzzCommands()
		r.submit(cmds...)
		r.take()
		rd, wr := cmds[0], cmds[1]
		for _, s := range [][]byte{
			r.dataIn(rd.Tag, rd.Buf, 1000), r.dataIn(rd.Tag, rd.Buf, 1<<20), r.good(wr.Tag), r.r2t(wr.Tag, 9, 0, 8192, 4096),
			append(r.r2t(wr.Tag, 9, 0, 8192, 12288), r.good(wr.Tag)...), r.check(rd.Tag, scsi.Sense{Key: 6, ASC: 0x29}),
			r.wire(&pdu.NOPIn{ITT: pdu.NoTag, TTT: 5, Window: r.window(false)}, []byte("ping")),
			r.wire(&pdu.Async{LUN: 1 << 48, Event: 1, Param3: 1, Window: r.window(true)}, nil),
			r.wire(&pdu.Reject{Reason: 4, Window: r.window(true)}, r.good(1)),
			r.wire(&pdu.TextResponse{ITT: 1}, make([]byte, 150<<10)),
			append(r.good(cmds[2].Tag), r.good(cmds[3].Tag)...),
		} {
			f.Add(s, uint16(7), uint16(3), digest)
			f.Add(s, uint16(60000), uint16(9000), digest)
		}
	}
	f.Fuzz(func(t *testing.T, stream []byte, cut, taken uint16, digest bool) {
		r := newRig(t, fuzzParams(digest))
		var guards [][]byte
		cmds := fuzzCommands()
		for _, c := range cmds[:2] {
			all := bytes.Repeat([]byte{0xa5}, int(c.Len)+64)
			c.Buf = all[32 : 32+c.Len : 32+c.Len]
			guards = append(guards, all)
		}
		r.submit(cmds...)
		if iov := r.m.Gather(); len(iov) > 0 {
			r.m.Accept(min(int(taken), len(bytesOf(iov))))
		}
		err := r.feed(stream, max(int(cut), 1))
		if err == nil {
			r.m.CompleteEarly()
			for iov := r.m.Gather(); len(iov) > 0; iov = r.m.Gather() {
				r.m.Accept(len(bytesOf(iov)))
			}
			r.m.CompleteEarly()
		}
		r.m.lose(*r.m.luns.Load(), ErrViolation)
		back := map[*blk.Command]int{}
		for _, c := range append(append([]*blk.Command{}, r.sink[0].done...), r.sink[0].lost[0]...) {
			back[c]++
		}
		for i, c := range cmds {
			if back[c] != 1 {
				t.Fatalf("command %d came back %d times", i, back[c])
			}
		}
		for i, all := range guards {
			if bytes.Count(all[:32], []byte{0xa5})+bytes.Count(all[len(all)-32:], []byte{0xa5}) != 64 {
				t.Fatalf("bytes outside buffer %d changed", i)
			}
			if i == 1 && bytes.Count(all, []byte{0xa5}) != len(all) {
				t.Fatal("the payload of a write changed")
			}
		}
		if cmds[0].Verdict.Class == blk.Good && cmds[0].Moved != cmds[0].Len {
			t.Fatal("a short read is good")
		}
	})
}

func fuzzParams(digest bool) Params {
	p := defaultParams()
	p.Layout = pdu.Layout{HeaderDigest: digest, DataDigest: digest}
	p.MaxSend, p.FirstBurst, p.MaxOutstandingR2T = 10000, 8192, 2
	return p
}

func fuzzCommands() []*blk.Command {
	return []*blk.Command{read(0, 4096), write(8192, 40960), {Op: blk.Flush}, {Op: blk.WriteZeroes, Len: 4096}}
}
