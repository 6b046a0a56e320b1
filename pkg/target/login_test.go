package target

import (
	"fmt"
	"strings"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/iscsi/auth"
	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/target/serve"
)

func TestALoginAnswersEachKeyOnce(t *testing.T) {
	c := newRig(t, nil).dial(1)
	keys := append(c.hello(), pdu.Keys{{Key: "InitialR2T", Value: "No"}, {Key: "MaxBurstLength", Value: "99999999"},
		{Key: "FirstBurstLength", Value: "4096"}, {Key: "MaxConnections", Value: "8"}, {Key: "ErrorRecoveryLevel", Value: "2"},
		{Key: "HeaderDigest", Value: "CRC32C,None"}, {Key: "DataDigest", Value: "None,CRC32C"}, {Key: "IFMarker", Value: "Yes"},
		{Key: "X-com.example", Value: "1"}, {Key: "DefaultTime2Wait", Value: "7"}}...)
	r, got := c.leg(pdu.StageOperational, pdu.StageFull, true, keys)
	want := map[string]string{"TargetPortalGroupTag": "1", "InitialR2T": "No", "MaxBurstLength": "Reject", "FirstBurstLength": "4096",
		"MaxConnections": "1", "ErrorRecoveryLevel": "0", "HeaderDigest": "CRC32C", "DataDigest": "None", "IFMarker": "No",
		"X-com.example": "NotUnderstood", "DefaultTime2Wait": "7", "MaxRecvDataSegmentLength": "262144"}
	if r.StatusClass != 0 || r.TSIH == 0 || len(got) != len(want) {
		t.Errorf("%+v %v", r, got)
	}
	for k, v := range want {
		if a, ok := got.Get(k); !ok || a != v {
			t.Errorf("%s=%s, want %s", k, a, v)
		}
	}
}

func TestALoginInThreeLegsWithSplitKeysWorks(t *testing.T) {
	c := newRig(t, nil).dial(1)
	text := append(c.hello(), pdu.Pair{Key: "AuthMethod", Value: "CHAP,None"}).Append(nil)
	for i, part := range [][]byte{text[:20], text[20:]} {
		p := pdu.LoginRequest{Continue: i == 0, Transit: i == 1, CSG: 0, NSG: 1, CmdSN: 100, DataLen: len(part)}
		c.isid = 0
		p.ISID[0] = 0x80
		c.write(c.pdu(p.Put, part))
		h, data := c.read()
		var r pdu.LoginResponse
		_ = r.Decode(h)
		if r.StatusClass != 0 || r.Transit != (i == 1) {
			t.Fatalf("leg %d: %+v %q", i, r, data)
		}
	}
	if r, _ := c.leg(1, 1, false, loginKeys); r.StatusClass != 0 || r.Transit {
		t.Fatalf("%+v", r)
	}
	if r, _ := c.leg(1, 3, true, nil); r.StatusClass != 0 || !r.Transit || r.TSIH == 0 {
		t.Fatalf("%+v", r)
	}
}

func TestLoginsAreRefusedWithTheirStatus(t *testing.T) {
	for name, k := range map[string]struct {
		status [2]byte
		csg    uint8
		change func(*Config)
		keys   func(c *client) pdu.Keys
	}{
		"unknown target": {statusNotFound, 1, nil, func(c *client) pdu.Keys {
			return pdu.Keys{{Key: "InitiatorName", Value: "i"}, {Key: "TargetName", Value: "iqn.other"}}
		}},
		"no target": {statusMissing, 1, nil, func(*client) pdu.Keys { return pdu.Keys{{Key: "InitiatorName", Value: "i"}} }},
		"no name":   {statusMissing, 1, nil, func(*client) pdu.Keys { return pdu.Keys{{Key: "TargetName", Value: DefaultName}} }},
		"not on the list": {statusForbidden, 1, func(c *Config) { c.Initiators = []string{"iqn.other"} },
			func(c *client) pdu.Keys { return c.hello() }},
		"strange session": {statusInitiator, 1, nil, func(c *client) pdu.Keys {
			return append(c.hello(), pdu.Pair{Key: "SessionType", Value: "Boot"})
		}},
		"no authentication": {statusAuth, 1, func(c *Config) { c.Auth = chap }, func(c *client) pdu.Keys { return c.hello() }},
		"only None":         {statusAuth, 0, func(c *Config) { c.Auth = chap }, func(c *client) pdu.Keys { return append(c.hello(), pdu.Pair{Key: "AuthMethod", Value: "None"}) }},
		"only CHAP":         {statusAuth, 0, nil, func(c *client) pdu.Keys { return append(c.hello(), pdu.Pair{Key: "AuthMethod", Value: "CHAP"}) }},
	} {
		c := newRig(t, k.change).dial(1)
		r, _ := c.leg(k.csg, 3, true, k.keys(c))
		if [2]byte{r.StatusClass, r.StatusDetail} != k.status || !c.c.Closing() {
			t.Errorf("%s: status %02x%02x, closing %v", name, r.StatusClass, r.StatusDetail, c.c.Closing())
		}
	}
}

func TestAKeyTwiceInALoginIsRefused(t *testing.T) {
	c := newRig(t, nil).dial(1)
	if r, _ := c.leg(1, 1, false, append(c.hello(), loginKeys...)); r.StatusClass != 0 {
		t.Fatal(r)
	}
	if r, _ := c.leg(1, 3, true, pdu.Keys{{Key: "InitialR2T", Value: "No"}}); r.StatusClass != 2 {
		t.Errorf("%+v", r)
	}
}

