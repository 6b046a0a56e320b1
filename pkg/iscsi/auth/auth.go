// Package auth is CHAP (RFC 7143 12.1.3, RFC 1994) for both ends of an iSCSI
// login: with MD5, one-way and mutual.
//
// Both ends are state machines over text keys: no socket, no clock.
package auth

import (
	"crypto/md5" //nolint:gosec // CHAP_A=5 is what every target speaks (RFC 7143 12.1.3)
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"sync"
)

const redacted = "[redacted]"

// Secret is a CHAP secret. It never prints itself (I10).
type Secret string

// String hides the secret.
func (Secret) String() string { return redacted }

// GoString hides the secret.
func (Secret) GoString() string { return redacted }

// MarshalText hides the secret, in JSON and YAML as well.
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// MarshalJSON hides the secret.
func (Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }

// Format hides the secret whatever the verb is: %x would print its bytes.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// Credentials are what one end needs. User and Secret prove the initiator to
// the target; MutualUser and MutualSecret, if set, prove the target.
type Credentials struct {
	User         string
	Secret       Secret
	MutualUser   string
	MutualSecret Secret
}

// Enabled reports whether CHAP is to be used at all.
func (c *Credentials) Enabled() bool { return c.User != "" || c.Secret != "" || c.Mutual() }

// Mutual reports whether the target must prove itself too.
func (c *Credentials) Mutual() bool { return c.MutualUser != "" || c.MutualSecret != "" }

// Check refuses credentials that cannot work or would not protect. The errors
// name the part, never its content (I10).
func (c *Credentials) Check() error {
	if !c.Enabled() {
		return nil
	}
	if err := checkPart("CHAP", c.User, c.Secret); err != nil {
		return err
	}
	if !c.Mutual() {
		return nil
	}
	if err := checkPart("mutual CHAP", c.MutualUser, c.MutualSecret); err != nil {
		return err
	}
	if subtle.ConstantTimeCompare([]byte(c.Secret), []byte(c.MutualSecret)) == 1 {
		return errors.New("CHAP and mutual CHAP secrets are the same: use two different ones (RFC 7143 9.2.1)")
	}
	return nil
}

func checkPart(what, user string, secret Secret) error {
	switch {
	case user == "":
		return fmt.Errorf("%s secret given without a user name", what)
	case len(user) > MaxUser:
		return fmt.Errorf("%s user name is longer than %d bytes", what, MaxUser)
	case len(secret) < MinSecret:
		return fmt.Errorf("%s secret is shorter than %d bytes (RFC 7143 9.2.1): set a longer one on both ends", what, MinSecret)
	case len(secret) > MaxSecret:
		return fmt.Errorf("%s secret is longer than %d bytes", what, MaxSecret)
	}
	return nil
}

// Response is the CHAP response with MD5 (RFC 1994 4.1): the hash of
// identifier, secret and challenge.
func Response(id byte, secret Secret, challenge []byte) [responseLen]byte {
	h := md5.New() //nolint:gosec // see the import
	_, _ = h.Write([]byte{id})
	_, _ = h.Write([]byte(secret))
	_, _ = h.Write(challenge)
	return [responseLen]byte(h.Sum(nil))
}

// Nonces makes challenges and recognizes those it made lately: a peer that
// sends one back wants us to answer our own question (RFC 7143 9.2.1). Share
// one among all logins of a process. Its zero value is ready.
type Nonces struct {
	// Rand is the source; nil is crypto/rand.
	Rand io.Reader

	mu     sync.Mutex
	recent [recentChallenges][ChallengeLen]byte
	n      int
}

// New makes an identifier and a challenge.
func (o *Nonces) New() (id byte, challenge []byte, err error) {
	src := o.Rand
	if src == nil {
		src = rand.Reader
	}
	b := make([]byte, 1+ChallengeLen)
	if _, err := io.ReadFull(src, b); err != nil {
		return 0, nil, fmt.Errorf("CHAP challenge: %w", err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.recent[o.n%recentChallenges] = [ChallengeLen]byte(b[1:])
	o.n++
	return b[0], b[1:], nil
}

// Mine reports whether challenge is one of the last we made.
func (o *Nonces) Mine(challenge []byte) bool {
	if len(challenge) != ChallengeLen {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range min(o.n, recentChallenges) {
		if o.recent[i] == [ChallengeLen]byte(challenge) {
			return true
		}
	}
	return false
}
