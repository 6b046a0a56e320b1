package iscsi

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/csi-mpath/csi-mpath/pkg/iscsi/auth"
	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
)

// nonces recognizes our own CHAP challenges on any connection of the process.
var nonces auth.Nonces

// initialCmdSN is the CmdSN of the login and of the first command after it.
const initialCmdSN = 1

// login is the initiator's side of one login (RFC 7143 6.3): whole PDUs in
// and out, no socket.
type login struct {
	cfg       *Config
	discovery bool
	neg       *negotiator
	chap      *auth.Initiator
	proven    bool // authentication is complete, on both sides
	answered  bool // our own part of it is: the stage may end
	stumbled  bool // the target may have misread the algorithms that were offered
	stage     uint8
	first     bool // of the security stage: AuthMethod not answered yet
	offered   bool // operational keys are sent
	asm       pdu.Assembler
	legs      int
	expStatSN uint32
	window    pdu.Window
	tsih      uint16
	params    Params
}

func newLogin(cfg *Config, discovery bool) *login {
	return &login{cfg: cfg, discovery: discovery, neg: newNegotiator(cfg, discovery), stage: pdu.StageSecurity,
		first: true, proven: !cfg.Auth.Enabled(), answered: !cfg.Auth.Enabled(), asm: pdu.Assembler{Limit: maxLoginText}}
}

// start is the first PDU of the login.
func (l *login) start() []byte {
	keys := pdu.Keys{{Key: "InitiatorName", Value: l.cfg.InitiatorName}}
	if l.discovery {
		keys = append(keys, pdu.Pair{Key: "SessionType", Value: "Discovery"})
	} else {
		keys = append(keys, pdu.Pair{Key: "SessionType", Value: "Normal"}, pdu.Pair{Key: "TargetName", Value: l.cfg.TargetName})
	}
	// CHAP is offered only with credentials, and then alone.
	if l.cfg.Auth.Enabled() {
		return l.request(append(keys, pdu.Pair{Key: "AuthMethod", Value: "CHAP"}), false)
	}
	return l.request(append(keys, pdu.Pair{Key: "AuthMethod", Value: "None"}), true)
}

// request builds one leg; transit asks for the next stage.
func (l *login) request(keys pdu.Keys, transit bool) []byte {
	b := keys.Append(make([]byte, pdu.HeaderLen))
	n := len(b) - pdu.HeaderLen
	h := pdu.LoginRequest{Transit: transit, CSG: l.stage, NSG: l.next(), ISID: l.cfg.ISID,
		CmdSN: initialCmdSN, ExpStatSN: l.expStatSN, DataLen: n}
	h.Put(b)
	return append(b, make([]byte, pdu.Pad(n))...)
}

// next is the stage after the current one.
func (l *login) next() uint8 {
	if l.stage == pdu.StageSecurity {
		return pdu.StageOperational
	}
	return pdu.StageFull
}

// step takes one response and returns the next request, nil when done.
func (l *login) step(header, data []byte) (out []byte, err error) {
	var r pdu.LoginResponse
	if err := l.check(&r, header); err != nil {
		return nil, err
	}
	if r.StatusClass != pdu.LoginSuccess {
		return nil, refusal(&r, data)
	}
	text, whole, err := l.asm.Add(data, r.Continue)
	if err != nil {
		return nil, violation("%v", err)
	}
	if !whole {
		if r.Transit {
			return nil, violation("Login Response with both T and C")
		}
		return l.request(nil, false), nil
	}
	keys, err := pdu.ParseKeys(text)
	if err != nil {
		return nil, violation("%v", err)
	}
	if l.stage == pdu.StageSecurity {
		return l.security(&r, keys)
	}
	return l.operational(&r, keys)
}

// check reads a response's header and refuses what does not belong here.
func (l *login) check(r *pdu.LoginResponse, header []byte) error {
	if err := r.Decode(header); err != nil {
		return violation("%v instead of a Login Response", err)
	}
	if l.legs++; l.legs > maxLoginLegs {
		return violation("login not finished after %d legs", maxLoginLegs)
	}
	if l.legs == 1 {
		l.expStatSN = r.StatSN // taken as it is
	}
	if r.ITT != 0 || r.VersionActive != 0 {
		return violation("Login Response with task tag %#x, version %d", r.ITT, r.VersionActive)
	}
	if r.StatusClass != pdu.LoginSuccess {
		return nil
	}
	if r.CSG != l.stage || r.Transit && r.NSG != l.next() {
		return violation("Login Response in stage %d to %d, expected %d", r.CSG, r.NSG, l.stage)
	}
	l.expStatSN, l.window, l.tsih = r.StatSN+1, r.Window, r.TSIH
	return nil
}

