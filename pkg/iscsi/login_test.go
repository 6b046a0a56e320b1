package iscsi

import (
	"crypto/md5" //nolint:gosec // CHAP_A=5
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/iscsi/auth"
	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
)

// leg is one scripted Login Response.
type leg struct {
	text          string // keys, "A=1 B=2"
	transit, cont bool
	csg, nsg      uint8
	class, detail uint8
	tsih          uint16
	statSN        uint32
	wantKeys      string // prefix of keys the request before must have
	wantNoKeys    bool   // the request before must have none
	breaks        func(h *pdu.LoginResponse)
	opcode        byte
}

func segment(text string) []byte {
	var b []byte
	for _, p := range strings.Fields(text) {
		b = append(append(b, p...), 0)
	}
	return b
}

func loginConfig() *Config {
	c, err := Config{Portal: "192.0.2.1:3260", InitiatorName: "iqn.2001-04.com.example:i", TargetName: "iqn.2001-04.com.example:t",
		ISID: [6]byte{0x80, 1, 2, 3, 4, 5}}.withDefaults()
	if err != nil {
		panic(err)
	}
	return &c
}

// play runs a login against the script and checks what every request of ours
// must hold: one ISID, TSIH 0, one task tag, no key twice.
func play(t *testing.T, l *login, legs []leg) error {
	t.Helper()
	seen := map[string]bool{}
	out := l.start()
	for i, g := range legs {
		if out == nil {
			t.Fatalf("leg %d: the login ended before", i)
		}
		var q pdu.LoginRequest
		if err := q.Decode(out); err != nil {
			t.Fatal(err)
		}
		if q.ISID != l.cfg.ISID || q.TSIH != 0 || q.ITT != 0 || q.CmdSN != initialCmdSN || len(out) != pdu.HeaderLen+q.DataLen+pdu.Pad(q.DataLen) {
			t.Errorf("leg %d: %+v", i, q)
		}
		keys, err := pdu.ParseKeys(out[pdu.HeaderLen:][:q.DataLen])
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range keys {
			if seen[k.Key] {
				t.Errorf("leg %d: %s sent again", i, k.Key)
			}
			seen[k.Key] = true
		}
		if got := fmt.Sprint(keys); g.wantNoKeys && len(keys) > 0 || !strings.Contains(got, g.wantKeys) {
			t.Errorf("leg %d: keys %s, want %q", i, got, g.wantKeys)
		}
		h := pdu.LoginResponse{Transit: g.transit, Continue: g.cont, CSG: g.csg, NSG: g.nsg, ISID: q.ISID, TSIH: g.tsih,
			Window: pdu.Window{StatSN: g.statSN + uint32(i), ExpCmdSN: 1, MaxCmdSN: 32}, StatusClass: g.class, StatusDetail: g.detail}
		if g.breaks != nil {
			g.breaks(&h)
		}
		var b [pdu.HeaderLen]byte
		h.Put(b[:])
		if g.opcode != 0 {
			b[0] = g.opcode
		}
		if out, err = l.step(b[:], segment(g.text)); err != nil {
			return err
		}
	}
	if out != nil {
		t.Error("the login goes on")
	}
	return nil
}

var (
	noAuth = leg{text: "AuthMethod=None TargetPortalGroupTag=7", transit: true, csg: 0, nsg: 1, wantKeys: "InitiatorName"}
	end    = leg{transit: true, csg: 1, nsg: 3, tsih: 9}
)

func finish(text string) leg { g := end; g.text = text; return g }

const usual = "HeaderDigest=None DataDigest=None MaxConnections=1 InitialR2T=No ImmediateData=Yes MaxRecvDataSegmentLength=65536 " +
	"MaxBurstLength=262144 FirstBurstLength=65536 DefaultTime2Wait=2 DefaultTime2Retain=0 MaxOutstandingR2T=1 " +
	"DataPDUInOrder=Yes DataSequenceInOrder=Yes ErrorRecoveryLevel=0"

func TestALoginAgreesOnTheUsualValues(t *testing.T) {
	l := newLogin(loginConfig(), false)
	first := noAuth
	first.statSN = 0xffffffff // taken as it is, then wraps
	last := finish(usual)
	last.statSN = 0xffffffff
	if err := play(t, l, []leg{first, last}); err != nil {
		t.Fatal(err)
	}
	want := Params{ImmediateData: true, MaxRecv: offerMaxRecv, MaxSend: 65536, MaxBurst: 262144, FirstBurst: 65536,
		MaxOutstandingR2T: 1, Time2Wait: 2}
	if l.params != want || l.neg.tpgt != 7 || l.tsih != 9 || l.expStatSN != 1 || l.window.MaxCmdSN != 32 {
		t.Errorf("%+v, TPGT %d, TSIH %d, ExpStatSN %d", l.params, l.neg.tpgt, l.tsih, l.expStatSN)
	}
}

