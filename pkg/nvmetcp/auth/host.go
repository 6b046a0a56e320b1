package auth

import (
	"crypto/subtle"
	"fmt"
)

// Host is the host's side of one exchange on one queue.
type Host struct {
	cred       Credentials
	host, ctrl *key
	src        *Source
	t          terms
	step       func(*Host, []byte) ([]byte, bool, error)
	begun      bool // the controller has a message of ours
	c2         []byte
	s2         uint32
}

// NewHost prepares an exchange. Nothing is sent when it fails: errors are those
// of the configuration.
func NewHost(c Credentials, hostNQN, subNQN string, src *Source) (*Host, error) {
	h := &Host{cred: c, src: src, t: terms{host: hostNQN, sub: subNQN}, step: (*Host).offer}
	var err error
	if h.host, h.ctrl, err = prepare(&c, hostNQN, subNQN); err != nil {
		return nil, err
	}
	return h, nil
}

func prepare(c *Credentials, hostNQN, subNQN string) (host, ctrl *key, err error) {
	if host, ctrl, err = c.keys(); err != nil {
		return nil, nil, err
	}
	if host == nil {
		return nil, nil, fmt.Errorf("%w: no host secret", ErrConfig)
	}
	if err := checkNQN("host", hostNQN); err != nil {
		return nil, nil, err
	}
	return host, ctrl, checkNQN("subsystem", subNQN)
}

// Next takes what Authentication Receive brought (nil the first time; bytes
// after the message are ignored: controllers fill the buffer) and returns what
// to send with Authentication Send, if anything. Then, with an error, the queue
// must be closed; when done, it may be used; otherwise the next message is
// received, into MaxMessage bytes.
func (h *Host) Next(in []byte) (out []byte, done bool, err error) {
	if h.step == nil {
		return nil, false, faultf(incorrectOrder, ErrProtocol, "an exchange goes on after its end")
	}
	out, done, err = h.step(h, in)
	if err != nil {
		return h.fail(err)
	}
	if done {
		h.step = nil
	}
	return out, done, nil
}

// fail ends the exchange; the controller is told, unless it told us.
func (h *Host) fail(err error) ([]byte, bool, error) {
	h.step = nil
	if f := tellOf(err); h.begun && f != 0 {
		return encodeFailure(kindFailure2, h.t.tid, f), false, err
	}
	return nil, false, err
}

// expect checks the header of a message from the controller.
func (h *Host) expect(want kind, in []byte) error {
	k, tid, err := header(in)
	if err != nil {
		return err
	}
	if k == kindFailure1 {
		why, err := decodeFailure(in)
		if err != nil {
			return err
		}
		return faultf(0, ErrRefused, "%v", why)
	}
	if k != want {
		return faultf(incorrectOrder, ErrProtocol, "%v instead of %v", k, want)
	}
	if tid != h.t.tid {
		return faultf(incorrectLength, ErrProtocol, "transaction %#04x instead of %#04x", tid, h.t.tid)
	}
	return nil
}

func (h *Host) offer([]byte) ([]byte, bool, error) {
	h.t.tid = h.src.transaction()
	m := negotiate{tid: h.t.tid}
	for id := SHA256; id.known(); id++ {
		if h.cred.Hashes.has(id) {
			m.hashes = append(m.hashes, byte(id))
		}
	}
	for id := Null; id.known(); id++ {
		if h.cred.Groups.has(id) {
			m.groups = append(m.groups, byte(id))
		}
	}
	h.step, h.begun = (*Host).answer, true
	return m.encode(), false, nil
}

func (h *Host) answer(in []byte) ([]byte, bool, error) {
	if err := h.expect(kindChallenge, in); err != nil {
		return nil, false, err
	}
	var c challenge
	if err := c.decode(in); err != nil {
		return nil, false, err
	}
	if err := h.check(&c); err != nil {
		return nil, false, err
	}
	m := reply{tid: h.t.tid}
	if err := h.exchangeKeys(&c, &m); err != nil {
		return nil, false, err
	}
	m.response = h.t.hostResponse(h.host.transform(h.t.host), c.value, c.seq)
	if err := h.ask(&m); err != nil {
		return nil, false, err
	}
	h.step = (*Host).verify
	return m.encode(), false, nil
}

// check holds the challenge against what was offered.
func (h *Host) check(c *challenge) error {
	switch {
	case !h.cred.Hashes.has(c.hash):
		return faultf(hashNotUsable, ErrProtocol, "the controller chose %v, which was not offered", c.hash)
	case len(c.value) != c.hash.size():
		return faultf(hashNotUsable, ErrProtocol, "a challenge of %d bytes with %v", len(c.value), c.hash)
	case !h.cred.Groups.has(c.group):
		return faultf(groupNotUsable, ErrProtocol, "the controller chose %v, which was not offered", c.group)
	case c.group == Null && len(c.dh) != 0:
		return faultf(incorrectLength, ErrProtocol, "a value of %d bytes with the null group", len(c.dh))
	case c.seq == 0:
		return faultf(incorrectLength, ErrProtocol, "a challenge with sequence number 0")
	case h.src.Mine(c.value):
		return faultf(failed, ErrReflected, "as its own")
	}
	h.t.hash = c.hash
	return nil
}

func (h *Host) exchangeKeys(c *challenge, m *reply) error {
	if c.group == Null {
		return nil
	}
	pair, err := newKeyPair(c.group, h.src)
	if err != nil {
		return err
	}
	shared, err := pair.shared(c.dh)
	if err != nil {
		return err
	}
	h.t.session = h.t.hash.sum(shared)
	m.dh = pair.public()
	return nil
}

// ask puts our challenge into the reply; without one there are zeros.
func (h *Host) ask(m *reply) (err error) {
	m.value = make([]byte, h.t.hash.size())
	if h.ctrl == nil {
		return nil
	}
	if h.c2, err = h.src.New(len(m.value)); err != nil {
		return err
	}
	if h.s2, err = h.src.sequence(); err != nil {
		return err
	}
	m.asks, m.seq, m.value = true, h.s2, h.c2
	return nil
}

func (h *Host) verify(in []byte) ([]byte, bool, error) {
	if err := h.expect(kindSuccess1, in); err != nil {
		return nil, false, err
	}
	var m success1
	if err := m.decode(in); err != nil {
		return nil, false, err
	}
	if int(m.hashLen) != h.t.hash.size() {
		return nil, false, faultf(hashNotUsable, ErrProtocol, "Success1 with a hash of %d bytes", m.hashLen)
	}
	if h.ctrl == nil {
		return nil, true, nil
	}
	if m.response == nil {
		return nil, false, &fault{ErrSilent, failed}
	}
	want := h.t.controllerResponse(h.ctrl.transform(h.t.sub), h.c2, h.s2)
	if subtle.ConstantTimeCompare(m.response, want) != 1 {
		return nil, false, faultf(failed, ErrWrongResponse, "the controller does not know the controller secret")
	}
	return encodeSuccess2(h.t.tid), true, nil
}
