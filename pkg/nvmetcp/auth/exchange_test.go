package auth

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
)

const (
	hostNQN = "nqn.2014-08.org.nvmexpress:uuid:0e6b7a4a-9d4e-4d5b-9c55-6a2f3c7f1d11"
	subNQN  = "nqn.2026-01.io.example:sub1"
)

var (
	rawHost = []byte("the secret of the host, 32 bytes")
	rawCtrl = []byte("the controller has another of 48, or so they say")
	oneWay  = Credentials{Secret: FormatSecret(0, rawHost)}
	mutual  = Credentials{Secret: FormatSecret(0, rawHost), ControllerSecret: FormatSecret(SHA384, rawCtrl)}
)

// rig is both ends, with a wire that a test may bend.
type rig struct {
	host *Host
	ctrl *Controller
	// toHost and toCtrl, if set, change the n-th message of their direction.
	toHost, toCtrl func(n int, msg []byte) []byte
}

func newRig(t testing.TB, host, ctrl Credentials) *rig {
	t.Helper()
	h, err := NewHost(host, hostNQN, subNQN, new(Source))
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewController(ctrl, hostNQN, subNQN, new(Source))
	if err != nil {
		t.Fatal(err)
	}
	return &rig{host: h, ctrl: c}
}

// run is what the two shells do. It returns the host's view.
func (r *rig) run() error {
	var in []byte
	for n := range 4 {
		out, done, err := r.host.Next(in)
		if out != nil {
			if r.toCtrl != nil {
				out = r.toCtrl(n, out)
			}
			r.ctrl.Take(out)
		}
		if err != nil || done {
			return err
		}
		if in, err = r.ctrl.Give(MaxMessage); err != nil {
			return err
		}
		in = append(in, make([]byte, MaxMessage-len(in))...) // as nvmet does
		if r.toHost != nil {
			in = r.toHost(n, in)
		}
	}
	return errors.New("endless")
}

func TestBothSidesProveThemselvesWithEveryHashAndGroup(t *testing.T) {
	for h := SHA256; h.known(); h++ {
		for g := Null; g.known(); g++ {
			for name, c := range map[string]Credentials{"one-way": oneWay, "mutual": mutual} {
				ctrl := c
				ctrl.Hashes, ctrl.Groups = HashSet(h), GroupSet(g)
				r := newRig(t, c, ctrl)
				if err := r.run(); err != nil || !r.ctrl.Authenticated() || r.ctrl.Err() != nil {
					t.Errorf("%v, %v, %s: %v, %v", h, g, name, err, r.ctrl.Err())
				}
			}
		}
	}
}

func TestASecretOfAnyLengthWorksWithAnyTransformation(t *testing.T) {
	long := bytes.Repeat([]byte("0123456789abcdef"), 4)
	for h := Hash(0); h <= SHA512; h++ {
		for _, n := range []int{32, 48, 64} {
			r := newRig(t, Credentials{Secret: FormatSecret(h, long[:n])}, Credentials{Secret: FormatSecret(h, long[:n])})
			if err := r.run(); err != nil || !r.ctrl.Authenticated() {
				t.Errorf("%d bytes, %v: %v", n, h, err)
			}
		}
	}
}

func TestAWrongSecretIsRefusedByWhoeverChecksIt(t *testing.T) {
	other := bytes.Clone(rawCtrl)
	other[0] ^= 1
	for name, c := range map[string]struct {
		ctrl       Credentials
		host, peer error
	}{
		"of the host":       {Credentials{Secret: FormatSecret(0, rawCtrl), ControllerSecret: mutual.ControllerSecret}, ErrRefused, ErrWrongResponse},
		"other transform":   {Credentials{Secret: FormatSecret(SHA256, rawHost), ControllerSecret: mutual.ControllerSecret}, ErrRefused, ErrWrongResponse},
		"of the controller": {Credentials{Secret: mutual.Secret, ControllerSecret: FormatSecret(SHA384, other)}, ErrWrongResponse, ErrRefused},
		"none to prove":     {oneWay, ErrRefused, ErrProtocol},
	} {
		r := newRig(t, mutual, c.ctrl)
		err := r.run()
		if !errors.Is(err, c.host) || !errors.Is(r.ctrl.Err(), c.peer) || r.ctrl.Authenticated() || !r.ctrl.Over() {
			t.Errorf("%s: host %v, controller %v", name, err, r.ctrl.Err())
		}
		if s := fmt.Sprint(err, r.ctrl.Err()); strings.Contains(s, "DHHC") || strings.Contains(s, "they say") {
			t.Errorf("%s: %s", name, s)
		}
	}
}

