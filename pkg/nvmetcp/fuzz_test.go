package nvmetcp

import (
	"fmt"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	"github.com/csi-mpath/csi-mpath/pkg/nvmetcp/pdu"
)

func FuzzQueue(f *testing.F) {
	r := newRig(f, pdu.Layout{})
	a, w := newRead(0, 4096), newWrite(0, pattern(64<<10, 7))
	r.submit(a, w)
	for _, b := range [][]byte{r.c2h(pdu.Data{CID: uint16(a.Tag), Last: true, Success: true}, make([]byte, 4096)),
		r.r2t(w.Tag, 1, 0, 64<<10), r.response(w.Tag, nvme.ANAInaccessible), r.response(a.Tag, nvme.Success)} {
		f.Add(b, byte(0), uint16(len(b)))
		f.Add(b, byte(3), uint16(5))
	}
	f.Fuzz(func(t *testing.T, b []byte, kind byte, cut uint16) {
		l := pdu.Layout{HeaderDigest: kind&1 != 0, DataDigest: kind&2 != 0, Align: kind >> 3}
		var outcome [2]string
		for i, n := range []int{len(b), int(cut) + 1} {
			r := newRig(t, l)
			cmds := []*blk.Command{newRead(0, 4096), newWrite(0, pattern(64<<10, 7)), {Op: blk.Trim, Len: 512}, newRead(0, 512)}
			r.submit(cmds...)
			r.take()
			err := r.feed(b, max(n, 1))
			if err == nil {
				drain(r.q)
				r.q.CompleteEarly()
			}
			r.n.shut()
			r.n.lost(ErrViolation)
			if len(r.sink.done)+len(r.sink.lost) != len(cmds) || r.n.Inflight() != 0 {
				t.Fatalf("%d completed, %d lost", len(r.sink.done), len(r.sink.lost))
			}
			outcome[i] = fmt.Sprint(err)
			for _, c := range cmds {
				outcome[i] += fmt.Sprint(c.Verdict, c.Moved)
			}
		}
		if outcome[0] != outcome[1] {
			t.Fatalf("whole: %s\npieces of %d: %s", outcome[0], int(cut)+1, outcome[1])
		}
	})
}

func FuzzGreeting(f *testing.F) {
	b := make([]byte, pdu.InitLen)
	(&pdu.ICResp{MaxH2CData: 4096}).Put(b)
	f.Add(b)
	f.Add((&pdu.TermReq{FromController: true, Status: 1}).Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		host, controller := newPair()
		defer host.Close()
		_, _ = controller.Write(b)
		_ = controller.Close()
		resp, err := greet(host, &pdu.ICReq{MaxR2T: 1})
		if err == nil && (resp.MaxH2CData < 4096 || resp.MaxH2CData%4 != 0) {
			t.Fatalf("%+v", resp)
		}
	})
}
