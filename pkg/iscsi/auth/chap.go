package auth

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"strings"

	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
)

// Errors of an exchange. What the peer proved or failed to prove is definite;
// ErrProtocol is a peer that does not speak CHAP as RFC 7143 12.1.3 says.
var (
	// ErrWrongResponse: the peer does not know the secret.
	ErrWrongResponse = errors.New("CHAP: wrong response")
	// ErrWrongUser: the peer calls itself by another name.
	ErrWrongUser = errors.New("CHAP: unknown user name")
	// ErrReflected: the peer sent a challenge of ours back.
	ErrReflected = errors.New("CHAP: the peer sent our own challenge back")
	// ErrProtocol: keys missing, malformed or not negotiated.
	ErrProtocol = errors.New("CHAP: protocol error")
)

func protocolf(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrProtocol, fmt.Sprintf(format, args...))
}

type challenge struct {
	id    byte
	value []byte
}

// readChallenge reads CHAP_I and CHAP_C. The identifier is 0..255, decimal or
// hex, anything else fails here instead of as a wrong hash.
func readChallenge(keys pdu.Keys) (c challenge, err error) {
	id, ok := keys.Get("CHAP_I")
	if !ok {
		return c, protocolf("no CHAP_I")
	}
	n, err := pdu.ParseNumber(id, 255)
	if err != nil {
		return c, protocolf("CHAP_I: %v", err)
	}
	value, ok := keys.Get("CHAP_C")
	if !ok {
		return c, protocolf("no CHAP_C")
	}
	if c.value, err = pdu.ParseBinary(value); err != nil {
		return c, protocolf("CHAP_C: %v", err)
	}
	c.id = byte(n)
	return c, nil
}

// verify checks CHAP_N and CHAP_R against what user would answer to c.
func (a *algorithm) verify(keys pdu.Keys, user string, secret Secret, c challenge) error {
	name, ok := keys.Get("CHAP_N")
	if !ok {
		return protocolf("no CHAP_N")
	}
	text, ok := keys.Get("CHAP_R")
	if !ok {
		return protocolf("no CHAP_R")
	}
	got, err := pdu.ParseBinary(text)
	if err != nil {
		return protocolf("CHAP_R: %v", err)
	}
	want := a.response(c.id, secret, c.value)
	if len(got) != len(want) {
		return protocolf("CHAP_R has %d bytes, %s makes %d", len(got), a.name, len(want))
	}
	if subtle.ConstantTimeCompare(got, want) != 1 {
		return ErrWrongResponse
	}
	if subtle.ConstantTimeCompare([]byte(name), []byte(user)) != 1 {
		return ErrWrongUser
	}
	return nil
}

func (a *algorithm) answer(user string, secret Secret, c challenge) pdu.Keys {
	r := a.response(c.id, secret, c.value)
	return pdu.Keys{{Key: "CHAP_N", Value: user}, {Key: "CHAP_R", Value: pdu.FormatBinary(r)}}
}

func ask(c challenge) pdu.Keys {
	return pdu.Keys{{Key: "CHAP_I", Value: fmt.Sprint(c.id)}, {Key: "CHAP_C", Value: pdu.FormatBinary(c.value)}}
}

// Initiator is the initiator's side of one exchange.
type Initiator struct {
	cred   *Credentials
	nonces *Nonces
	step   int
	offers []*algorithm
	agreed *algorithm // for both directions
	ours   challenge
}

// NewInitiator starts an exchange; cred must pass Check.
func NewInitiator(cred *Credentials, nonces *Nonces) *Initiator {
	return &Initiator{cred: cred, nonces: nonces, offers: cred.algorithms()}
}

// Start returns the keys of the first leg after AuthMethod=CHAP was agreed.
func (i *Initiator) Start() pdu.Keys { return pdu.Keys{{Key: "CHAP_A", Value: offer(i.offers)}} }

// Misread reports whether a refusal may come from how the target reads CHAP_A, and not
// from the secret: it did not answer the list (LIO before Linux 3.15), or chose something
// else than MD5 (tgt takes 7 for SHA-1, as a draft had it).
func (i *Initiator) Misread() bool { return i.agreed == nil || i.agreed.number != algMD5 }

