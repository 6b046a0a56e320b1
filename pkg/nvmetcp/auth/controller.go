package auth

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"slices"
)

// ErrBuffer: Authentication Receive has no room for the message. Answer with
// Invalid Field; the exchange stands where it was.
var ErrBuffer = errors.New("DH-HMAC-CHAP: the buffer of Authentication Receive is too short")

// phase is what the controller expects next.
type phase byte

const (
	awaitsNegotiate phase = iota
	owesChallenge
	awaitsReply
	owesSuccess1
	awaitsSuccess2
	ended       // one exchange succeeded; another may begin
	owesFailure // AUTH_Failure1 is to be fetched
	broken      // over: the connection must end
)

// Controller is the controller's side of one queue.
type Controller struct {
	cred       Credentials
	host, ctrl *key
	src        *Source

	t      terms
	phase  phase
	proven bool
	starts int // exchanges begun by a host that never proved itself
	err    error
	tell   explanation

	group Group
	pair  *keyPair // nil with the null group
	c1    []byte
	s1    uint32
	proof []byte // our response to C2, nil if not asked for
}

// NewController prepares the controller's side for the host of a Connect
// command. Errors are those of the configuration.
func NewController(c Credentials, hostNQN, subNQN string, src *Source) (*Controller, error) {
	o := &Controller{cred: c, src: src, t: terms{host: hostNQN, sub: subNQN}}
	var err error
	if o.host, o.ctrl, err = prepare(&c, hostNQN, subNQN); err != nil {
		return nil, err
	}
	return o, nil
}

// Authenticated reports whether the host has proven itself on this queue. A
// failed attempt to do it again takes that back.
func (c *Controller) Authenticated() bool { return c.proven }

// Err is why the exchange failed, nil if it did not.
func (c *Controller) Err() error { return c.err }

// Over reports that the connection must be ended: the exchange failed, and
// what the host is to be told about it has been fetched, or it told us.
func (c *Controller) Over() bool { return c.phase == broken }

// Take takes the content of Authentication Send, which completes successfully
// whatever is in it: what is wrong is told by the next Give.
func (c *Controller) Take(msg []byte) {
	if c.phase == owesFailure || c.phase == broken {
		return // the first failure counts
	}
	k, tid, err := header(msg)
	if err == nil {
		err = c.take(k, tid, msg)
	}
	if err != nil {
		c.fail(err)
	}
}

func (c *Controller) take(k kind, tid uint16, msg []byte) error {
	if k == kindNegotiate { // begins again, whatever was under way
		return c.negotiate(msg)
	}
	if c.phase != awaitsNegotiate && tid != c.t.tid {
		return faultf(incorrectLength, ErrProtocol, "transaction %#04x instead of %#04x", tid, c.t.tid)
	}
	switch {
	case k == kindReply && c.phase == awaitsReply:
		return c.reply(msg)
	case k == kindSuccess2 && c.phase == awaitsSuccess2:
		if len(msg) != fixedLen {
			return short("Success2", len(msg), fixedLen)
		}
		c.phase, c.proven = ended, true
		return nil
	case k == kindFailure2 && (c.phase == awaitsReply || c.phase == awaitsSuccess2):
		return c.toldOff(msg)
	}
	return faultf(incorrectOrder, ErrProtocol, "%v out of order", k)
}

// toldOff takes AUTH_Failure2: the host refuses us, and nobody fetches more.
func (c *Controller) toldOff(msg []byte) error {
	why, err := decodeFailure(msg)
	if err != nil {
		return err
	}
	c.phase, c.proven = broken, false
	c.err = faultf(0, ErrRefused, "%v", why)
	return nil
}

func (c *Controller) fail(err error) {
	c.phase, c.proven, c.err, c.tell = owesFailure, false, err, tellOf(err)
}

func (c *Controller) negotiate(msg []byte) error {
	var m negotiate
	if err := m.decode(msg); err != nil {
		return err
	}
	c.t.tid = m.tid
	if want := negotiateLen + int(msg[7])*descriptorLen; len(msg) != want {
		return faultf(incorrectLength, ErrProtocol, "AUTH_Negotiate of %d bytes instead of %d", len(msg), want)
	}
	if m.scc != 0 {
		return faultf(concatMismatch, ErrConcatenation, "SC_C is %#02x", m.scc)
	}
	if c.starts++; c.starts > maxStarts && !c.proven {
		return faultf(failed, ErrProtocol, "begun %d times and never finished", c.starts)
	}
	return c.choose(&m)
}