func TestAllOperationalKeysAreSent(t *testing.T) {
	l := newLogin(loginConfig(), false)
	l.start()
	for _, p := range strings.Fields(usual) {
		name, _, _ := strings.Cut(p, "=")
		if _, ok := l.neg.offers().Get(name); !ok {
			t.Errorf("%s is left out (A-08)", name)
		}
	}
}

func TestKeysNotUnderstoodHaveTheirDefault(t *testing.T) {
	l := newLogin(loginConfig(), false)
	if err := play(t, l, []leg{noAuth, finish("MaxOutstandingR2T=NotUnderstood FirstBurstLength=Irrelevant InitialR2T=Reject " +
		"MaxRecvDataSegmentLength=NotUnderstood X-com.vendor.foo=NotUnderstood")}); err != nil {
		t.Fatal(err)
	}
	if p := l.params; p.MaxOutstandingR2T != 1 || p.FirstBurst != 65536 || !p.InitialR2T || p.MaxSend != 8192 || p.MaxBurst != 262144 {
		t.Errorf("%+v", p)
	}
}

func TestKeysTheTargetStartsAreAnswered(t *testing.T) {
	l := newLogin(loginConfig(), false)
	if err := play(t, l, []leg{
		{text: "AuthMethod=None FirstBurstLength=32768 X-vendor.key=1", transit: false, csg: 0},
		{transit: true, csg: 0, nsg: 1, wantKeys: "FirstBurstLength 32768} {X-vendor.key NotUnderstood"},
		{text: "TargetAlias=foo TargetPortalGroupTag=1 IFMarker=No", csg: 1, wantKeys: "MaxBurstLength"},
		{transit: true, csg: 1, nsg: 3, tsih: 1, wantKeys: "[{IFMarker NotUnderstood}]"},
	}); err != nil {
		t.Fatal(err)
	}
	if l.params.FirstBurst != 32768 {
		t.Errorf("%+v", l.params)
	}
}

