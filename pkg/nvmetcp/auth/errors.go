package auth

import (
	"errors"
	"fmt"
)

// Errors of an exchange. All are definite: trying again with the same secrets
// gives the same, except ErrProtocol, which is a broken peer or wire.
var (
	// ErrConfig: secrets or names that cannot work; nothing was sent.
	ErrConfig = errors.New("DH-HMAC-CHAP configuration")
	// ErrNoSecret: the controller asks for authentication, and there is no secret.
	ErrNoSecret = errors.New("DH-HMAC-CHAP: the controller requires authentication and no host secret is set: set the DHHC-1 secret that it knows for this host NQN")
	// ErrConcatenation: the peer demands TLS with a key from the exchange.
	ErrConcatenation = errors.New("DH-HMAC-CHAP: secure channel concatenation (TLS) is not supported: switch it off on the other end")
	// ErrRefused: the peer ended the exchange with AUTH_Failure1 or 2.
	ErrRefused = errors.New("DH-HMAC-CHAP: refused by the peer")
	// ErrWrongResponse: the peer does not know the secret.
	ErrWrongResponse = errors.New("DH-HMAC-CHAP: wrong response")
	// ErrSilent: the controller did not answer our challenge.
	ErrSilent = errors.New("DH-HMAC-CHAP: a controller secret is set and the controller does not prove that it knows it")
	// ErrReflected: the peer sent a challenge of ours back.
	ErrReflected = errors.New("DH-HMAC-CHAP: the peer sent our own challenge back")
	// ErrProtocol: a message that is malformed, out of order, or not what was
	// negotiated.
	ErrProtocol = errors.New("DH-HMAC-CHAP: protocol error")
)

// explanation is the reason code explanation of AUTH_Failure1 and 2; the reason
// code itself has one value (NVMe Base 2.1 section 8.3.4.4.2).
type explanation byte

const (
	failed          explanation = 1
	notUsable       explanation = 2
	concatMismatch  explanation = 3
	hashNotUsable   explanation = 4
	groupNotUsable  explanation = 5
	incorrectLength explanation = 6
	incorrectOrder  explanation = 7
)

var explanations = map[explanation]string{
	failed:          "authentication failed: the secrets or NQNs of both ends differ",
	notUsable:       "no authentication protocol in common",
	concatMismatch:  "secure channel concatenation mismatch",
	hashNotUsable:   "no hash function in common",
	groupNotUsable:  "no Diffie-Hellman group in common",
	incorrectLength: "incorrect payload",
	incorrectOrder:  "incorrect protocol message",
}

func (e explanation) String() string {
	if s, ok := explanations[e]; ok {
		return s
	}
	return fmt.Sprintf("reason %#02x", byte(e))
}

// fault is an error with what the peer is told about it.
type fault struct {
	error
	tell explanation
}

func (f *fault) Unwrap() error { return f.error }

func faultf(tell explanation, cause error, format string, args ...any) error {
	return &fault{fmt.Errorf("%w: %s", cause, fmt.Sprintf(format, args...)), tell}
}

// tellOf is what the peer is told about err.
func tellOf(err error) explanation {
	var f *fault
	if errors.As(err, &f) {
		return f.tell
	}
	return failed
}
