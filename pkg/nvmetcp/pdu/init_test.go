package pdu

import (
	"errors"
	"testing"
)

func icResp(p ICResp) []byte {
	b := make([]byte, InitLen)
	p.Put(b)
	return b
}

func TestB01ImpossibleMAXH2CDATAIsRefused(t *testing.T) {
	for _, c := range []struct {
		max uint32
		ok  bool
	}{{0, false}, {4095, false}, {4096, true}, {4098, false}, {4100, true}, {128 << 10, true}, {0xFFFFFFFC, true}, {0xFFFFFFFF, false}} {
		var p ICResp
		err := p.Decode(icResp(ICResp{MaxH2CData: c.max}))
		if (err == nil) != c.ok || c.ok && p.MaxH2CData != c.max {
			t.Errorf("MAXH2CDATA %d: %+v, %v", c.max, p, err)
		}
		var f *Fault
		if err != nil && (!errors.As(err, &f) || f.Status != UnsupportedParameter || f.Info != 12) {
			t.Errorf("MAXH2CDATA %d: %v", c.max, err)
		}
	}
}

func TestB05DigestsOtherThanAskedForAreRefused(t *testing.T) {
	for i := range 16 {
		req := ICReq{HeaderDigest: i&1 != 0, DataDigest: i&2 != 0, Align: 5}
		resp := ICResp{HeaderDigest: i&4 != 0, DataDigest: i&8 != 0, Align: 2, MaxH2CData: 4096}
		send, receive, err := resp.Accept(&req)
		if same := i&3 == i>>2; (err == nil) != same {
			t.Errorf("asked %+v, got %+v: %v", req, resp, err)
		}
		if err == nil && (send != Layout{req.HeaderDigest, req.DataDigest, 2} || receive != Layout{req.HeaderDigest, req.DataDigest, 5}) {
			t.Errorf("send %+v, receive %+v", send, receive)
		}
	}
}

func TestInitPDUsThatWeDoNotUnderstandAreRefused(t *testing.T) {
	for _, c := range []struct {
		at  int
		v   byte
		inf uint32
	}{{8, 1, 8}, {9, 1, 8}, {10, 32, 10}, {11, 4, 11}} {
		b := icResp(ICResp{MaxH2CData: 4096})
		b[c.at] = c.v
		var f *Fault
		if err := new(ICResp).Decode(b); !errors.As(err, &f) || f.Status != UnsupportedParameter || f.Info != c.inf {
			t.Errorf("byte %d = %d: %v", c.at, c.v, err)
		}
	}
	if new(ICResp).Decode(icResp(ICResp{MaxH2CData: 4096})[:127]) == nil || new(ICReq).Decode(icResp(ICResp{})) == nil {
		t.Error("a short or another PDU is understood")
	}
}

func TestInitRequestsRoundTrip(t *testing.T) {
	b := make([]byte, InitLen)
	for _, p := range []ICReq{{MaxR2T: 1}, {Align: 31, HeaderDigest: true, MaxR2T: 1 << 31}, {DataDigest: true, MaxR2T: 0xFFFFFFFF}} {
		var q ICReq
		p.Put(b)
		if err := q.Decode(b); err != nil || q != p {
			t.Errorf("%+v became %+v, %v", p, q, err)
		}
	}
	(&ICReq{}).Put(b)
	if get32(b[12:]) != 0 {
		t.Error("no R2T at all was asked for")
	}
}
