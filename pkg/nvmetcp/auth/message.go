package auth

import (
	"encoding/binary"
	"fmt"
)

// Message types and identifiers (NVMe Base 2.1 section 8.3.4.4).
const (
	typeCommon = 0x00
	typeDHChap = 0x01

	idNegotiate = 0x00
	idChallenge = 0x01
	idReply     = 0x02
	idSuccess1  = 0x03
	idSuccess2  = 0x04
	idFailure2  = 0xf0
	idFailure1  = 0xf1
)

// Lengths of the fixed parts.
const (
	headerLen     = 6
	negotiateLen  = 8
	descriptorLen = 64
	fixedLen      = 16 // of the four DH-HMAC-CHAP messages
	failureLen    = 8
)

// protocolDHChap is the identifier of DH-HMAC-CHAP in a protocol descriptor.
const protocolDHChap = 1

var le = binary.LittleEndian

// kind is type and identifier.
type kind struct{ typ, id byte }

var (
	kindNegotiate = kind{typeCommon, idNegotiate}
	kindChallenge = kind{typeDHChap, idChallenge}
	kindReply     = kind{typeDHChap, idReply}
	kindSuccess1  = kind{typeDHChap, idSuccess1}
	kindSuccess2  = kind{typeDHChap, idSuccess2}
	kindFailure1  = kind{typeCommon, idFailure1}
	kindFailure2  = kind{typeCommon, idFailure2}
)

func (k kind) String() string { return fmt.Sprintf("message %02x/%02x", k.typ, k.id) }

// header reads what all messages begin with.
func header(b []byte) (k kind, tid uint16, err error) {
	if len(b) > MaxMessage {
		return k, 0, faultf(incorrectLength, ErrProtocol, "a message of %d bytes, more than %d", len(b), MaxMessage)
	}
	if len(b) < headerLen {
		return k, 0, short("message", len(b), headerLen)
	}
	return kind{b[0], b[1]}, le.Uint16(b[4:]), nil
}

func short(what string, n, want int) error {
	return faultf(incorrectLength, ErrProtocol, "%s of %d bytes, %d needed", what, n, want)
}

// start makes a message of n zero bytes with its header.
func start(k kind, tid uint16, n int) []byte {
	b := make([]byte, n)
	b[0], b[1] = k.typ, k.id
	le.PutUint16(b[4:], tid)
	return b
}

// negotiate is AUTH_Negotiate with its DH-HMAC-CHAP descriptor.
type negotiate struct {
	tid    uint16
	scc    byte // secure channel concatenation; 0 is none
	hashes []byte
	groups []byte
}

func (m *negotiate) encode() []byte {
	b := start(kindNegotiate, m.tid, negotiateLen+descriptorLen)
	b[6], b[7] = m.scc, 1
	d := b[negotiateLen:]
	d[0], d[2], d[3] = protocolDHChap, byte(len(m.hashes)), byte(len(m.groups)) //nolint:gosec // at most maxIDs
	copy(d[4:4+maxIDs], m.hashes)
	copy(d[4+maxIDs:], m.groups)
	return b
}

func (m *negotiate) decode(b []byte) error {
	if len(b) < negotiateLen {
		return short("AUTH_Negotiate", len(b), negotiateLen)
	}
	*m = negotiate{tid: le.Uint16(b[4:]), scc: b[6]}
	n := int(b[7])
	if want := negotiateLen + n*descriptorLen; n > maxDescriptors || len(b) < want {
		return short("AUTH_Negotiate", len(b), want)
	}
	for d := b[negotiateLen:]; n > 0; n, d = n-1, d[descriptorLen:] {
		if d[0] != protocolDHChap {
			continue
		}
		if d[2] > maxIDs || d[3] > maxIDs {
			return faultf(incorrectLength, ErrProtocol, "%d hashes and %d groups in a descriptor", d[2], d[3])
		}
		m.hashes, m.groups = d[4:4+d[2]], d[4+maxIDs:4+maxIDs+d[3]]
		return nil
	}
	return faultf(notUsable, ErrProtocol, "AUTH_Negotiate does not offer DH-HMAC-CHAP")
}

// challenge is DH-HMAC-CHAP_Challenge.
type challenge struct {
	tid   uint16
	hash  Hash
	group Group
	seq   uint32
	value []byte // C1
	dh    []byte // g^x
}

