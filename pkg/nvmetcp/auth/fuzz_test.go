package auth

import (
	"bytes"
	"errors"
	"testing"
)

// wire is every kind of message once, for the corpora.
func wire() [][]byte {
	c := challenge{tid: 1, hash: SHA256, group: FFDHE2048, seq: 5, value: make([]byte, 32), dh: make([]byte, 256)}
	r := reply{tid: 1, asks: true, seq: 6, response: make([]byte, 32), value: make([]byte, 32), dh: make([]byte, 256)}
	null := challenge{tid: 1, hash: SHA256, seq: 5, value: make([]byte, 32)}
	return [][]byte{
		(&negotiate{tid: 1, hashes: []byte{1, 2, 3}, groups: []byte{0, 1, 2, 3, 4, 5}}).encode(),
		c.encode(), null.encode(), r.encode(),
		(&reply{tid: 1, response: make([]byte, 32), value: make([]byte, 32)}).encode(),
		(&success1{tid: 1, hashLen: 32, response: make([]byte, 32)}).encode(),
		(&success1{tid: 1, hashLen: 32}).encode(),
		encodeSuccess2(1), encodeFailure(kindFailure1, 1, failed), encodeFailure(kindFailure2, 1, failed),
	}
}

// codec is what the four decoders have in common.
type codec interface {
	decode([]byte) error
	encode() []byte
}

// FuzzDecode: what a decoder takes, it writes the same way up to the reserved
// bytes: the second reading gives the same as the first.
func FuzzDecode(f *testing.F) {
	for _, m := range wire() {
		f.Add(m)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for i, pair := range [][2]codec{{new(negotiate), new(negotiate)}, {new(challenge), new(challenge)}, {new(reply), new(reply)}, {new(success1), new(success1)}} {
			if err := pair[0].decode(b); err != nil {
				if !errors.Is(err, ErrProtocol) {
					t.Fatalf("decoder %d: %v", i, err)
				}
				continue
			}
			once := pair[0].encode()
			if err := pair[1].decode(once); err != nil || !bytes.Equal(once, pair[1].encode()) {
				t.Fatalf("decoder %d of %x: %v, then %x", i, b, err, once)
			}
		}
		_, _ = decodeFailure(b)
	})
}

func TestEveryDecoderRefusesEveryCutMessage(t *testing.T) {
	decoders := map[kind]codec{kindNegotiate: new(negotiate), kindChallenge: new(challenge), kindReply: new(reply), kindSuccess1: new(success1)}
	for _, m := range wire() {
		d, ok := decoders[kind{m[0], m[1]}]
		if !ok {
			continue
		}
		if err := d.decode(m); err != nil {
			t.Errorf("%x: %v", m, err)
		}
		for n := range m {
			if err := d.decode(m[:n]); !errors.Is(err, ErrProtocol) {
				t.Errorf("%d bytes of %v: %v", n, kind{m[0], m[1]}, err)
			}
		}
	}
}

// cheap are credentials with which a fuzzer gets far: large groups cost it time.
func cheap() Credentials {
	c := mutual
	c.Groups = GroupSet(Null, FFDHE2048)
	return c
}

// FuzzHost: a controller without the secret is never believed.
func FuzzHost(f *testing.F) {
	m := wire()
	f.Add(m[1], m[5])
	f.Add(m[2], m[6])
	f.Add(m[8], m[8])
	f.Fuzz(func(t *testing.T, first, second []byte) {
		r := newRig(t, cheap(), cheap())
		_, _, _ = r.host.Next(nil)
		for _, in := range [][]byte{first, second, second} {
			out, done, err := r.host.Next(in)
			if done {
				t.Fatalf("believed: %x, %x", first, second)
			}
			if len(out) > MaxMessage || out == nil && err == nil {
				t.Fatalf("%d bytes and %v", len(out), err)
			}
		}
	})
}

// FuzzController: a host without the secret never gets in, and there is always
// something to tell it.
func FuzzController(f *testing.F) {
	m := wire()
	f.Add(m[0], m[3], m[7])
	f.Add(m[0], m[4], m[7])
	f.Add(m[0], m[9], m[0])
	f.Fuzz(func(t *testing.T, first, second, third []byte) {
		r := newRig(t, cheap(), cheap())
		for _, in := range [][]byte{first, second, third, second} {
			r.ctrl.Take(in)
			if out, err := r.ctrl.Give(MaxMessage); err != nil || len(out) == 0 {
				t.Fatalf("%d bytes and %v", len(out), err)
			}
			if r.ctrl.Authenticated() {
				t.Fatalf("believed: %x, %x, %x", first, second, third)
			}
		}
	})
}

func FuzzSecret(f *testing.F) {
	f.Add(string(oneWay.Secret))
	f.Add(string(mutual.ControllerSecret))
	f.Add(tlsOne)
	f.Add(tlsTwo)
	f.Fuzz(func(t *testing.T, s string) {
		if k, err := parseSecret(Secret(s)); err == nil && string(FormatSecret(k.hash, k.raw)) != s {
			t.Fatalf("%q has another form: %q", s, string(FormatSecret(k.hash, k.raw)))
		}
		if k, err := ParseTLSKey(Secret(s)); err == nil {
			if _, err := k.Identity(1, hostNQN, subNQN); err != nil {
				t.Fatal(err)
			}
		}
	})
}
