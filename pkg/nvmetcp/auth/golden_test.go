package auth

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/big"
	"os"
	"strings"
	"testing"
)

// goldenPair is a key pair with a fixed exponent.
func goldenPair(g Group, fill byte) *keyPair {
	x := append([]byte{0x80}, bytes.Repeat([]byte{fill}, 63)...)
	return &keyPair{g, new(big.Int).SetBytes(x)}
}

// pattern is a challenge of n bytes.
func pattern(n, step, first int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*step + first)
	}
	return b
}

func TestResponsesAreThoseOfAnIndependentProgram(t *testing.T) {
	file, err := os.ReadFile("testdata/responses.txt")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(file)), "\n")[1:]
	if len(lines) != 12 {
		t.Fatalf("%d lines", len(lines))
	}
	for _, line := range lines {
		var h, kh Hash
		var g Group
		var host, ctrl string
		if _, err := fmt.Sscan(line, &h, &g, &kh, &host, &ctrl); err != nil {
			t.Fatal(err)
		}
		k := &key{kh, pattern(48, 1, 0)}
		terms := terms{hash: h, tid: 0xbeef, host: hostNQN, sub: subNQN}
		if g != Null {
			shared, err := goldenPair(g, 'x').shared(goldenPair(g, 'y').public())
			if err != nil {
				t.Fatal(err)
			}
			terms.session = h.sum(shared)
		}
		if r := terms.hostResponse(k.transform(hostNQN), pattern(h.size(), 7, 1), 0x01020304); hex.EncodeToString(r) != host {
			t.Errorf("%v, %v, %v: host %x", h, g, kh, r)
		}
		if r := terms.controllerResponse(k.transform(subNQN), pattern(h.size(), 5, 3), 0xa0b0c0d0); hex.EncodeToString(r) != ctrl {
			t.Errorf("%v, %v, %v: controller %x", h, g, kh, r)
		}
	}
}

// The primes are OpenSSL's, the powers Python's; all as SHA-256.
func TestGroupsAreThoseOfRFC7919(t *testing.T) {
	for g, want := range map[Group][3]string{
		FFDHE2048: {"9cd3b7f336872f46c09428d1bbc19877a4d440512cda8d1c1cf0cd6e33698966", "bdb933f876815233a9609141a9833de4fce6cce1d70521f798fee50aa8cd444e", "afa3d147a4db9f8beabc659e716666a543c31e5b1f9ed8dae904b7e5bdf153f6"},
		FFDHE3072: {"0eaf67db3a839156d5013494a5318a772b5697d270d721f37f092efc69ea5a17", "d4ef83fac4c4893321c8b82d69ebf7ea50044261f02bb6ba616b726c82be7478", "eb115751a080dbcff856f404f0dff316bb902f175cf97c62238fe0eeee56992d"},
		FFDHE4096: {"4648414224ac881b3d0dc59b466f96d06a558278776807797ecf1f66ff397b3e", "7b21f58ab01c471742af1bacc0c34809204e92a8fc038b539a97429839e237b9", "f8bff3923b7042de9df0a3606b658a056716069e270dee8eb6eb05bfab19394e"},
		FFDHE6144: {"227ac9066b3ddd9e193670cda2388fa884f65ba0cf98b742d1fe77a6687c79c7", "466adbf8643650f8ba72a1305d26a522f4ddd135cf3184e42f5cf0f65a736cd2", "c4e41912fb1d7d95709a863d4a913f8a7d648d4e85682bffc7eef1c3d95472f5"},
		FFDHE8192: {"770b14efaf6f049929c523113b3fa99a8d11dab1b18af3609590122075d19833", "6eaefd8a061f680a99d33ef0014303a8eac38918199a85dae0b1260e17c3a522", "684a4e5bc8cad3d338cb4086b7b94f2513432d963afaca5a9d5a474870b544fe"},
	} {
		shared, err := goldenPair(g, 'x').shared(goldenPair(g, 'y').public())
		if err != nil {
			t.Fatal(err)
		}
		for i, b := range [][]byte{groups[g].prime().Bytes(), goldenPair(g, 'x').public(), shared} {
			if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) != want[i] {
				t.Errorf("%v, value %d: %x", g, i, sum)
			}
		}
	}
}

// Messages as they go over the wire, byte by byte.
func TestMessagesHaveTheirLayout(t *testing.T) {
	n := negotiate{tid: 0x1234, hashes: []byte{1, 2, 3}, groups: []byte{0, 1}}
	list := make([]byte, 64)
	copy(list, []byte{1, 0, 3, 2, 1, 2, 3})
	list[35] = 1
	for _, c := range []struct {
		got  []byte
		want string
	}{
		{n.encode(), "0000000034120001" + hex.EncodeToString(list)},
		{(&challenge{tid: 0x1234, hash: SHA384, group: FFDHE2048, seq: 0x01020304, value: []byte("cc"), dh: []byte("ddd")}).encode(),
			"01010000341202000201030004030201" + "6363" + "646464"},
		{(&reply{tid: 0x1234, asks: true, seq: 0x01020304, response: []byte("rr"), value: []byte("cc"), dh: []byte("d")}).encode(),
			"01020000341202000100010004030201" + "7272" + "6363" + "64"},
		{(&success1{tid: 0x1234, hashLen: 2, response: []byte("rr")}).encode(), "0103000034120200010000000000000" + "07272"},
		{(&success1{tid: 0x1234, hashLen: 32}).encode(), "01030000341220000000000000000000"},
		{encodeSuccess2(0x1234), "01040000341200000000000000000000"},
		{encodeFailure(kindFailure1, 0x1234, hashNotUsable), "00f1000034120104"},
		{encodeFailure(kindFailure2, 0x1234, failed), "00f0000034120101"},
	} {
		if hex.EncodeToString(c.got) != c.want {
			t.Errorf("got  %x\nwant %s", c.got, c.want)
		}
	}
}
