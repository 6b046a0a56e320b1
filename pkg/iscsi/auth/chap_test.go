package auth

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
)

var mutual = Credentials{User: "u", Secret: "secretsecret12", MutualUser: "t", MutualSecret: "othersecret123"}

// exchange runs both sides until one is done or fails.
func exchange(i *Initiator, t *Target) (ierr, terr error, idone, tdone bool) {
	toTarget := i.Start()
	for range 5 {
		var toInit pdu.Keys
		if toInit, tdone, terr = t.Step(toTarget); terr != nil {
			return
		}
		if toTarget, idone, ierr = i.Step(toInit); ierr != nil || idone && tdone {
			return
		}
		if idone && !tdone { // one-way: the last leg carries the response
			_, tdone, terr = t.Step(toTarget)
			return
		}
	}
	return errors.New("endless"), nil, false, false
}

func TestBothSidesProveThemselves(t *testing.T) {
	oneWay := mutual
	oneWay.MutualUser, oneWay.MutualSecret = "", ""
	for name, c := range map[string]Credentials{"one-way": oneWay, "mutual": mutual} {
		var a, b Nonces
		ierr, terr, idone, tdone := exchange(NewInitiator(&c, &a), NewTarget(&c, &b))
		if ierr != nil || terr != nil || !idone || !tdone {
			t.Errorf("%s: %v %v %v %v", name, ierr, terr, idone, tdone)
		}
	}
}

func TestAWrongSecretOrNameIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*Credentials)
		want  error
	}{
		"secret":        {func(c *Credentials) { c.Secret = "secretsecret13" }, ErrWrongResponse},
		"user":          {func(c *Credentials) { c.User = "v" }, ErrWrongUser},
		"mutual secret": {func(c *Credentials) { c.MutualSecret = "othersecret124" }, ErrWrongResponse},
		"mutual user":   {func(c *Credentials) { c.MutualUser = "x" }, ErrWrongUser},
	} {
		var a, b Nonces
		other := mutual
		c.spoil(&other)
		ierr, terr, _, _ := exchange(NewInitiator(&mutual, &a), NewTarget(&other, &b))
		if err := errors.Join(ierr, terr); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		} else if strings.Contains(err.Error(), "secretsecret") {
			t.Errorf("%s: error shows the secret: %v", name, err)
		}
	}
}

func TestTheKnownVectorOfMD5(t *testing.T) {
	c, err := pdu.ParseBinary("0x35343534373533343633383832343736")
	if err != nil {
		t.Fatal(err)
	}
	if r := numbered(algorithms, "5").response(0xdc, "hashcat", c); fmt.Sprintf("%x", r) != "aa4aaa1d52319525023c06a4873f4c51" {
		t.Fatalf("%x", r)
	}
}

func TestAReflectedChallengeIsRefused(t *testing.T) {
	var shared Nonces
	id, value, err := shared.New() // sent on another connection
	if err != nil {
		t.Fatal(err)
	}
	i := NewInitiator(&mutual, &shared)
	if _, _, err := i.Step(append(pdu.Keys{{Key: "CHAP_A", Value: "7"}}, ask(challenge{id, value})...)); !errors.Is(err, ErrReflected) {
		t.Errorf("initiator: %v", err)
	}
	tgt := NewTarget(&mutual, &shared)
	keys, _, err := tgt.Step(i.Start())
	if err != nil {
		t.Fatal(err)
	}
	c, _ := readChallenge(keys)
	back := append(tgt.agreed.answer(mutual.User, mutual.Secret, c), ask(c)...)
	if _, _, err := tgt.Step(back); !errors.Is(err, ErrReflected) {
		t.Errorf("target: %v", err)
	}
}

func TestValuesOutOfRangeFailLocally(t *testing.T) {
	good := pdu.Keys{{Key: "CHAP_A", Value: "5"}, {Key: "CHAP_I", Value: "0x0a"}, {Key: "CHAP_C", Value: "0x" + strings.Repeat("ab", 1024)}}
	set := func(k, v string) pdu.Keys {
		out := append(pdu.Keys{}, good...)
		for i := range out {
			if out[i].Key == k {
				out[i].Value = v
			}
		}
		return out
	}
	var n Nonces
	c := Credentials{User: "u", Secret: "secretsecret12"}
	for _, keys := range []pdu.Keys{good, set("CHAP_I", "255"), set("CHAP_C", "0bAAECAwQFBgcICQoLDA0ODw==")} {
		if _, done, err := NewInitiator(&c, &n).Step(keys); err != nil || !done {
			t.Errorf("%.80v: %v", keys, err)
		}
	}
	for _, keys := range []pdu.Keys{nil, good[:1], good[:2], good[1:], set("CHAP_A", "56"), set("CHAP_A", ""), set("CHAP_A", "4"),
		set("CHAP_A", "5,5"), set("CHAP_I", "256"), set("CHAP_I", "-1"), set("CHAP_C", "0x"), set("CHAP_C", "0x"+strings.Repeat("ab", 1025))} {
		if _, _, err := NewInitiator(&c, &n).Step(keys); !errors.Is(err, ErrProtocol) {
			t.Errorf("%.80v: %v", keys, err)
		}
	}
	for _, r := range []string{"0x00", "0x" + strings.Repeat("00", 20), "nonsense", "0bAAAA"} {
		tgt := NewTarget(&c, &n)
		if _, _, err := tgt.Step(pdu.Keys{{Key: "CHAP_A", Value: "5"}}); err != nil {
			t.Fatal(err)
		}
		if _, _, err := tgt.Step(pdu.Keys{{Key: "CHAP_N", Value: "u"}, {Key: "CHAP_R", Value: r}}); !errors.Is(err, ErrProtocol) {
			t.Errorf("CHAP_R=%s: %v", r, err)
		}
	}
}