func TestNamesArePartOfTheProof(t *testing.T) {
	for _, names := range [][2]string{{hostNQN, subNQN + "x"}, {hostNQN + "x", subNQN}} {
		r := newRig(t, mutual, mutual)
		var err error
		if r.ctrl, err = NewController(mutual, names[0], names[1], new(Source)); err != nil {
			t.Fatal(err)
		}
		if err := r.run(); !errors.Is(err, ErrRefused) || r.ctrl.Authenticated() {
			t.Errorf("%v: %v", names, err)
		}
	}
}

// B-26: bidirectional required means that a silent controller is refused.
func TestB26AControllerThatDoesNotProveItselfIsRefused(t *testing.T) {
	r := newRig(t, mutual, mutual)
	r.toHost = func(n int, msg []byte) []byte {
		if n == 1 {
			return (&success1{tid: r.host.t.tid, hashLen: 32}).encode()
		}
		return msg
	}
	if err := r.run(); !errors.Is(err, ErrSilent) || r.ctrl.Authenticated() {
		t.Error(err)
	}
}

func TestAReflectedChallengeIsRefused(t *testing.T) {
	r := newRig(t, oneWay, oneWay)
	mine, err := r.host.src.New(32) // asked on another connection
	if err != nil {
		t.Fatal(err)
	}
	r.toHost = func(_ int, msg []byte) []byte {
		copy(msg[fixedLen:], mine)
		return msg
	}
	if err := r.run(); !errors.Is(err, ErrReflected) {
		t.Errorf("host: %v", err)
	}
	r = newRig(t, mutual, mutual)
	r.toCtrl = func(n int, msg []byte) []byte {
		if n == 1 {
			copy(msg[fixedLen+32:], r.ctrl.c1)
		}
		return msg
	}
	if err := r.run(); !errors.Is(r.ctrl.Err(), ErrReflected) || !errors.Is(err, ErrRefused) {
		t.Errorf("controller: %v, host: %v", r.ctrl.Err(), err)
	}
}

func TestOnlyWhatBothAllowIsUsed(t *testing.T) {
	for _, c := range []struct {
		host, ctrl Credentials
		why        explanation
	}{
		{Credentials{Hashes: HashSet(SHA256)}, Credentials{Hashes: HashSet(SHA384, SHA512)}, hashNotUsable},
		{Credentials{Groups: GroupSet(Null)}, Credentials{Groups: GroupSet(FFDHE2048)}, groupNotUsable},
	} {
		c.host.Secret, c.ctrl.Secret = oneWay.Secret, oneWay.Secret
		r := newRig(t, c.host, c.ctrl)
		if err := r.run(); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), c.why.String()) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	host := oneWay
	host.Groups, host.Hashes = GroupSet(FFDHE2048), HashSet(SHA512)
	r := newRig(t, host, oneWay)
	if err := r.run(); err != nil || r.ctrl.group != FFDHE2048 || r.ctrl.t.hash != SHA512 {
		t.Errorf("%v: %v, %v", err, r.ctrl.group, r.ctrl.t.hash)
	}
}

