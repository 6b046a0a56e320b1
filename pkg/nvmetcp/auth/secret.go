package auth

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"

	"github.com/csi-mpath/csi-mpath/pkg/secret"
)

// Secret is a secret in its text form (NVMe Base 2.1 section 8.3.4.5.8):
// "DHHC-1:hh:base64(secret, CRC-32):" with hh 00 (as it is) or 01, 02, 03 (to be
// transformed with SHA-256, 384, 512). It never prints itself (I10).
type Secret = secret.Text

// Credentials are what one end needs, the same for host and controller.
type Credentials struct {
	// Secret proves the host to the controller.
	Secret Secret
	// ControllerSecret, if set, proves the controller to the host, which refuses
	// one that does not.
	ControllerSecret Secret
	// TLSKey demands TLS, which is refused (B-25): it is here so that nobody who
	// configures it gets plain TCP.
	TLSKey Secret
	// Hashes and Groups may be used; the zero value is all of them.
	Hashes Hashes
	Groups Groups
}

// Hashes is a set of hash functions; empty means all.
type Hashes uint8

// HashSet makes a set.
func HashSet(list ...Hash) (s Hashes) {
	for _, h := range list {
		s |= 1 << h
	}
	return s
}

func (s Hashes) has(h Hash) bool { return h.known() && (s == 0 || s>>h&1 == 1) }

// Groups is a set of Diffie-Hellman groups; empty means all.
type Groups uint8

// GroupSet makes a set.
func GroupSet(list ...Group) (s Groups) {
	for _, g := range list {
		s |= 1 << g
	}
	return s
}

func (s Groups) has(g Group) bool { return g.known() && (s == 0 || s>>g&1 == 1) }

// Enabled reports whether authentication is configured at all.
func (c *Credentials) Enabled() bool { return c.Secret != "" || c.Mutual() }

// Mutual reports whether the controller must prove itself too.
func (c *Credentials) Mutual() bool { return c.ControllerSecret != "" }

// Check refuses credentials that cannot work, before anything is sent; call it
// also if authentication is not enabled. The errors name the part, never its
// content (I10).
func (c *Credentials) Check() error {
	_, _, err := c.keys()
	return err
}

// Required decides what the answer to a Connect command means: whether to run
// the exchange on this queue. atr and ascr are the bits of AUTHREQ (NVMe Base
// 2.1 section 6.3): authentication required, and with a secure channel. With a
// controller secret it is run whether asked for or not (B-26).
func (c *Credentials) Required(atr, ascr bool) (bool, error) {
	switch {
	case c.TLSKey != "":
		return false, refuseTLS(c.TLSKey)
	case ascr:
		return false, ErrConcatenation
	case atr && c.Secret == "":
		return false, ErrNoSecret
	}
	return atr || c.Mutual(), nil
}

// keys parses both secrets. The controller's is nil if there is none.
func (c *Credentials) keys() (host, controller *key, err error) {
	if err := refuseTLS(c.TLSKey); err != nil || !c.Enabled() {
		return nil, nil, err
	}
	if c.Secret == "" {
		return nil, nil, fmt.Errorf("%w: a controller secret without a host secret: set both", ErrConfig)
	}
	if host, err = parseSecret(c.Secret); err != nil {
		return nil, nil, fmt.Errorf("%w: host secret: %w", ErrConfig, err)
	}
	if !c.Mutual() {
		return host, nil, nil
	}
	if controller, err = parseSecret(c.ControllerSecret); err != nil {
		return nil, nil, fmt.Errorf("%w: controller secret: %w", ErrConfig, err)
	}
	return host, controller, nil
}

// key is a parsed secret.
type key struct {
	hash Hash // 0: used as it is
	raw  []byte
}

// FormatSecret writes a secret of 32, 48 or 64 bytes in its text form; h is 0
// for one that is used as it is.
func FormatSecret(h Hash, raw []byte) Secret {
	return Secret(fmt.Sprintf("%s%02x:%s:", secretPrefix, byte(h), sealed(raw)))
}

const secretPrefix = "DHHC-1:"

func parseSecret(s Secret) (*key, error) {
	if len(s) > maxSecretText {
		return nil, fmt.Errorf("longer than %d characters", maxSecretText)
	}
	hash, raw, err := parseSealed(string(s), secretPrefix, SHA512)
	if err != nil {
		return nil, err
	}
	if n := len(raw); n != 32 && n != 48 && n != 64 {
		return nil, fmt.Errorf("it has %d bytes, not 32, 48 or 64", n)
	}
	return &key{hash, raw}, nil
}

// transform binds the key to its owner's NQN (NVMe Base 2.1 section
// 8.3.4.5.7), once.
func (k *key) transform(nqn string) []byte {
	if k.hash == 0 {
		return k.raw
	}
	return k.hash.mac(k.raw, []byte(nqn), []byte("NVMe-over-Fabrics"))
}

// sealed is base64 of b and its CRC-32, little-endian.
func sealed(b []byte) string {
	return base64.StdEncoding.EncodeToString(binary.LittleEndian.AppendUint32(b[:len(b):len(b)], crc32.ChecksumIEEE(b)))
}

// parseSealed reads prefix, a two-digit hash of 0 to last, and a sealed value.
// Its errors say what is wrong and where, never the text (I10).
func parseSealed(s, prefix string, last Hash) (Hash, []byte, error) {
	rest, ok := strings.CutPrefix(s, prefix)
	if !ok {
		return 0, nil, fmt.Errorf("it does not begin with %q", prefix)
	}
	if len(rest) < 3 || rest[0] != '0' || rest[1] < '0' || rest[1] > '0'+byte(last) || rest[2] != ':' {
		return 0, nil, fmt.Errorf("the hash after %q is not 00 to %02d", prefix, last)
	}
	body, ok := strings.CutSuffix(rest[3:], ":")
	if !ok {
		return 0, nil, errors.New("it does not end with a colon")
	}
	b, err := base64.StdEncoding.Strict().DecodeString(body)
	if err != nil || strings.ContainsAny(body, "\r\n") || len(b) < 4 {
		return 0, nil, errors.New("the part after the hash is not base64")
	}
	n := len(b) - 4
	if binary.LittleEndian.Uint32(b[n:]) != crc32.ChecksumIEEE(b[:n]) {
		return 0, nil, errors.New("its CRC-32 is wrong: a character was lost or changed in copying")
	}
	return Hash(rest[1] - '0'), b[:n], nil
}

// checkNQN: a name goes into the hash up to its end, so what no peer could have
// sent must not be used.
func checkNQN(what, nqn string) error {
	if nqn == "" || len(nqn) > MaxNQN || strings.ContainsRune(nqn, 0) {
		return fmt.Errorf("%w: %s NQN of %d bytes: want 1 to %d, no NUL", ErrConfig, what, len(nqn), MaxNQN)
	}
	return nil
}
