package auth

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// B-26: the form is the one of the standard's example and of keys that
// nvme-cli made and others published.
func TestB26PublishedSecretsAreRead(t *testing.T) {
	for _, s := range []Secret{
		"DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:",
		"DHHC-1:01:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:",
		"DHHC-1:02:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:",
		"DHHC-1:03:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:",
		"DHHC-1:01:KD+sfH3/o2bRQoV0ESjBUywQlMnSaYpZISUbVa0k0nsWpNST:",
		"DHHC-1:01:x7ecfGgIdOEl+J5cJ9JcZHOS2By2Me6eDJUnrsT9MVrCWRYV:",
	} {
		k, err := parseSecret(s)
		if err != nil || len(k.raw) != 32 {
			t.Errorf("%s: %v", string(s), err)
			continue
		}
		if FormatSecret(k.hash, k.raw) != s {
			t.Errorf("%s is written as %s", string(s), string(FormatSecret(k.hash, k.raw)))
		}
	}
	k, _ := parseSecret("DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:")
	if hex.EncodeToString(k.raw) != "89aeb31a874eaf84841b46736b0dfdf2ba58d30aa2a545a3e235a3521e07594c" {
		t.Errorf("%x", k.raw)
	}
}

func TestB26ASecretThatWasCopiedWronglyIsAConfigurationError(t *testing.T) {
	good := string(FormatSecret(SHA256, rawHost))
	for name, s := range map[string]string{
		"a changed character": strings.Replace(good, "dGhl", "dGhm", 1),
		"a lost character":    good[:12] + good[13:],
		"no colon at the end": good[:len(good)-1],
		"two colons":          good + ":",
		"a line end":          good + "\n",
		"a line end inside":   good[:20] + "\n" + good[20:],
		"a space":             " " + good,
		"an unknown hash":     strings.Replace(good, ":01:", ":04:", 1),
		"a hash of one digit": strings.Replace(good, ":01:", ":1:", 1),
		"no prefix":           good[len("DHHC-1:"):],
		"a lower-case prefix": "dhhc-1:" + good[len("DHHC-1:"):],
		"version 2":           "DHHC-2:" + good[len("DHHC-1:"):],
		"a TLS key":           "NVMeTLSkey-1:" + good[len("DHHC-1:"):],
		"only a prefix":       "DHHC-1:",
		"no content":          "DHHC-1:00::",
		"31 bytes":            string(FormatSecret(0, rawHost[:31])),
		"40 bytes":            string(FormatSecret(0, append(rawHost, rawHost[:8]...))),
		"very long":           good + strings.Repeat("A", maxSecretText),
	} {
		for _, c := range []Credentials{{Secret: Secret(s)}, {Secret: oneWay.Secret, ControllerSecret: Secret(s)}} {
			err := c.Check()
			if !errors.Is(err, ErrConfig) {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if strings.Contains(err.Error(), "dGhl") {
				t.Errorf("%s: the error shows the secret: %v", name, err)
			}
			if _, err := NewHost(c, hostNQN, subNQN, new(Source)); !errors.Is(err, ErrConfig) {
				t.Errorf("%s: a host begins: %v", name, err)
			}
		}
	}
}

func TestAControllerSecretNeedsAHostSecret(t *testing.T) {
	c := Credentials{ControllerSecret: oneWay.Secret}
	if err := c.Check(); !errors.Is(err, ErrConfig) {
		t.Error(err)
	}
}

func TestNoCredentialsAreNoError(t *testing.T) {
	var c Credentials
	if c.Enabled() || c.Mutual() || c.Check() != nil {
		t.Error("the zero value means something")
	}
	if _, err := NewHost(c, hostNQN, subNQN, new(Source)); !errors.Is(err, ErrConfig) {
		t.Error(err)
	}
}

func TestUnusableNamesAreRefused(t *testing.T) {
	for _, n := range []string{"", strings.Repeat("n", MaxNQN+1), "nqn.a\x00b"} {
		if _, err := NewHost(oneWay, n, subNQN, new(Source)); !errors.Is(err, ErrConfig) {
			t.Error(err)
		}
		if _, err := NewController(oneWay, hostNQN, n, new(Source)); !errors.Is(err, ErrConfig) {
			t.Error(err)
		}
	}
}

func TestWhatTheAnswerToConnectMeans(t *testing.T) {
	for _, c := range []struct {
		cred      Credentials
		atr, ascr bool
		start     bool
		err       error
	}{
		{Credentials{}, false, false, false, nil},
		{Credentials{}, true, false, false, ErrNoSecret},
		{Credentials{}, false, true, false, ErrConcatenation},
		{oneWay, false, false, false, nil},
		{oneWay, true, false, true, nil},
		{oneWay, true, true, false, ErrConcatenation},
		{mutual, false, false, true, nil}, // a silent controller must speak
		{mutual, true, false, true, nil},
	} {
		if start, err := c.cred.Required(c.atr, c.ascr); start != c.start || !errors.Is(err, c.err) {
			t.Errorf("%+v: %v, %v", c, start, err)
		}
	}
}

func TestCredentialsNeverPrint(t *testing.T) {
	c := mutual
	c.TLSKey = "NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:"
	var b bytes.Buffer
	slog.New(slog.NewJSONHandler(&b, nil)).Info("m", "c", c, "p", &c)
	slog.New(slog.NewTextHandler(&b, nil)).Info("m", "c", c, "p", &c)
	js, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&b, "%v %+v %#v %x %v %#v %s %q %s", c, c, c, c, &c, &c, c.Secret, c.TLSKey, js)
	for _, bad := range []string{"DHHC", "44484843", "TLSkey", "VRLbt", "dGhl"} {
		if strings.Contains(b.String(), bad) {
			t.Errorf("%s in %s", bad, b.String())
		}
	}
}

func TestNamesOfHashesAndGroupsAreReadAsTheyAreWritten(t *testing.T) {
	for h := SHA256; h.known(); h++ {
		if got, err := ParseHash(h.String()); got != h || err != nil {
			t.Error(h, got, err)
		}
	}
	for g := Null; g.known(); g++ {
		if got, err := ParseGroup(g.String()); got != g || err != nil {
			t.Error(g, got, err)
		}
	}
	for _, s := range []string{"", "md5", "sha1", "SHA256", "ffdhe1024"} {
		if _, err := ParseHash(s); err == nil {
			t.Error(s)
		}
		if _, err := ParseGroup(s); err == nil {
			t.Error(s)
		}
	}
	if s := fmt.Sprint(Hash(9), Group(9)); s != "hash 0x09 group 0x09" {
		t.Error(s)
	}
}