func TestTheHostTakesNothingThatItDidNotOffer(t *testing.T) {
	host := oneWay
	host.Groups, host.Hashes = GroupSet(FFDHE2048), HashSet(SHA256)
	for name, spoil := range map[string]func(msg []byte){
		"hash":              func(b []byte) { b[8] = byte(SHA384) },
		"unknown hash":      func(b []byte) { b[8] = 9 },
		"hash length":       func(b []byte) { b[6] = 48 },
		"null group":        func(b []byte) { b[9] = byte(Null) },
		"other group":       func(b []byte) { b[9] = byte(FFDHE8192) },
		"no value":          func(b []byte) { b[10], b[11] = 0, 0 },
		"a long value":      func(b []byte) { b[10]++ },
		"value 0":           func(b []byte) { clear(b[48 : 48+256]) },
		"value 1":           func(b []byte) { clear(b[48 : 48+256]); b[48+255] = 1 },
		"value p-1":         func(b []byte) { p := groups[FFDHE2048].prime().Bytes(); p[255]--; copy(b[48:], p) },
		"value p":           func(b []byte) { copy(b[48:], groups[FFDHE2048].prime().Bytes()) },
		"sequence 0":        func(b []byte) { clear(b[12:16]) },
		"transaction":       func(b []byte) { b[4] ^= 1 },
		"another message":   func(b []byte) { b[1] = idSuccess1 },
		"challenge too big": func(b []byte) { b[11] = 0xff },
	} {
		r := newRig(t, host, oneWay)
		r.toHost = func(_ int, msg []byte) []byte { spoil(msg); return msg }
		told := false
		r.toCtrl = func(n int, msg []byte) []byte { told = n == 1 && msg[1] == idFailure2; return msg }
		if err := r.run(); !errors.Is(err, ErrProtocol) || !told || r.ctrl.Authenticated() {
			t.Errorf("%s: %v, told %v", name, err, told)
		}
	}
}

func TestTheControllerTakesNoReplyThatDoesNotFit(t *testing.T) {
	host := mutual
	host.Groups, host.Hashes = GroupSet(FFDHE2048), HashSet(SHA256)
	at := fixedLen + 64 // of g^y
	for name, spoil := range map[string]func(b []byte) []byte{
		"hash length": func(b []byte) []byte { b[6] = 0; return b },
		"no value":    func(b []byte) []byte { b[10], b[11] = 0, 0; return b[:at] },
		"value 0":     func(b []byte) []byte { clear(b[at:]); return b },
		"sequence 0":  func(b []byte) []byte { clear(b[12:16]); return b },
		"CVALID 2":    func(b []byte) []byte { b[8] = 2; return b },
		"transaction": func(b []byte) []byte { b[4] ^= 1; return b },
		"cut":         func(b []byte) []byte { return b[:len(b)-1] },
		"too long":    func(b []byte) []byte { return append(b, 0) },
		"empty":       func([]byte) []byte { return nil },
		"out of turn": func([]byte) []byte { return encodeSuccess2(1) },
	} {
		r := newRig(t, host, mutual)
		r.toCtrl = func(n int, msg []byte) []byte {
			if n == 1 {
				return spoil(msg)
			}
			return msg
		}
		if err := r.run(); !errors.Is(err, ErrRefused) || !errors.Is(r.ctrl.Err(), ErrProtocol) || !r.ctrl.Over() {
			t.Errorf("%s: host %v, controller %v", name, err, r.ctrl.Err())
		}
	}
}

func TestSecureChannelConcatenationIsRefused(t *testing.T) {
	r := newRig(t, oneWay, oneWay)
	r.toCtrl = func(_ int, msg []byte) []byte { msg[6] = 2; return msg }
	if err := r.run(); !errors.Is(err, ErrRefused) || !errors.Is(r.ctrl.Err(), ErrConcatenation) {
		t.Errorf("host %v, controller %v", err, r.ctrl.Err())
	}
	if _, err := oneWay.Required(true, true); !errors.Is(err, ErrConcatenation) {
		t.Error(err)
	}
}