func TestUnusableCredentialsAreRefused(t *testing.T) {
	none := Credentials{}
	if none.Enabled() || none.Check() != nil || mutual.Check() != nil {
		t.Error("good ones refused")
	}
	for _, c := range []Credentials{
		{User: "u"}, {Secret: "secretsecret12"}, {User: "u", Secret: "short"},
		{User: "u", Secret: "secretsecret12", MutualUser: "t"},
		{User: "u", Secret: "secretsecret12", MutualUser: "t", MutualSecret: "secretsecret12"},
		{MutualUser: "t", MutualSecret: "secretsecret12"},
		{User: "u", Secret: Secret(strings.Repeat("s", MaxSecret+1))},
	} {
		if err := c.Check(); err == nil || strings.Contains(err.Error(), "secretsecret") {
			t.Errorf("%v: %v", c, err)
		}
	}
}

func TestSecretsNeverPrint(t *testing.T) {
	js, err := json.Marshal(mutual)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{string(js), fmt.Sprintf("%v %+v %#v %s %q %x", mutual, mutual, mutual, mutual, mutual, mutual),
		fmt.Sprint(&mutual), fmt.Sprintf("%x", mutual.Secret), fmt.Sprintf("%#v", &mutual)} {
		if strings.Contains(s, "secretsecret") || strings.Contains(s, "othersecret") || strings.Contains(s, "736563726574") {
			t.Errorf("printed: %s", s)
		}
	}
}

func FuzzInitiator(f *testing.F) {
	f.Add([]byte("CHAP_A=5\x00CHAP_I=1\x00CHAP_C=0x00\x00"), []byte("CHAP_N=t\x00CHAP_R=0x00\x00"))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		var n Nonces
		i := NewInitiator(&mutual, &n)
		for _, leg := range [][]byte{first, second, second} {
			keys, err := pdu.ParseKeys(leg)
			if err != nil {
				return
			}
			if _, done, err := i.Step(keys); err != nil {
				return
			} else if done {
				t.Fatalf("a target without the secret was believed: %q", second)
			}
		}
	})
}

// and the lists of IANA: each algorithm proves both sides, the target takes
// the first of the list that it has, and a response of another length is refused.
func TestA01TheFirstAlgorithmThatBothHaveIsUsed(t *testing.T) {
	for _, c := range []struct{ offered, taken, want string }{
		{"", "", "8"}, {"MD5", "", "5"}, {"", "md5", "5"}, {"SHA1,SHA256", "SHA256,SHA1", "6"}, {"SHA256", "", "7"}, {"MD5,SHA3-256", "SHA3-256,MD5", "5"},
	} {
		ours, theirs := mutual, mutual
		ours.Algorithms, theirs.Algorithms = c.offered, c.taken
		if err := errors.Join(ours.Check(), theirs.Check()); err != nil {
			t.Fatal(err)
		}
		var a, b Nonces
		i, target := NewInitiator(&ours, &a), NewTarget(&theirs, &b)
		ierr, terr, idone, tdone := exchange(i, target)
		if ierr != nil || terr != nil || !idone || !tdone || i.agreed.number != c.want {
			t.Errorf("%+v: %v %v %v", c, ierr, terr, i.agreed)
		}
	}
	ours, theirs := mutual, mutual
	ours.Algorithms, theirs.Algorithms = "SHA1", "SHA256"
	var a, b Nonces
	if _, terr, _, _ := exchange(NewInitiator(&ours, &a), NewTarget(&theirs, &b)); !errors.Is(terr, ErrProtocol) {
		t.Errorf("nothing in common: %v", terr)
	}
	for _, bad := range []string{"MD4", "MD5,MD5", "MD5,", ",", "SHA512"} {
		c := mutual
		c.Algorithms = bad
		if err := c.Check(); err == nil {
			t.Errorf("algorithms %q are taken", bad)
		}
	}
}

// The digests of "abc" as FIPS 180-4 and 202 have them: identifier 'a', secret "b",
// challenge "c".
func TestEachAlgorithmIsTheHashOfItsStandard(t *testing.T) {
	for number, want := range map[string]string{
		"5": "900150983cd24fb0d6963f7d28e17f72", "6": "a9993e364706816aba3e25717850c26c9cd0d89d",
		"7": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
		"8": "3a985da74fe225b2045c172d6bd390bd855f086e3e9d525b46bfe24511431532",
	} {
		if got := fmt.Sprintf("%x", numbered(algorithms, number).response('a', "b", []byte("c"))); got != want {
			t.Errorf("CHAP_A=%s: %s", number, got)
		}
	}
}
