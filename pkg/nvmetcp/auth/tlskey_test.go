package auth

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

// The published samples of libnvme: keys and the identities made of them.
const (
	tls32  = "VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:"
	tls48  = "VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwP/w0S89ELi3W2LxIcLXVsDn8kXZQ==:"
	tlsOne = "NVMeTLSkey-1:01:" + tls32
	tlsTwo = "NVMeTLSkey-1:02:" + tls48
)

func TestB25TLSKeysAndIdentitiesAreThoseOfOthers(t *testing.T) {
	for _, c := range []struct {
		key     Secret
		version int
		want    string
	}{
		{tlsOne, 1, "NVMe1R01 nqn.psk-test-host nqn.psk-test-subsys iSbjiStwJ/1TrTvDlt2fjFmzvsytOJelidNnA+X5lEU="},
		{tlsTwo, 1, "NVMe1R02 nqn.psk-test-host nqn.psk-test-subsys QhW2+Rp6RzHlNtCslyRxMnwJ11tKKhz8JCAQpQ+XUD8f9td1VeH5h53yz2wKJG1a"},
		{tlsOne, 0, "NVMe0R01 nqn.psk-test-host nqn.psk-test-subsys"},
		{tlsTwo, 0, "NVMe0R02 nqn.psk-test-host nqn.psk-test-subsys"},
		{"NVMeTLSkey-1:00:" + tls32, 0, "NVMe0R01 nqn.psk-test-host nqn.psk-test-subsys"},
		{"NVMeTLSkey-1:00:" + tls48, 0, "NVMe0R02 nqn.psk-test-host nqn.psk-test-subsys"},
	} {
		k, err := ParseTLSKey(c.key)
		if err != nil {
			t.Errorf("%s: %v", string(c.key), err)
			continue
		}
		if got, err := k.Identity(c.version, "nqn.psk-test-host", "nqn.psk-test-subsys"); err != nil || got != c.want {
			t.Errorf("%s: %s, %v", string(c.key), got, err)
		}
	}
}

// With hash 00 the digest is made with the key as it is configured.
func TestB25AKeyWithoutAHashIsUsedAsItIs(t *testing.T) {
	k, err := ParseTLSKey("NVMeTLSkey-1:00:" + tls32)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := k.retained("nqn.h"); err != nil || !bytes.Equal(r, k.key.raw) {
		t.Errorf("%x, %v", r, err)
	}
	hashed, err := ParseTLSKey(tlsOne)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := hashed.retained("nqn.h"); err != nil || bytes.Equal(r, hashed.key.raw) {
		t.Errorf("%x, %v", r, err)
	}
}

func TestB25AWrongTLSKeyIsRefusedWithoutShowingIt(t *testing.T) {
	for name, s := range map[string]string{
		"wrong CRC":      strings.Replace(tlsOne, "VRLb", "VRLc", 1),
		"hash 03":        strings.Replace(tlsOne, ":01:", ":03:", 1),
		"32 with 02":     "NVMeTLSkey-1:02:" + tls32,
		"48 with 01":     "NVMeTLSkey-1:01:" + tls48,
		"odd length":     "NVMeTLSkey-1:00:" + sealed(make([]byte, 31)) + ":",
		"hex, 63 digits": "NVMeTLSkey-1:01:" + strings.Repeat("a", 63) + ":",
		"bare hex":       strings.Repeat("ab", 32),
		"DHHC":           string(oneWay.Secret),
		"no end":         strings.TrimSuffix(tlsOne, ":"),
		"long":           tlsOne + strings.Repeat("A", maxSecretText),
		"empty":          "",
	} {
		k, err := ParseTLSKey(Secret(s))
		if !errors.Is(err, ErrConfig) || strings.Contains(err.Error(), "VRL") {
			t.Errorf("%s: %v, %v", name, k, err)
		}
	}
	k, err := ParseTLSKey(tlsOne)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []struct {
		version   int
		host, sub string
	}{{2, "h", "s"}, {1, "", "s"}, {1, "h", ""}, {0, "h", strings.Repeat("s", MaxNQN+1)}} {
		if s, err := k.Identity(id.version, id.host, id.sub); !errors.Is(err, ErrConfig) {
			t.Errorf("%+v: %s, %v", id, s, err)
		}
	}
}

// B-25: never plain TCP when TLS was required.
func TestB25AConfigurationThatDemandsTLSIsRefused(t *testing.T) {
	for _, c := range []Credentials{{TLSKey: tlsOne}, {TLSKey: tlsTwo, Secret: oneWay.Secret}, {TLSKey: "nonsense"}} {
		if err := c.Check(); !errors.Is(err, ErrTLS) {
			t.Errorf("Check: %v", err)
		}
		if start, err := c.Required(false, false); start || !errors.Is(err, ErrTLS) {
			t.Errorf("Required: %v, %v", start, err)
		}
		if _, err := NewHost(c, hostNQN, subNQN, new(Source)); !errors.Is(err, ErrTLS) {
			t.Errorf("NewHost: %v", err)
		}
		if _, err := NewController(c, hostNQN, subNQN, new(Source)); !errors.Is(err, ErrTLS) {
			t.Errorf("NewController: %v", err)
		}
	}
}