// choose takes the first of the host's list that is allowed here.
func (c *Controller) choose(m *negotiate) error {
	h := slices.IndexFunc(m.hashes, func(id byte) bool { return c.cred.Hashes.has(Hash(id)) })
	if h < 0 {
		return faultf(hashNotUsable, ErrProtocol, "no hash of %x is allowed", m.hashes)
	}
	g := slices.IndexFunc(m.groups, func(id byte) bool { return c.cred.Groups.has(Group(id)) })
	if g < 0 {
		return faultf(groupNotUsable, ErrProtocol, "no group of %x is allowed", m.groups)
	}
	c.t.hash, c.group = Hash(m.hashes[h]), Group(m.groups[g])
	c.t.session, c.pair, c.c1, c.proof = nil, nil, nil, nil
	c.phase = owesChallenge
	return nil
}

// Give makes the content for Authentication Receive with room for max bytes
// (AL). An error is ErrBuffer, or a lack of randomness.
func (c *Controller) Give(max int) ([]byte, error) {
	msg, next, err := c.give()
	if err != nil {
		return nil, err
	}
	if len(msg) > max {
		return nil, fmt.Errorf("%w: %d bytes, %d needed", ErrBuffer, max, len(msg))
	}
	c.phase = next
	if next == ended {
		c.proven = true
	}
	return msg, nil
}

// give makes the message that is owed and names the phase after it.
func (c *Controller) give() ([]byte, phase, error) {
	switch c.phase {
	case owesChallenge:
		msg, err := c.challenge()
		return msg, awaitsReply, err
	case owesSuccess1:
		m := success1{tid: c.t.tid, hashLen: byte(c.t.hash.size()), response: c.proof} //nolint:gosec // a hash
		if c.proof != nil {
			return m.encode(), awaitsSuccess2, nil
		}
		return m.encode(), ended, nil
	case owesFailure, broken:
	default:
		c.fail(faultf(incorrectOrder, ErrProtocol, "Authentication Receive with nothing to receive"))
	}
	return encodeFailure(kindFailure1, c.t.tid, c.tell), broken, nil
}

// challenge is made once, also if the buffer was too short at first.
func (c *Controller) challenge() (_ []byte, err error) {
	m := challenge{tid: c.t.tid, hash: c.t.hash, group: c.group}
	if c.c1 == nil {
		if c.c1, err = c.src.New(c.t.hash.size()); err != nil {
			return nil, err
		}
		if c.s1, err = c.src.sequence(); err != nil {
			return nil, err
		}
	}
	if c.group != Null && c.pair == nil {
		if c.pair, err = newKeyPair(c.group, c.src); err != nil {
			return nil, err
		}
	}
	m.value, m.seq = c.c1, c.s1
	if c.pair != nil {
		m.dh = c.pair.public()
	}
	return m.encode(), nil
}

func (c *Controller) reply(msg []byte) error {
	var m reply
	if err := m.decode(msg); err != nil {
		return err
	}
	if len(m.response) != c.t.hash.size() || len(msg) != m.size() {
		return faultf(incorrectLength, ErrProtocol, "a Reply of %d bytes with a hash of %d", len(msg), len(m.response))
	}
	if m.asks && m.seq == 0 {
		return faultf(incorrectLength, ErrProtocol, "a challenge with sequence number 0")
	}
	if err := c.exchangeKeys(&m); err != nil {
		return err
	}
	want := c.t.hostResponse(c.host.transform(c.t.host), c.c1, c.s1)
	if subtle.ConstantTimeCompare(m.response, want) != 1 {
		return faultf(failed, ErrWrongResponse, "the host does not know its secret")
	}
	c.phase = owesSuccess1
	return c.prove(&m)
}

func (c *Controller) exchangeKeys(m *reply) error {
	if c.pair == nil {
		if len(m.dh) != 0 {
			return faultf(incorrectLength, ErrProtocol, "a value of %d bytes with the null group", len(m.dh))
		}
		return nil
	}
	shared, err := c.pair.shared(m.dh)
	if err != nil {
		return err
	}
	c.t.session = c.t.hash.sum(shared)
	return nil
}

// prove answers C2, if the host asks.
func (c *Controller) prove(m *reply) error {
	switch {
	case !m.asks:
		return nil
	case c.src.Mine(m.value):
		return faultf(failed, ErrReflected, "as its own")
	case c.ctrl == nil:
		return faultf(failed, ErrProtocol, "the host asks for proof, and no controller secret is set")
	}
	c.proof = c.t.controllerResponse(c.ctrl.transform(c.t.sub), m.value, m.seq)
	return nil
}
