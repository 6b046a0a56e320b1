package target

import (
	"errors"
	"io"

	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
)

// greeting is what the first PDU of a connection says about whom it is for.
type greeting struct {
	initiator string
	target    string // "" when it names none
	discovery bool
}

// errGreeting is a first PDU that is no login request.
var errGreeting = errors.New("target: a connection does not begin with a login request")

// greetingLen is the length of a connection's first PDU, bytes, by its header:
// no digest applies to it yet (RFC 7143 6.3).
func greetingLen(h []byte) (int, error) {
	if op, _ := pdu.Op(h); op != pdu.OpLoginRequest {
		return 0, errGreeting
	}
	n := pdu.DataLen(h)
	if n > pdu.DefaultRecvDataSegment {
		return 0, errGreeting
	}
	var none pdu.Layout
	return none.DataStart(pdu.AHSLen(h)) + n + none.Trailer(n), nil
}

// readGreeting reads a connection's first PDU and nothing behind it. b is what
// was read, whole or not.
func readGreeting(r io.Reader) (b []byte, g greeting, err error) {
	b = make([]byte, pdu.HeaderLen)
	if _, err = io.ReadFull(r, b); err != nil {
		return nil, g, err
	}
	n, err := greetingLen(b)
	if err != nil {
		return b, g, nil //nolint:nilerr // the machine that gets it says what is wrong
	}
	b = append(b, make([]byte, n-len(b))...)
	if _, err = io.ReadFull(r, b[pdu.HeaderLen:]); err != nil {
		return nil, g, err
	}
	return b, parseGreeting(b), nil
}

// parseGreeting reads the names in a whole login request. What it cannot read
// is for nobody: the directory refuses it with the status that is due.
func parseGreeting(b []byte) (g greeting) {
	var none pdu.Layout
	start := none.DataStart(pdu.AHSLen(b))
	keys, err := pdu.ParseKeys(b[start : start+pdu.DataLen(b)])
	if err != nil {
		return g
	}
	g.initiator, _ = keys.Get("InitiatorName")
	g.target, _ = keys.Get("TargetName")
	kind, _ := keys.Get("SessionType")
	g.discovery = kind == "Discovery"
	return g
}
