// Package auth is CHAP (RFC 7143 12.1.3, RFC 1994) for both ends of an iSCSI
// login: with MD5, SHA-1, SHA-256 and SHA3-256, one-way and mutual.
//
// Both ends are state machines over text keys: no socket, no clock.
package auth

import (
	"crypto/subtle"
	"errors"
	"fmt"

	"github.com/csi-mpath/csi-mpath/pkg/secret"
)

// Secret is a CHAP secret. It never prints itself (I10).
type Secret = secret.Text

// Credentials are what one end needs. User and Secret prove the initiator to
// the target; MutualUser and MutualSecret, if set, prove the target.
type Credentials struct {
	User         string
	Secret       Secret
	MutualUser   string
	MutualSecret Secret
	// Algorithms are those to offer, or to take, in this order: open-iscsi's names
	// SHA3-256, SHA256, SHA1 and MD5 with commas between; "" is all of them.
	Algorithms string
}

// Enabled reports whether CHAP is to be used at all.
func (c *Credentials) Enabled() bool { return c.User != "" || c.Secret != "" || c.Mutual() }

// Mutual reports whether the target must prove itself too.
func (c *Credentials) Mutual() bool { return c.MutualUser != "" || c.MutualSecret != "" }

// Fallback are the same credentials for a target that cannot read a list, as LIO before
// Linux 3.15: MD5 alone. ok is false where that is what was tried, or not
// allowed.
func (c *Credentials) Fallback() (alone Credentials, ok bool) {
	list, err := parseAlgorithms(c.Algorithms)
	if err != nil || len(list) < 2 || numbered(list, algMD5) == nil {
		return alone, false
	}
	alone = *c
	alone.Algorithms = MD5
	return alone, true
}

// Check refuses credentials that cannot work or would not protect. The errors
// name the part, never its content (I10).
func (c *Credentials) Check() error {
	if !c.Enabled() {
		return nil
	}
	if _, err := parseAlgorithms(c.Algorithms); err != nil {
		return err
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

func checkPart(what, user string, s Secret) error {
	switch {
	case user == "":
		return fmt.Errorf("%s secret given without a user name", what)
	case len(user) > MaxUser:
		return fmt.Errorf("%s user name is longer than %d bytes", what, MaxUser)
	case len(s) < MinSecret:
		return fmt.Errorf("%s secret is shorter than %d bytes (RFC 7143 9.2.1): set a longer one on both ends", what, MinSecret)
	case len(s) > MaxSecret:
		return fmt.Errorf("%s secret is longer than %d bytes", what, MaxSecret)
	}
	return nil
}

// Nonces makes identifiers and challenges, and recognizes those it made lately.
// Share one among all logins of a process. Its zero value is ready.
type Nonces struct {
	secret.Challenges
}

// New makes an identifier and a challenge.
func (o *Nonces) New() (id byte, challenge []byte, err error) {
	var b [1]byte
	if err = o.Random(b[:]); err == nil {
		challenge, err = o.Challenges.New(ChallengeLen)
	}
	if err != nil {
		return 0, nil, fmt.Errorf("CHAP challenge: %w", err)
	}
	return b[0], challenge, nil
}
