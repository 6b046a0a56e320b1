package auth

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/binary"
	"fmt"
	"hash"
)

// Hash is a hash function identifier (NVMe Base 2.1 section 8.3.4.5.2). The zero
// value is none.
type Hash byte

// The hash functions of DH-HMAC-CHAP.
const (
	SHA256 Hash = 1
	SHA384 Hash = 2
	SHA512 Hash = 3
)

var hashes = map[Hash]struct {
	name string
	new  func() hash.Hash
}{
	SHA256: {"sha256", sha256.New},
	SHA384: {"sha384", sha512.New384},
	SHA512: {"sha512", sha512.New},
}

// String is the name that ParseHash takes.
func (h Hash) String() string {
	if d, ok := hashes[h]; ok {
		return d.name
	}
	return fmt.Sprintf("hash %#02x", byte(h))
}

// ParseHash reads "sha256", "sha384" or "sha512".
func ParseHash(name string) (Hash, error) {
	for h, d := range hashes {
		if d.name == name {
			return h, nil
		}
	}
	return 0, fmt.Errorf("hash %.20q: want sha256, sha384 or sha512", name)
}

func (h Hash) known() bool { _, ok := hashes[h]; return ok }

// size is the length of a hash in bytes; h is known.
func (h Hash) size() int { return hashes[h].new().Size() }

func (h Hash) sum(b []byte) []byte {
	d := hashes[h].new()
	_, _ = d.Write(b)
	return d.Sum(nil)
}

func (h Hash) mac(key []byte, parts ...[]byte) []byte {
	m := hmac.New(hashes[h].new, key)
	for _, p := range parts {
		_, _ = m.Write(p)
	}
	return m.Sum(nil)
}

// terms is what both responses of an exchange depend on besides key and
// challenge.
type terms struct {
	hash    Hash
	tid     uint16
	session []byte // H(g^xy), nil with the null group
	host    string // NQNs
	sub     string
}

// hostResponse answers C1 (NVMe Base 2.1 section 8.3.4.5.4).
func (t *terms) hostResponse(key, c1 []byte, s1 uint32) []byte {
	return t.response(key, c1, s1, "HostHost", t.host, t.sub)
}

// controllerResponse answers C2 (NVMe Base 2.1 section 8.3.4.5.5).
func (t *terms) controllerResponse(key, c2 []byte, s2 uint32) []byte {
	return t.response(key, c2, s2, "Controller", t.sub, t.host)
}

func (t *terms) response(key, challenge []byte, seq uint32, role, own, peer string) []byte {
	if t.session != nil {
		challenge = t.hash.mac(t.session, challenge)
	}
	var n [7]byte // sequence number, transaction, secure channel: none
	binary.LittleEndian.PutUint32(n[:], seq)
	binary.LittleEndian.PutUint16(n[4:], t.tid)
	return t.hash.mac(key, challenge, n[:], []byte(role), []byte(own), []byte{0}, []byte(peer))
}