func TestMaxRecvDataSegmentLengthIsTakenFromAnyStage(t *testing.T) {
	for text, want := range map[string]uint32{"512": 512, "513": 513, "8190": 8190, "16777212": 16777212, "16777215": 16777215, "0x200": 512} {
		l := newLogin(loginConfig(), false)
		first := noAuth
		first.text += " MaxRecvDataSegmentLength=" + text
		if err := play(t, l, []leg{first, end}); err != nil || l.params.MaxSend != want {
			t.Errorf("%s: %v, %d", text, err, l.params.MaxSend)
		}
	}
	for _, bad := range []string{"511", "16777216", "0", "-1", "x"} {
		l := newLogin(loginConfig(), false)
		if err := play(t, l, []leg{noAuth, finish("MaxRecvDataSegmentLength=" + bad)}); !errors.Is(err, ErrViolation) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	l := newLogin(loginConfig(), false)
	first := noAuth
	first.text += " MaxRecvDataSegmentLength=512"
	if err := play(t, l, []leg{first, finish("MaxRecvDataSegmentLength=4096")}); err != nil || l.params.MaxSend != 4096 {
		t.Errorf("last one wins: %v, %d", err, l.params.MaxSend)
	}
}

func TestAnAnswerOutsideTheOfferIsRefused(t *testing.T) {
	for _, bad := range []string{"MaxBurstLength=2097152", "MaxBurstLength=100", "ErrorRecoveryLevel=1", "MaxConnections=2", "DefaultTime2Wait=1",
		"HeaderDigest=CRC32C", "DataPDUInOrder=No", "InitialR2T=Maybe", "InitialR2T=yes", "MaxOutstandingR2T=0", "FirstBurstLength=",
		"MaxBurstLength=4096 MaxBurstLength=4096", "TargetPortalGroupTag=70000"} {
		if err := play(t, newLogin(loginConfig(), false), []leg{noAuth, finish(bad)}); !errors.Is(err, ErrViolation) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	err := play(t, newLogin(loginConfig(), false), []leg{noAuth, {text: "MaxBurstLength=4096", csg: 1}, {text: "MaxBurstLength=8192", csg: 1}})
	if !errors.Is(err, ErrViolation) {
		t.Errorf("negotiated twice: %v", err)
	}
}

func TestDigestsAreDemandedOnlyWhereConfigured(t *testing.T) {
	cfg := loginConfig()
	cfg.HeaderDigest, cfg.DataDigest = DigestCRC32C, DigestCRC32C
	l := newLogin(cfg, false)
	if err := play(t, l, []leg{noAuth, finish("HeaderDigest=CRC32C DataDigest=CRC32C")}); err != nil || !l.params.HeaderDigest || !l.params.DataDigest {
		t.Errorf("%v %+v", err, l.params)
	}
	for _, text := range []string{"HeaderDigest=None DataDigest=CRC32C", "HeaderDigest=CRC32C DataDigest=Reject", ""} {
		if err := play(t, newLogin(cfg, false), []leg{noAuth, finish(text)}); err == nil {
			t.Errorf("%q: a digest that was demanded is off", text)
		}
	}
	l = newLogin(cfg, true)
	if keys := l.neg.offers(); keys[1].Key != "HeaderDigest" || keys[1].Value != "None" {
		t.Errorf("discovery offers %v (A-06)", keys[1])
	}
}

func TestLoginStatusesBecomeTypedErrors(t *testing.T) {
	for status, want := range map[[2]uint8]error{{2, 1}: ErrAuth, {2, 2}: ErrForbidden, {2, 3}: ErrNotFound, {2, 4}: ErrNotFound,
		{3, 0}: ErrUnavailable, {3, 1}: ErrUnavailable, {3, 2}: ErrUnavailable} {
		err := play(t, newLogin(loginConfig(), false), []leg{{class: status[0], detail: status[1]}})
		if !errors.Is(err, want) {
			t.Errorf("%v: %v", status, err)
		}
	}
	for text, want := range map[string]string{"10.0.0.2:3261,1": "10.0.0.2:3261", "[2001:db8::1]:3260": "[2001:db8::1]:3260",
		"[2001:db8::1]": "[2001:db8::1]:3260", "host.example": "host.example:3260", "10.0.0.2": "10.0.0.2:3260"} {
		var re *RedirectError
		err := play(t, newLogin(loginConfig(), false), []leg{{class: 1, detail: 2, text: "TargetAddress=" + text}})
		if !errors.As(err, &re) || re.Address != want || !re.Permanent {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, text := range []string{"", "TargetAddress=", "TargetAddress=:3260", "TargetAddress=a:b:c", "TargetAddress=10.0.0.1:0",
		"TargetAddress=10.0.0.1:70000", "TargetAddress=10.0.0.1,x", "TargetAddress=[10.0.0.1]:1", "TargetAddress=a/b"} {
		if err := play(t, newLogin(loginConfig(), false), []leg{{class: 1, detail: 1, text: text}}); !errors.Is(err, ErrViolation) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestALoginThatBreaksTheRulesEnds(t *testing.T) {
	for name, g := range map[string]leg{
		"another PDU":         {opcode: 0x20},
		"another tag":         {breaks: func(h *pdu.LoginResponse) { h.ITT = 1 }},
		"another version":     {breaks: func(h *pdu.LoginResponse) { h.VersionActive = 1 }},
		"another stage":       {csg: 1},
		"skips a stage":       {text: "AuthMethod=None", transit: true, csg: 0, nsg: 3},
		"T and C":             {text: "AuthMethod=None", transit: true, cont: true, nsg: 1},
		"garbage":             {text: "AuthMethod"},
		"unknown method":      {text: "AuthMethod=KRB5", transit: true, nsg: 1},
		"CHAP out of nowhere": {text: "AuthMethod=CHAP", transit: true, nsg: 1},
	} {
		if err := play(t, newLogin(loginConfig(), false), []leg{g}); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	noHandle := end
	noHandle.tsih = 0
	if err := play(t, newLogin(loginConfig(), false), []leg{noAuth, noHandle}); !errors.Is(err, ErrViolation) {
		t.Errorf("no TSIH: %v", err)
	}
	for _, again := range []leg{{csg: 1}, {csg: 1, cont: true, text: "A=1"}} {
		legs := []leg{noAuth}
		for range maxLoginLegs {
			legs = append(legs, again)
		}
		if err := play(t, newLogin(loginConfig(), false), legs); !errors.Is(err, ErrViolation) {
			t.Errorf("endless: %v", err)
		}
	}
}

func TestKeysOverSeveralPDUsAreJoined(t *testing.T) {
	l := newLogin(loginConfig(), false)
	out := l.start()
	step := func(h pdu.LoginResponse, data string) {
		t.Helper()
		var b [pdu.HeaderLen]byte
		h.Put(b[:])
		var err error
		if out, err = l.step(b[:], []byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	step(pdu.LoginResponse{Continue: true}, "AuthMethod=No")
	var q pdu.LoginRequest
	if q.Decode(out) != nil || q.DataLen != 0 || q.Transit {
		t.Errorf("%+v", q)
	}
	step(pdu.LoginResponse{Transit: true, NSG: 1}, "ne\x00")
	step(pdu.LoginResponse{Transit: true, CSG: 1, NSG: 3, TSIH: 1}, "")
	if out != nil {
		t.Error("not done")
	}
}

func chapConfig(mutual bool) *Config {
	c := loginConfig()
	c.Auth = auth.Credentials{User: "u", Secret: "secretsecret12"}
	if mutual {
		c.Auth.MutualUser, c.Auth.MutualSecret = "t", "othersecret123"
	}
	return c
}

func TestCredentialsOfferCHAPAloneAndADowngradeIsRefused(t *testing.T) {
	for _, mutual := range []bool{false, true} {
		if err := play(t, newLogin(chapConfig(mutual), false), []leg{
			{text: "AuthMethod=None", transit: true, nsg: 1, wantKeys: "{AuthMethod CHAP}"}}); !errors.Is(err, ErrAuth) {
			t.Errorf("None: %v", err)
		}
		err := play(t, newLogin(chapConfig(mutual), false), []leg{{text: "AuthMethod=CHAP"},
			{text: "CHAP_A=5 CHAP_I=1 CHAP_C=0x0102", wantKeys: "[{CHAP_A 8,7,6,5}]"}, {transit: true, nsg: 1, wantKeys: "CHAP_R"}, end})
		if mutual != errors.Is(err, ErrAuth) || !mutual && err != nil {
			t.Errorf("mutual %v, no proof of the target: %v", mutual, err)
		}
		err = play(t, newLogin(chapConfig(mutual), false), []leg{{text: "AuthMethod=CHAP"}, {transit: true, nsg: 1}})
		if !errors.Is(err, ErrAuth) {
			t.Errorf("ended before the challenge: %v", err)
		}
	}
	if err := play(t, newLogin(loginConfig(), false), []leg{{text: "AuthMethod=None", wantKeys: "{AuthMethod None}", transit: true, nsg: 1}, end}); err != nil {
		t.Error(err)
	}
}

func TestAChallengeOf1024BytesInTwoPDUs(t *testing.T) {
	c := "CHAP_C=0x" + strings.Repeat("5a", 1024)
	l := newLogin(chapConfig(false), false)
	l.start()
	step := func(h pdu.LoginResponse, data string) (out []byte) {
		t.Helper()
		var b [pdu.HeaderLen]byte
		h.Put(b[:])
		out, err := l.step(b[:], []byte(data))
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	step(pdu.LoginResponse{}, "AuthMethod=CHAP\x00")
	step(pdu.LoginResponse{Continue: true}, "CHAP_A=5\x00CHAP_I=7\x00"+c[:900])
	out := step(pdu.LoginResponse{}, c[900:]+"\x00")
	want := md5.Sum([]byte("\x07secretsecret12" + strings.Repeat("\x5a", 1024))) //nolint:gosec // CHAP_A=5
	if !strings.Contains(string(out), "CHAP_R="+pdu.FormatBinary(want[:])+"\x00") {
		t.Errorf("%q", out)
	}
}

func FuzzLoginMachine(f *testing.F) {
	for _, text := range []string{usual, "AuthMethod=None", "AuthMethod=CHAP", "CHAP_A=5 CHAP_I=1 CHAP_C=0x00", ""} {
		var b []byte
		for _, h := range []pdu.LoginResponse{{Transit: true, NSG: 1, DataLen: len(segment(text))}, {Transit: true, CSG: 1, NSG: 3, TSIH: 1}} {
			one := make([]byte, pdu.HeaderLen)
			h.Put(one)
			b = append(append(b, one...), segment(text)...)
		}
		f.Add(b, false)
		f.Add(b, true)
	}
	f.Fuzz(func(t *testing.T, stream []byte, chap bool) {
		cfg := loginConfig()
		if chap {
			cfg = chapConfig(true)
		}
		l := newLogin(cfg, false)
		out := l.start()
		for out != nil && len(stream) >= pdu.HeaderLen {
			n := min(pdu.DataLen(stream), len(stream)-pdu.HeaderLen)
			var err error
			if out, err = l.step(stream[:pdu.HeaderLen], stream[pdu.HeaderLen:][:n]); err != nil {
				return
			}
			stream = stream[pdu.HeaderLen+n:]
		}
		if out == nil && chap {
			t.Fatal("logged in to a target that has not proven itself")
		}
		if p := l.params; out == nil && (p.MaxSend < 512 || p.MaxBurst < 512 || p.FirstBurst > p.MaxBurst || p.MaxOutstandingR2T < 1) {
			t.Fatalf("%+v", p)
		}
	})
}