func (m *challenge) encode() []byte {
	b := start(kindChallenge, m.tid, fixedLen)
	b[6], b[8], b[9] = byte(len(m.value)), byte(m.hash), byte(m.group) //nolint:gosec // a hash
	le.PutUint16(b[10:], uint16(len(m.dh)))                            //nolint:gosec // of a group
	le.PutUint32(b[12:], m.seq)
	return append(append(b, m.value...), m.dh...)
}

func (m *challenge) decode(b []byte) error {
	if len(b) < fixedLen {
		return short("Challenge", len(b), fixedLen)
	}
	hl, dl := int(b[6]), int(le.Uint16(b[10:]))
	if len(b) < fixedLen+hl+dl {
		return short("Challenge", len(b), fixedLen+hl+dl)
	}
	v := b[fixedLen:]
	*m = challenge{tid: le.Uint16(b[4:]), hash: Hash(b[8]), group: Group(b[9]), seq: le.Uint32(b[12:]), value: v[:hl], dh: v[hl : hl+dl]}
	return nil
}

// reply is DH-HMAC-CHAP_Reply. Its challenge has the length of the response
// also if it is not valid.
type reply struct {
	tid      uint16
	asks     bool // CVALID: value is a challenge
	seq      uint32
	response []byte
	value    []byte // C2
	dh       []byte // g^y
}

func (m *reply) size() int { return fixedLen + 2*len(m.response) + len(m.dh) }

func (m *reply) encode() []byte {
	b := start(kindReply, m.tid, fixedLen)
	b[6] = byte(len(m.response)) //nolint:gosec // a hash
	if m.asks {
		b[8] = 1
	}
	le.PutUint16(b[10:], uint16(len(m.dh))) //nolint:gosec // of a group
	le.PutUint32(b[12:], m.seq)
	return append(append(append(b, m.response...), m.value...), m.dh...)
}

func (m *reply) decode(b []byte) error {
	if len(b) < fixedLen {
		return short("Reply", len(b), fixedLen)
	}
	hl, dl := int(b[6]), int(le.Uint16(b[10:]))
	if len(b) < fixedLen+2*hl+dl {
		return short("Reply", len(b), fixedLen+2*hl+dl)
	}
	if b[8] > 1 {
		return faultf(incorrectLength, ErrProtocol, "CVALID is %#02x", b[8])
	}
	v := b[fixedLen:]
	*m = reply{tid: le.Uint16(b[4:]), asks: b[8] == 1, seq: le.Uint32(b[12:]), response: v[:hl], value: v[hl : 2*hl], dh: v[2*hl : 2*hl+dl]}
	return nil
}

// success1 is DH-HMAC-CHAP_Success1; response is nil if there is none.
type success1 struct {
	tid      uint16
	hashLen  byte
	response []byte
}

func (m *success1) encode() []byte {
	b := start(kindSuccess1, m.tid, fixedLen)
	b[6] = m.hashLen
	if m.response != nil {
		b[8] = 1
	}
	return append(b, m.response...)
}

func (m *success1) decode(b []byte) error {
	if len(b) < fixedLen {
		return short("Success1", len(b), fixedLen)
	}
	*m = success1{tid: le.Uint16(b[4:]), hashLen: b[6]}
	switch hl := int(b[6]); {
	case b[8] > 1:
		return faultf(incorrectLength, ErrProtocol, "RVALID is %#02x", b[8])
	case b[8] == 0:
		return nil
	case len(b) < fixedLen+hl:
		return short("Success1", len(b), fixedLen+hl)
	default:
		m.response = b[fixedLen : fixedLen+hl]
		return nil
	}
}

// encodeSuccess2 makes DH-HMAC-CHAP_Success2, which says nothing else.
func encodeSuccess2(tid uint16) []byte { return start(kindSuccess2, tid, fixedLen) }

// encodeFailure makes AUTH_Failure1 or 2.
func encodeFailure(k kind, tid uint16, why explanation) []byte {
	b := start(k, tid, failureLen)
	b[6], b[7] = 1, byte(why)
	return b
}

func decodeFailure(b []byte) (explanation, error) {
	if len(b) < failureLen {
		return 0, short("AUTH_Failure", len(b), failureLen)
	}
	return explanation(b[7]), nil
}
