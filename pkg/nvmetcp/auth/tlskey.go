package auth

import (
	"crypto/hkdf"
	"encoding/base64"
	"errors"
	"fmt"
)

// ErrTLS: the configuration demands TLS, which is not offered: crypto/tls has
// no external keys. Plain TCP instead would be a silent downgrade (B-25).
var ErrTLS = errors.New("NVMe/TCP over TLS is not supported: remove the TLS key, and protect the storage network by other means, or do not use this subsystem")

const tlsKeyPrefix = "NVMeTLSkey-1:"

// TLSKey is a configured key in the interchange form (NVMe/TCP 1.1 section
// 3.6.1.5): "NVMeTLSkey-1:hh:base64(key, CRC-32):". hh is 00 (to be used as it
// is), 01 (SHA-256, 32 bytes) or 02 (SHA-384, 48 bytes).
type TLSKey struct{ key key }

// ParseTLSKey reads a key. Errors say what is wrong, never the text (I10).
func ParseTLSKey(s Secret) (*TLSKey, error) {
	if len(s) > maxSecretText {
		return nil, fmt.Errorf("%w: TLS key: longer than %d characters", ErrConfig, maxSecretText)
	}
	hash, raw, err := parseSealed(string(s), tlsKeyPrefix, SHA384)
	if err != nil {
		return nil, fmt.Errorf("%w: TLS key: %w", ErrConfig, err)
	}
	k := &TLSKey{key{hash, raw}}
	if n := len(raw); n != 32 && n != 48 || hash != 0 && n != hash.size() {
		return nil, fmt.Errorf("%w: TLS key of %d bytes with hash %02d: want 32 with 01, 48 with 02, either with 00", ErrConfig, n, hash)
	}
	return k, nil
}

// Hash is the hash of the key's identity: the declared one, or else the one of
// its length.
func (k *TLSKey) Hash() Hash {
	switch {
	case k.key.hash != 0:
		return k.key.hash
	case len(k.key.raw) == SHA256.size():
		return SHA256
	}
	return SHA384
}

// Identity is what a client names the key by in the handshake (NVMe/TCP 1.1
// section 3.6.1.3). Version 1 holds a digest of the key; version 0 does not, and
// is for targets that know no other.
func (k *TLSKey) Identity(version int, hostNQN, subNQN string) (string, error) {
	if version != 0 && version != 1 {
		return "", fmt.Errorf("%w: TLS identity version %d: want 0 or 1", ErrConfig, version)
	}
	if err := errors.Join(checkNQN("host", hostNQN), checkNQN("subsystem", subNQN)); err != nil {
		return "", err
	}
	h := k.Hash()
	id := fmt.Sprintf("NVMe%dR%02d %s %s", version, byte(h), hostNQN, subNQN)
	if version == 0 {
		return id, nil
	}
	retained, err := k.retained(hostNQN)
	if err != nil {
		return "", err
	}
	digest := h.mac(retained, []byte(hostNQN+" "+subNQN+" NVMe-over-Fabrics"))
	return id + " " + base64.StdEncoding.EncodeToString(digest), nil
}

// retained is the key bound to the host (NVMe/TCP 1.1 section 3.6.1.2), by
// HKDF-Expand-Label of TLS 1.3 (RFC 8446 section 7.1).
func (k *TLSKey) retained(hostNQN string) ([]byte, error) {
	if k.key.hash == 0 {
		return k.key.raw, nil
	}
	h := hashes[k.key.hash].new
	prk, err := hkdf.Extract(h, k.key.raw, nil)
	if err != nil {
		return nil, fmt.Errorf("TLS key: %w", err)
	}
	const label = "tls13 HostNQN"
	n := len(k.key.raw)
	info := append([]byte{0, byte(n), byte(len(label))}, label...) //nolint:gosec // 32 or 48
	info = append(append(info, byte(len(hostNQN))), hostNQN...)    //nolint:gosec // at most MaxNQN
	b, err := hkdf.Expand(h, prk, string(info), n)
	if err != nil {
		return nil, fmt.Errorf("TLS key: %w", err)
	}
	return b, nil
}

// refuseTLS is what a configuration with a TLS key comes to.
func refuseTLS(s Secret) error {
	if s == "" {
		return nil
	}
	if _, err := ParseTLSKey(s); err != nil {
		return errors.Join(err, ErrTLS)
	}
	return ErrTLS
}
