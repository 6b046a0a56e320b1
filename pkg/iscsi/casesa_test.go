package iscsi

import (
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
)

// scripted answers a connection's login as legs say, and closes it after them; a leg
// without transit, text and class closes it before.
func scripted(c net.Conn, legs []leg, asked func(keys pdu.Keys)) {
	for i, g := range legs {
		header, data, err := readPDU(c, pdu.DefaultRecvDataSegment)
		if err != nil {
			return
		}
		keys, _ := pdu.ParseKeys(data)
		asked(keys)
		if g.text == "" && g.class == 0 && !g.transit {
			return
		}
		var q pdu.LoginRequest
		_ = q.Decode(header)
		text := segment(g.text)
		h := pdu.LoginResponse{Transit: g.transit, CSG: g.csg, NSG: g.nsg, ISID: q.ISID, TSIH: g.tsih, DataLen: len(text),
			Window: pdu.Window{StatSN: uint32(i), ExpCmdSN: 1, MaxCmdSN: 32}, StatusClass: g.class, StatusDetail: g.detail}
		b := make([]byte, pdu.HeaderLen)
		h.Put(b)
		_, _ = c.Write(append(append(b, text...), make([]byte, pdu.Pad(len(text)))...))
	}
}

// a target that compares the whole of CHAP_A with "5" gets one more login, with
// MD5 alone; never a third, and none where the secret is wrong.
func TestA01ATargetThatCannotReadAListIsOfferedMD5Alone(t *testing.T) {
	method := leg{text: "AuthMethod=CHAP"}
	refused, closed := leg{class: 2, detail: 1}, leg{}
	challenge := leg{text: "CHAP_A=5 CHAP_I=1 CHAP_C=0x0102"}
	for name, c := range map[string]struct {
		first, second []leg
		want          string // the CHAP_A of each connection
		works         bool
	}{
		"refused":             {[]leg{method, refused}, []leg{method, challenge, noAuthDone, end}, "8,7,6,5 5", true},
		"closed":              {[]leg{method, closed}, []leg{method, challenge, noAuthDone, end}, "8,7,6,5 5", true},
		"refused again":       {[]leg{method, refused}, []leg{method, refused}, "8,7,6,5 5", false},
		"7 is SHA-1":          {[]leg{method, {text: "CHAP_A=7 CHAP_I=1 CHAP_C=0x0102"}, refused}, []leg{method, challenge, noAuthDone, end}, "8,7,6,5 5", true},
		"the secret is wrong": {[]leg{method, challenge, refused}, nil, "8,7,6,5", false},
	} {
		var n atomic.Int32
		var mu sync.Mutex // of offers
		var offers []string
		addr := portal(t, func(conn net.Conn) {
			legs := c.first
			if n.Add(1) > 1 {
				legs = c.second
			}
			scripted(conn, legs, func(k pdu.Keys) {
				mu.Lock()
				defer mu.Unlock()
				if a, ok := k.Get("CHAP_A"); ok {
					offers = append(offers, a)
				}
			})
		})
		cfg := *chapConfig(false)
		cfg.Portal = addr
		s, err := Dial(testCtx(t), cfg)
		if err == nil {
			s.Abort(errTest)
			<-s.Done()
		}
		mu.Lock()
		got := strings.Join(offers, " ")
		mu.Unlock()
		if (err == nil) != c.works || got != c.want {
			t.Errorf("%s: offered %q: %v", name, got, err)
		}
		if err != nil && !errors.As(err, new(*LoginError)) {
			t.Errorf("%s: %v is no refusal", name, err)
		}
	}
}

// noAuthDone ends the security stage.
var noAuthDone = leg{transit: true, nsg: pdu.StageOperational}
