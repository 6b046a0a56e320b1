package iscsi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/iscsi/auth"
	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/poll"
)

// Digest is what a connection does about CRC32C digests (RFC 7143 13.1).
type Digest uint8

// The choices. DigestCRC32C is a demand: a target that refuses is refused.
const (
	DigestNone Digest = iota
	DigestCRC32C
)

// Config describes one session. Zero durations, depth and lengths mean the
// defaults of limits.go.
type Config struct {
	Portal        string // host:port
	InitiatorName string
	TargetName    string // empty for Discover
	// ISID names the session within the initiator: the same after a restart for
	// the same path, unique within a portal group (RFC 7143 4.4.3.1).
	ISID [6]byte
	Auth auth.Credentials
	// Source is a local IP address or the name of an interface to bind to;
	// empty lets the kernel choose.
	Source string
	// Dial, if set, makes the connection instead of TCP: for simulators and
	// tests. What it returns must be fit for poll.NewSocket.
	Dial func(ctx context.Context, portal string) (net.Conn, error)

	ConnectTimeout, LoginTimeout time.Duration
	// PathTimeout: no byte received for so long while something is outstanding
	// ends the session; a ping goes out at half of it.
	PathTimeout time.Duration
	// CommandTimeout: a command unanswered for so long is aborted; if the abort
	// fails, the session ends.
	CommandTimeout time.Duration
	// Polling is how the session's reader waits (S5).
	Polling poll.Polling
	// QueueDepth is the most data commands of the session, 1..maxDepth.
	QueueDepth int

	HeaderDigest, DataDigest Digest
	// MaxBurst, FirstBurst and MaxRecv are offered in the login, bytes,
	// 512..2^24-1; FirstBurst at most MaxBurst.
	MaxBurst, FirstBurst, MaxRecv uint32
	// InitialR2T and NoImmediate forbid unsolicited and immediate data.
	InitialR2T, NoImmediate bool
}

// withDefaults fills what is zero and refuses what cannot work.
func (c Config) withDefaults() (Config, error) {
	for _, d := range []struct {
		v   *time.Duration
		def time.Duration
	}{{&c.ConnectTimeout, defaultConnectTimeout}, {&c.LoginTimeout, defaultLoginTimeout},
		{&c.PathTimeout, defaultPathTimeout}, {&c.CommandTimeout, defaultCommandTimeout}} {
		if *d.v == 0 {
			*d.v = d.def
		}
	}
	for _, n := range []struct {
		v   *uint32
		def uint32
	}{{&c.MaxBurst, offerMaxBurst}, {&c.FirstBurst, min(offerFirstBurst, c.MaxBurst)}, {&c.MaxRecv, offerMaxRecv}} {
		if *n.v == 0 {
			*n.v = n.def
		}
	}
	if c.FirstBurst == 0 {
		c.FirstBurst = min(offerFirstBurst, c.MaxBurst)
	}
	if c.QueueDepth == 0 {
		c.QueueDepth = defaultDepth
	}
	return c, c.check()
}

func (c *Config) check() error {
	if _, _, err := net.SplitHostPort(c.Portal); err != nil {
		return fmt.Errorf("iscsi: portal %q is not host:port", c.Portal)
	}
	if !validName(c.InitiatorName) {
		return c.errorf("initiator name %q is not an iSCSI name (iqn., eui. or naa., at most %d bytes)", c.InitiatorName, pdu.MaxNameLen)
	}
	if c.TargetName != "" && !validName(c.TargetName) {
		return c.errorf("target name %q is not an iSCSI name (iqn., eui. or naa., at most %d bytes)", c.TargetName, pdu.MaxNameLen)
	}
	if c.QueueDepth < 1 || c.QueueDepth > maxDepth {
		return c.errorf("queue depth %d is not in 1..%d", c.QueueDepth, maxDepth)
	}
	for _, n := range []uint32{c.MaxBurst, c.FirstBurst, c.MaxRecv} {
		if n < pdu.MinRecvDataSegment || n > pdu.MaxDataSegment {
			return c.errorf("a length of %d bytes is not in %d..%d", n, pdu.MinRecvDataSegment, pdu.MaxDataSegment)
		}
	}
	if c.FirstBurst > c.MaxBurst {
		return c.errorf("first burst %d is larger than max burst %d", c.FirstBurst, c.MaxBurst)
	}
	if min(c.ConnectTimeout, c.LoginTimeout, c.PathTimeout, c.CommandTimeout) < 0 {
		return c.errorf("a timeout is negative")
	}
	if err := c.Auth.Check(); err != nil {
		return c.wrap(err)
	}
	return nil
}

func (c *Config) errorf(format string, args ...any) error {
	return c.wrap(fmt.Errorf(format, args...))
}

// wrap names portal and target of err, once.
func (c *Config) wrap(err error) error {
	var se *SessionError
	if err == nil || errors.As(err, &se) {
		return err
	}
	return &SessionError{Portal: c.Portal, Target: c.TargetName, Err: err}
}

// ValidName reports whether s has the form of an iSCSI name (RFC 7143 4.2.7).
func ValidName(s string) bool { return validName(s) }

// validName checks the form of an iSCSI name (RFC 7143 4.2.7): type, length,
// no blanks or control characters.
func validName(s string) bool {
	if len(s) > pdu.MaxNameLen || !strings.HasPrefix(s, "iqn.") && !strings.HasPrefix(s, "eui.") && !strings.HasPrefix(s, "naa.") {
		return false
	}
	return len(s) > 4 && strings.IndexFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f || r == ',' }) < 0
}