// Step takes the target's keys and returns those to send next. done says that
// nothing is left to send or check; an error ends the login.
func (i *Initiator) Step(keys pdu.Keys) (reply pdu.Keys, done bool, err error) {
	i.step++
	switch {
	case i.step == 1:
		reply, err = i.respond(keys)
		return reply, err == nil && !i.cred.Mutual(), err
	case i.step == 2 && i.cred.Mutual():
		return nil, true, i.check(keys)
	}
	return nil, false, protocolf("an answer after the exchange ended")
}

func (i *Initiator) respond(keys pdu.Keys) (pdu.Keys, error) {
	number, _ := keys.Get("CHAP_A")
	if i.agreed = numbered(i.offers, number); i.agreed == nil {
		return nil, protocolf("CHAP_A is %q, offered was %s", clip(number), offer(i.offers))
	}
	c, err := readChallenge(keys)
	if err != nil {
		return nil, err
	}
	if i.nonces.Mine(c.value) {
		return nil, ErrReflected
	}
	reply := i.agreed.answer(i.cred.User, i.cred.Secret, c)
	if !i.cred.Mutual() {
		return reply, nil
	}
	if i.ours.id, i.ours.value, err = i.nonces.New(); err != nil {
		return nil, err
	}
	return append(reply, ask(i.ours)...), nil
}

func (i *Initiator) check(keys pdu.Keys) error {
	if err := i.agreed.verify(keys, i.cred.MutualUser, i.cred.MutualSecret, i.ours); err != nil {
		return fmt.Errorf("target's proof: %w", err)
	}
	return nil
}

// Target is the target's side of one exchange.
type Target struct {
	cred   *Credentials
	nonces *Nonces
	step   int
	takes  []*algorithm
	agreed *algorithm // for both directions
	ours   challenge
}

// NewTarget starts an exchange; cred must pass Check.
func NewTarget(cred *Credentials, nonces *Nonces) *Target {
	return &Target{cred: cred, nonces: nonces, takes: cred.algorithms()}
}

// Step takes the initiator's keys and returns those to send back. done says
// that the initiator has proven itself.
func (t *Target) Step(keys pdu.Keys) (reply pdu.Keys, done bool, err error) {
	t.step++
	switch t.step {
	case 1:
		reply, err = t.challenge(keys)
		return reply, false, err
	case 2:
		reply, err = t.verify(keys)
		return reply, err == nil, err
	}
	return nil, false, protocolf("a request after the exchange ended")
}

func (t *Target) challenge(keys pdu.Keys) (reply pdu.Keys, err error) {
	list, _ := keys.Get("CHAP_A")
	if t.agreed = t.pick(list); t.agreed == nil {
		return nil, protocolf("CHAP_A %q offers none of %s", clip(list), offer(t.takes))
	}
	if t.ours.id, t.ours.value, err = t.nonces.New(); err != nil {
		return nil, err
	}
	return append(pdu.Keys{{Key: "CHAP_A", Value: t.agreed.number}}, ask(t.ours)...), nil
}

func (t *Target) verify(keys pdu.Keys) (pdu.Keys, error) {
	if err := t.agreed.verify(keys, t.cred.User, t.cred.Secret, t.ours); err != nil {
		return nil, err
	}
	if _, asked := keys.Get("CHAP_I"); !asked {
		return nil, nil
	}
	if !t.cred.Mutual() {
		return nil, protocolf("the initiator asks for proof, and no mutual secret is set")
	}
	c, err := readChallenge(keys)
	if err != nil {
		return nil, err
	}
	if t.nonces.Mine(c.value) {
		return nil, ErrReflected
	}
	return t.agreed.answer(t.cred.MutualUser, t.cred.MutualSecret, c), nil
}

// pick is the first of a comma list that the target takes: "56" is no "5".
func (t *Target) pick(list string) *algorithm {
	for number := range strings.SplitSeq(list, ",") {
		if a := numbered(t.takes, number); a != nil {
			return a
		}
	}
	return nil
}

func clip(s string) string { return s[:min(len(s), 40)] }