// refusal turns a status into an error.
func refusal(r *pdu.LoginResponse, data []byte) error {
	if r.StatusClass != pdu.LoginRedirect {
		return &LoginError{r.StatusClass, r.StatusDetail}
	}
	keys, err := pdu.ParseKeys(data)
	if err != nil {
		return violation("redirect: %v", err)
	}
	addr, ok := keys.Get("TargetAddress")
	if !ok {
		return violation("redirect without TargetAddress")
	}
	p, err := parseAddress(addr)
	if err != nil {
		return violation("redirect: %v", err)
	}
	return &RedirectError{Address: p.Address, TPGT: p.TPGT, Permanent: r.StatusDetail == 2}
}

// security handles a response in the security stage.
func (l *login) security(r *pdu.LoginResponse, keys pdu.Keys) ([]byte, error) {
	authKeys, reply, err := l.declarations(keys)
	if err != nil {
		return nil, err
	}
	more, err := l.authenticate(authKeys)
	if err != nil {
		return nil, err
	}
	reply = append(reply, more...)
	if !r.Transit {
		return l.request(reply, l.answered), nil
	}
	if !l.proven || len(more) > 0 {
		return nil, fmt.Errorf("%w: the target ended the security stage before it was complete", ErrAuth)
	}
	l.stage, l.offered = pdu.StageOperational, true
	return l.request(l.neg.offers(), true), nil
}

// declarations takes the keys that may come in any stage; what remains
// belongs to the authentication.
func (l *login) declarations(keys pdu.Keys) (rest, reply pdu.Keys, err error) {
	for _, p := range keys {
		if p.Key == "AuthMethod" || strings.HasPrefix(p.Key, "CHAP_") {
			rest = append(rest, p)
			continue
		}
		answer, err := l.neg.take(p)
		if err != nil {
			return nil, nil, err
		}
		if answer != "" {
			reply = append(reply, pdu.Pair{Key: p.Key, Value: answer})
		}
	}
	return rest, reply, nil
}

// authenticate takes AuthMethod and CHAP keys.
func (l *login) authenticate(keys pdu.Keys) (pdu.Keys, error) {
	if l.first {
		method, ok := keys.Get("AuthMethod")
		switch {
		case !ok && l.proven: // some targets do not answer a lone None
		case !ok:
			return nil, violation("no AuthMethod in the first Login Response")
		case method == "CHAP" && l.cfg.Auth.Enabled():
			l.chap = auth.NewInitiator(&l.cfg.Auth, &nonces)
			l.first = false
			return l.chap.Start(), nil
		case method == "None" && l.cfg.Auth.Enabled():
			return nil, fmt.Errorf("%w: credentials are set and the target wants none (a downgrade): "+
				"remove them here or require CHAP on the target", ErrAuth)
		case method != "None":
			return nil, fmt.Errorf("%w: the target demands AuthMethod=%.40s: set CHAP credentials", ErrAuth, method)
		}
		l.first = false
		return nil, nil
	}
	if len(keys) == 0 {
		return nil, nil
	}
	if l.chap == nil {
		return nil, violation("%s without authentication", keys[0].Key)
	}
	reply, done, err := l.chap.Step(keys)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAuth, err)
	}
	l.proven, l.answered = l.proven || done, true
	return reply, nil
}

// operational handles a response in the operational stage.
func (l *login) operational(r *pdu.LoginResponse, keys pdu.Keys) ([]byte, error) {
	var reply pdu.Keys
	for _, p := range keys {
		answer, err := l.neg.take(p)
		if err != nil {
			return nil, err
		}
		if answer != "" {
			reply = append(reply, pdu.Pair{Key: p.Key, Value: answer})
		}
	}
	if !r.Transit {
		return l.request(reply, true), nil
	}
	if r.TSIH == 0 && !l.discovery {
		return nil, violation("the login ended without a session handle (TSIH 0)")
	}
	var err error
	l.params, err = l.neg.result()
	return nil, err
}

// parseAddress reads a TargetAddress: host[:port][,TPGT] (RFC 7143 13.8).
func parseAddress(s string) (p Portal, err error) {
	addr, tag, hasTag := strings.Cut(s, ",")
	if hasTag {
		n, err := pdu.ParseNumber(tag, 65535)
		if err != nil {
			return p, fmt.Errorf("address %.80q: %w", s, err)
		}
		p.TPGT = uint16(n)
	}
	host, port := addr, "3260"
	if i := strings.LastIndexByte(addr, ':'); i >= 0 && !strings.HasSuffix(addr, "]") {
		host, port = addr[:i], addr[i+1:]
	}
	v6 := strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]")
	if v6 {
		host = host[1 : len(host)-1]
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || !validHost(host, v6) {
		return p, fmt.Errorf("address %.80q is not host:port", s)
	}
	p.Address = net.JoinHostPort(host, port)
	return p, nil
}

func validHost(h string, v6 bool) bool {
	if v6 {
		bare, _, _ := strings.Cut(h, "%")
		ip := net.ParseIP(bare)
		return ip != nil && ip.To4() == nil
	}
	if h == "" || len(h) > 253 {
		return false
	}
	return strings.IndexFunc(h, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '.' && r != '-' && r != '_'
	}) < 0
}
