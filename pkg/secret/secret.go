// Package secret holds what the authentication of both protocols shares: a
// text that never prints itself, and challenges that are recognized when they
// come back.
package secret

import (
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
)

const redacted = "[redacted]"

// Text is a secret. It never prints itself (I10).
type Text string

// String hides the secret.
func (Text) String() string { return redacted }

// GoString hides the secret.
func (Text) GoString() string { return redacted }

// LogValue hides the secret.
func (Text) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText hides the secret, in JSON and YAML as well.
func (Text) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// MarshalJSON hides the secret.
func (Text) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }

// Format hides the secret whatever the verb is: %x would print its bytes.
func (Text) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// Challenges makes random challenges and recognizes those it made lately: a
// peer that sends one back wants us to answer our own question (RFC 7143
// 9.2.1). Share one among all logins of a process. Its zero value is ready.
type Challenges struct {
	// Rand is the source; nil is crypto/rand.
	Rand io.Reader

	mu     sync.Mutex
	recent [recentChallenges][]byte
	n      int
}

// Random fills b.
func (c *Challenges) Random(b []byte) error {
	src := c.Rand
	if src == nil {
		src = rand.Reader
	}
	if _, err := io.ReadFull(src, b); err != nil {
		return fmt.Errorf("random bytes: %w", err)
	}
	return nil
}

// New makes a challenge of n bytes.
func (c *Challenges) New(n int) ([]byte, error) {
	b := make([]byte, n)
	if err := c.Random(b); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.recent[c.n%recentChallenges] = slices.Clone(b)
	c.n++
	return b, nil
}

// Mine reports whether challenge is one of the last we made.
func (c *Challenges) Mine(challenge []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.recent[:min(c.n, recentChallenges)] {
		if slices.Equal(r, challenge) {
			return true
		}
	}
	return false
}