func TestAHostMayAuthenticateAgain(t *testing.T) {
	r := newRig(t, mutual, mutual)
	if err := r.run(); err != nil {
		t.Fatal(err)
	}
	for range maxStarts + 1 {
		r.host, _ = NewHost(mutual, hostNQN, subNQN, r.host.src)
		if err := r.run(); err != nil || !r.ctrl.Authenticated() {
			t.Fatal(err, r.ctrl.Err())
		}
	}
	r.host, _ = NewHost(Credentials{Secret: FormatSecret(0, rawCtrl)}, hostNQN, subNQN, r.host.src)
	if err := r.run(); err == nil || r.ctrl.Authenticated() {
		t.Error("a failed attempt leaves the host authenticated")
	}
}

func TestAHostThatNeverFinishesIsCutOff(t *testing.T) {
	r := newRig(t, oneWay, oneWay)
	for range maxStarts {
		r.ctrl.Take((&negotiate{tid: 7, hashes: []byte{1}, groups: []byte{0}}).encode())
		if msg, err := r.ctrl.Give(MaxMessage); err != nil || msg[1] != idChallenge {
			t.Fatalf("%x, %v", msg, err)
		}
	}
	r.ctrl.Take((&negotiate{tid: 7, hashes: []byte{1}, groups: []byte{0}}).encode())
	if msg, err := r.ctrl.Give(MaxMessage); err != nil || msg[1] != idFailure1 || !r.ctrl.Over() {
		t.Errorf("%x, %v", msg, err)
	}
}

func TestATooShortBufferCostsNothing(t *testing.T) {
	r := newRig(t, oneWay, oneWay)
	out, _, err := r.host.Next(nil)
	if err != nil {
		t.Fatal(err)
	}
	r.ctrl.Take(out)
	if msg, err := r.ctrl.Give(47); !errors.Is(err, ErrBuffer) {
		t.Fatalf("%x, %v", msg, err)
	}
	msg, err := r.ctrl.Give(48)
	if err != nil {
		t.Fatal(err)
	}
	if out, _, err = r.host.Next(msg); err != nil {
		t.Fatal(err)
	}
	r.ctrl.Take(out)
	if msg, err = r.ctrl.Give(16); err != nil || !r.ctrl.Authenticated() {
		t.Fatal(err, r.ctrl.Err())
	}
	if _, done, err := r.host.Next(msg); err != nil || !done {
		t.Error(done, err)
	}
}

func TestReceiveWithNothingToReceiveFails(t *testing.T) {
	r := newRig(t, oneWay, oneWay)
	for range 2 {
		if msg, err := r.ctrl.Give(MaxMessage); err != nil || msg[1] != idFailure1 || !r.ctrl.Over() {
			t.Errorf("%x, %v", msg, err)
		}
	}
	r.ctrl.Take((&negotiate{hashes: []byte{1}, groups: []byte{0}}).encode())
	if !r.ctrl.Over() {
		t.Error("a broken exchange goes on")
	}
}

// A key pair of one end alone shows the raw value; some have a leading zero.
func TestAPublicValueHasTheLengthOfItsGroup(t *testing.T) {
	for g := FFDHE2048; g.known(); g++ {
		a, err := newKeyPair(g, new(Source))
		if err != nil {
			t.Fatal(err)
		}
		b, err := newKeyPair(g, new(Source))
		if err != nil {
			t.Fatal(err)
		}
		ab, err := a.shared(b.public())
		if err != nil {
			t.Fatal(err)
		}
		ba, err := b.shared(bytes.TrimLeft(a.public(), "\x00")) // OpenSSL's form
		if err != nil || !bytes.Equal(ab, ba) || len(ab) != g.size() || len(a.public()) != g.size() {
			t.Errorf("%v: %d and %d bytes, %v", g, len(ab), len(ba), err)
		}
	}
}

func TestAnExchangeNeedsRandomBytes(t *testing.T) {
	r := newRig(t, mutual, mutual)
	r.host.src.Rand = strings.NewReader("too few")
	if err := r.run(); err == nil || r.ctrl.Authenticated() {
		t.Error("a challenge of nothing")
	}
	r = newRig(t, mutual, mutual)
	r.ctrl.src.Rand = strings.NewReader("too few")
	if err := r.run(); err == nil || r.ctrl.Authenticated() {
		t.Error("a challenge of nothing")
	}
}
