package iscsi

import (
	"errors"
	"fmt"

	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
)

// Causes of a session's end and of failed logins, for errors.Is.
var (
	// ErrPathTimeout: nothing was received for PathTimeout while something was
	// outstanding.
	ErrPathTimeout = errors.New("nothing received within the path timeout")
	// ErrCommandTimeout: a command was not answered in time and its abort failed.
	ErrCommandTimeout = errors.New("a command and its abort were not answered in time")
	// ErrViolation: the target broke the protocol.
	ErrViolation = errors.New("protocol violation by the target")
	// ErrLoggedOut: the session was logged out by us.
	ErrLoggedOut = errors.New("logged out")
	// ErrLogoutRequested: the target asked for the logout, or announced to drop
	// the connection.
	ErrLogoutRequested = errors.New("the target asked to end the session")
	// ErrAuth: the target refused our credentials, or could not prove itself.
	ErrAuth = errors.New("authentication failed")
	// ErrNotFound: the portal does not know the target.
	ErrNotFound = errors.New("no such target at this portal")
	// ErrForbidden: the target does not admit this initiator.
	ErrForbidden = errors.New("this initiator is not admitted")
	// ErrUnavailable: the target is there and cannot serve now.
	ErrUnavailable = errors.New("target out of service or out of resources")
	// ErrClosed: the session is over, or the LUN was closed.
	ErrClosed = errors.New("closed")
	// ErrNoTag: too many control commands at once.
	ErrNoTag = errors.New("no tag free for a control command")
)

func violation(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrViolation, fmt.Sprintf(format, args...))
}

// SessionError is the error of everything that happens on one session: it
// names the portal and target, and wraps the cause.
type SessionError struct {
	Portal, Target string
	Err            error
}

func (e *SessionError) Error() string {
	if e.Target == "" {
		return fmt.Sprintf("iscsi: portal %s: %v", e.Portal, e.Err)
	}
	return fmt.Sprintf("iscsi: portal %s, target %s: %v", e.Portal, e.Target, e.Err)
}

// Unwrap returns the cause.
func (e *SessionError) Unwrap() error { return e.Err }

// LoginError is a login refused by the target (RFC 7143 11.13.5).
type LoginError struct{ Class, Detail uint8 }

var loginStatus = map[[2]uint8]string{
	{2, 0}: "initiator error", {2, 1}: "authentication failed: check user names and secrets on both ends",
	{2, 2}: "authorization failed: the target does not admit this initiator name",
	{2, 3}: "target not found: check the target name", {2, 4}: "target removed",
	{2, 5}: "unsupported protocol version", {2, 6}: "too many connections",
	{2, 7}: "a parameter is missing", {2, 8}: "the session cannot span this connection",
	{2, 9}: "session type not supported", {2, 10}: "the session does not exist",
	{2, 11}: "invalid request during login",
	{3, 0}:  "target error", {3, 1}: "service unavailable", {3, 2}: "out of resources",
}

func (e *LoginError) Error() string {
	text, ok := loginStatus[[2]uint8{e.Class, e.Detail}]
	if !ok {
		text = "unknown status"
	}
	return fmt.Sprintf("login refused: %s (status %02x%02x)", text, e.Class, e.Detail)
}

// Is maps the status to the sentinel errors of this package.
func (e *LoginError) Is(target error) bool {
	switch target {
	case ErrAuth:
		return e.Class == pdu.LoginInitiatorError && e.Detail == 1
	case ErrForbidden:
		return e.Class == pdu.LoginInitiatorError && e.Detail == 2
	case ErrNotFound:
		return e.Class == pdu.LoginInitiatorError && (e.Detail == 3 || e.Detail == 4)
	case ErrUnavailable:
		return e.Class == pdu.LoginTargetError
	}
	return false
}

// RedirectError is a login answered with another address (RFC 7143 11.13.5,
// status class 1). The target name stays the same.
type RedirectError struct {
	Address   string // host:port
	TPGT      uint16 // of the address, 0 if not given
	Permanent bool
}

func (e *RedirectError) Error() string {
	kind := "temporarily"
	if e.Permanent {
		kind = "permanently"
	}
	return fmt.Sprintf("the target moved %s to %s", kind, e.Address)
}