func TestAnythingButALoginFirstEndsTheConnection(t *testing.T) {
	c := newRig(t, nil).dial(1)
	p := pdu.NOPOut{ITT: 1, TTT: pdu.NoTag}
	c.write(c.pdu(p.Put, nil))
	if !c.c.Closing() || !strings.Contains(c.c.Cause(), "before the login") {
		t.Error(c.c.Cause())
	}
}

func TestALoginThatTakesTooLongIsEnded(t *testing.T) {
	r := newRig(t, nil)
	idle, done := r.dial(1), r.session(1, 2)
	if at, ok := r.Next(); !ok || at != epoch.Add(serve.LoginTimeout) {
		t.Fatal(at, ok)
	}
	r.Tick(epoch.Add(serve.LoginTimeout - 1))
	if idle.c.Closing() {
		t.Error("ended too early")
	}
	r.Tick(epoch.Add(serve.LoginTimeout))
	if !idle.c.Closing() || done.c.Closing() {
		t.Errorf("idle %v, logged in %v", idle.c.Closing(), done.c.Closing())
	}
}

// proves runs CHAP with the initiator's own half.
func proves(t *testing.T, cfg func(*Config), cred auth.Credentials) (pdu.LoginResponse, error) {
	t.Helper()
	c := newRig(t, cfg).dial(1)
	i := auth.NewInitiator(&cred, &auth.Nonces{})
	if r, k := c.leg(0, 1, false, append(c.hello(), pdu.Pair{Key: "AuthMethod", Value: "CHAP,None"})); r.StatusClass != 0 || len(k) != 2 {
		t.Fatal(r, k)
	}
	_, k := c.leg(0, 1, false, i.Start())
	reply, _, err := i.Step(k)
	if err != nil {
		t.Fatal(err)
	}
	r, k := c.leg(0, 1, true, reply)
	if r.StatusClass != 0 {
		return r, nil
	}
	if !r.Transit {
		t.Fatalf("%+v", r)
	}
	if cred.Mutual() {
		_, _, err = i.Step(k)
	}
	last, _ := c.leg(1, 3, true, loginKeys)
	return last, err
}

func TestCHAPProvesBothEnds(t *testing.T) {
	with := func(c *Config) { c.Auth = chap }
	oneWay := auth.Credentials{User: chap.User, Secret: chap.Secret}
	for _, cred := range []auth.Credentials{chap, oneWay} {
		if r, err := proves(t, with, cred); err != nil || r.StatusClass != 0 || r.TSIH == 0 {
			t.Errorf("mutual %v: %+v %v", cred.Mutual(), r, err)
		}
	}
	wrong := oneWay
	wrong.Secret = "not this secret"
	if r, _ := proves(t, with, wrong); [2]byte{r.StatusClass, r.StatusDetail} != statusAuth {
		t.Errorf("wrong secret: %+v", r)
	}
	wrong = chap
	wrong.MutualSecret = "not this one either"
	if _, err := proves(t, with, wrong); err == nil {
		t.Error("a target that does not know the mutual secret proved itself")
	}
}

func TestARedirectNamesTheOtherPortal(t *testing.T) {
	r := newRig(t, nil)
	if err := r.Redirect(1, "10.0.0.2:3260,1", true); err != nil {
		t.Fatal(err)
	}
	c := r.dial(1)
	got, keys := c.leg(1, 3, true, c.hello())
	if a, _ := keys.Get("TargetAddress"); [2]byte{got.StatusClass, got.StatusDetail} != statusMoved || a != "10.0.0.2:3260,1" {
		t.Errorf("%+v %v", got, keys)
	}
	if err := r.RefuseLogins(2, 3, 1); err != nil {
		t.Fatal(err)
	}
	c = r.dial(2)
	if got, _ := c.leg(1, 3, true, c.hello()); got.StatusClass != 3 || got.StatusDetail != 1 {
		t.Errorf("%+v", got)
	}
}

func TestDiscoveryListsAllPortalsInParts(t *testing.T) {
	r := newRig(t, nil)
	for i := range 40 {
		if _, err := r.AddPortal(PortalConfig{Address: fmt.Sprintf("10.0.1.%d:3260", i), TPGT: 2}); err != nil {
			t.Fatal(err)
		}
	}
	c := r.dial(1)
	c.leg(1, 3, true, pdu.Keys{{Key: "InitiatorName", Value: c.name}, {Key: "SessionType", Value: "Discovery"},
		{Key: "MaxRecvDataSegmentLength", Value: "512"}})
	text, data := pdu.Keys{{Key: "SendTargets", Value: "All"}}.Append(nil), []byte(nil)
	ttt := uint32(pdu.NoTag)
	for parts := 1; ; parts++ {
		p := pdu.TextRequest{Final: true, ITT: 7, TTT: ttt, CmdSN: c.cmdSN, DataLen: len(text)}
		c.cmdSN++
		c.write(c.pdu(p.Put, text))
		h, d := c.read()
		var a pdu.TextResponse
		if err := a.Decode(h); err != nil {
			t.Fatal(err)
		}
		data, ttt, text = append(data, d...), a.TTT, nil
		if a.Final {
			if parts < 2 || ttt != pdu.NoTag {
				t.Errorf("%d parts, tag %x", parts, ttt)
			}
			break
		}
	}
	if n := strings.Count(string(data), "TargetAddress="); n != 42 || !strings.Contains(string(data), "TargetAddress=10.0.1.39:3260,2\x00") {
		t.Errorf("%d portals in %q", n, data)
	}
	c.readCmd(0, 1)
	h, _ := c.read()
	if op, _ := pdu.Op(h); op != pdu.OpReject {
		t.Errorf("a SCSI command in a discovery session: %v", op)
	}
}
