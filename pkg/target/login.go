package target

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/csi-mpath/csi-mpath/pkg/iscsi/auth"
	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
)

// Login status, class and detail (RFC 7143 11.13.5).
var (
	statusMovedTemp = [2]byte{1, 1}
	statusMoved     = [2]byte{1, 2}
	statusInitiator = [2]byte{2, 0}
	statusAuth      = [2]byte{2, 1}
	statusForbidden = [2]byte{2, 2}
	statusNotFound  = [2]byte{2, 3}
	statusVersion   = [2]byte{2, 5}
	statusTooMany   = [2]byte{2, 6}
	statusMissing   = [2]byte{2, 7}
	statusNoSession = [2]byte{2, 0x0a}
	statusResources = [2]byte{3, 2}
)

// login is the state of a login under way (RFC 7143 6.3).
type login struct {
	legs      int
	first     pdu.LoginRequest
	stage     uint8
	asm       pdu.Assembler
	initiator string
	discovery bool
	method    bool // AuthMethod was negotiated
	cred      auth.Credentials
	chap      *auth.Target
	proven    bool
	seen      map[string]bool
	declared  bool // our MaxRecvDataSegmentLength is told
}

// loginRequest takes one leg.
func (c *conn) loginRequest(h, data []byte) {
	var p pdu.LoginRequest
	_ = p.Decode(h)
	l := c.login
	l.legs++
	if l.legs == 1 {
		l.first, l.stage = p, p.CSG
		l.asm.Limit = maxLoginText
		l.seen = map[string]bool{}
		c.cid = p.CID
	}
	if bad := l.check(&p); bad != [2]byte{} {
		c.refuseLogin(&p, bad, nil)
		return
	}
	text, whole, err := l.asm.Add(data, p.Continue)
	if err != nil {
		c.refuseLogin(&p, statusInitiator, nil)
		return
	}
	if !whole {
		c.loginResponse(&p, pdu.LoginResponse{CSG: l.stage}, nil)
		return
	}
	keys, err := pdu.ParseKeys(text)
	if err != nil || l.repeated(keys) {
		c.refuseLogin(&p, statusInitiator, nil)
		return
	}
	c.loginKeys(&p, keys)
}

// check compares a leg with the first one.
func (l *login) check(p *pdu.LoginRequest) [2]byte {
	switch {
	case p.VersionMin > 0:
		return statusVersion
	case l.legs > maxLoginLegs, p.ISID != l.first.ISID, p.CID != l.first.CID, p.TSIH != l.first.TSIH,
		p.CSG != l.stage, p.CSG > pdu.StageOperational:
		return statusInitiator
	case p.Transit && (p.NSG <= p.CSG || p.NSG == 2 || p.Continue):
		return statusInitiator
	}
	return [2]byte{}
}

// repeated: each key once per login, but for declarations (RFC 7143 6.2, A-03).
func (l *login) repeated(keys pdu.Keys) bool {
	for _, k := range keys {
		if l.seen[k.Key] && k.Key != "MaxRecvDataSegmentLength" && !strings.HasPrefix(k.Key, "CHAP_") {
			return true
		}
		l.seen[k.Key] = true
	}
	return false
}

func (c *conn) loginKeys(p *pdu.LoginRequest, keys pdu.Keys) {
	l := c.login
	var reply pdu.Keys
	if l.initiator == "" {
		bad, more := c.introduce(keys)
		if bad != [2]byte{} {
			c.refuseLogin(p, bad, more)
			return
		}
		reply = more
	}
	if l.stage == pdu.StageSecurity {
		more, err := c.security(keys)
		if err != nil {
			c.refuseLogin(p, statusAuth, nil)
			return
		}
		reply = append(reply, more...)
	}
	reply = append(reply, c.operational(keys)...)
	if !p.Transit || !l.proven {
		if l.stage == pdu.StageOperational && !l.proven {
			c.refuseLogin(p, statusAuth, nil)
			return
		}
		c.loginResponse(p, pdu.LoginResponse{CSG: l.stage}, reply)
		return
	}
	if p.NSG < pdu.StageFull {
		c.loginResponse(p, pdu.LoginResponse{CSG: l.stage, NSG: p.NSG, Transit: true}, reply)
		l.stage = p.NSG
		return
	}
	c.complete(p, reply)
}

// introduce reads who is there and what it wants, in the first leg.
func (c *conn) introduce(keys pdu.Keys) (bad [2]byte, reply pdu.Keys) {
	l, m := c.login, c.m
	name, _ := keys.Get("InitiatorName")
	kind, _ := keys.Get("SessionType")
	target, named := keys.Get("TargetName")
	l.discovery = kind == "Discovery"
	switch {
	case name == "" || len(name) > pdu.MaxNameLen || !named && !l.discovery:
		return statusMissing, nil
	case kind != "" && kind != "Normal" && kind != "Discovery":
		return statusInitiator, nil
	case c.portal.refusing:
		return c.portal.refuse, nil
	case !m.admits(name):
		return statusForbidden, nil
	case named && !l.discovery && (target != m.cfg.Name || m.directory != nil):
		return statusNotFound, nil
	case c.portal.redirect != "" && !l.discovery:
		bad = statusMovedTemp
		if c.portal.moved {
			bad = statusMoved
		}
		return bad, pdu.Keys{{Key: "TargetAddress", Value: c.portal.redirect}}
	}
	l.initiator = name
	l.cred = m.credentials(name)
	l.proven = !l.cred.Enabled()
	if !l.discovery {
		reply = pdu.Keys{{Key: "TargetPortalGroupTag", Value: strconv.Itoa(int(c.portal.TPGT))}}
	}
	return bad, reply
}

var errAuth = errors.New("target: authentication failed")

// security negotiates the method and runs CHAP.
func (c *conn) security(keys pdu.Keys) (reply pdu.Keys, err error) {
	l := c.login
	list, ok := keys.Get("AuthMethod")
	switch {
	case ok && !l.method:
		l.method = true
		want := "None"
		if !l.proven {
			want = "CHAP"
			l.chap = auth.NewTarget(&l.cred, &c.m.nonces)
		}
		if !slices.Contains(strings.Split(list, ","), want) {
			return nil, errAuth
		}
		return pdu.Keys{{Key: "AuthMethod", Value: want}}, nil
	case l.chap == nil:
		if !l.proven {
			return nil, errAuth
		}
		return nil, nil
	case l.proven:
		return nil, nil
	}
	reply, l.proven, err = l.chap.Step(keys)
	return reply, err
}

// operational answers the other keys; it declares ours once.
func (c *conn) operational(keys pdu.Keys) (reply pdu.Keys) {
	for _, k := range keys {
		if k.Key == "AuthMethod" || strings.HasPrefix(k.Key, "CHAP_") {
			continue
		}
		if a := c.params.negotiate(k); a != "" {
			reply = append(reply, pdu.Pair{Key: k.Key, Value: a})
		}
	}
	if c.login.stage == pdu.StageOperational && !c.login.declared {
		c.login.declared = true
		reply = append(reply, pdu.Pair{Key: "MaxRecvDataSegmentLength", Value: strconv.Itoa(int(c.m.cfg.MaxRecv))})
	}
	return reply
}

// complete ends a login: the session it reinstates is ended first, with all
// its tasks, then the answer goes out (RFC 7143 6.3.5).
func (c *conn) complete(p *pdu.LoginRequest, reply pdu.Keys) {
	m, l := c.m, c.login
	key := sessionKey{initiator: l.initiator, isid: p.ISID, tpgt: c.portal.TPGT}
	tsih := m.newTSIH()
	if l.discovery {
		key.discovery = tsih
	}
	old := m.sessions[key]
	if p.TSIH != 0 {
		bad := statusNoSession
		if old != nil && old.tsih == p.TSIH {
			bad = statusTooMany // one connection per session
		}
		c.refuseLogin(p, bad, nil)
		return
	}
	if old != nil {
		m.stats.Reinstated++
		m.endSession(old, true)
	}
	// Also of a session that is gone already: the answer is an initiator's proof
	// that nothing of its old session runs any more (I3).
	c.waiting = true
	m.whenOver(func(t *task) bool { return t.sess.key == key }, func() {
		c.waiting = false
		switch {
		case c.Closing():
		case m.sessions[key] != nil: // another login waited as well
			c.complete(p, reply)
		default:
			c.admit(p, reply, key, tsih)
		}
	})
}

// admit begins the session.
func (c *conn) admit(p *pdu.LoginRequest, reply pdu.Keys, key sessionKey, tsih uint16) {
	m, l := c.m, c.login
	if !m.admits(l.initiator) { // any more: see SetAccess (I9)
		c.refuseLogin(p, statusForbidden, nil)
		return
	}
	if len(m.sessions) >= maxSessions {
		c.refuseLogin(p, statusResources, nil)
		return
	}
	s := &session{m: m, key: key, tsih: tsih, conn: c, portal: c.portal, discovery: l.discovery, expCmdSN: p.CmdSN,
		maxCmdSN: p.CmdSN + uint32(m.cfg.Depth) - 1, tasks: map[uint32]*task{}, attentions: map[uint32][]scsi.Sense{}}
	if m.cfg.PowerOn {
		for _, n := range m.numbers {
			s.attentions[n] = []scsi.Sense{{Key: scsi.KeyUnitAttention, ASC: 0x29}}
		}
	}
	m.sessions[key] = s
	m.stats.Logins++
	c.sess = s
	c.loginResponse(p, pdu.LoginResponse{CSG: l.stage, NSG: pdu.StageFull, Transit: true, TSIH: s.tsih}, reply)
	c.layout, c.params.maxRecv = c.params.layout, m.cfg.MaxRecv
	c.params.firstBurst = min(c.params.firstBurst, c.params.maxBurst)
	c.login = nil
}

func (m *Machine) newTSIH() uint16 {
	t := m.nextTSIH
	if m.nextTSIH++; m.nextTSIH == 0 {
		m.nextTSIH = 1
	}
	return t
}

// refuseLogin answers with a status and closes.
func (c *conn) refuseLogin(p *pdu.LoginRequest, status [2]byte, keys pdu.Keys) {
	c.loginResponse(p, pdu.LoginResponse{CSG: p.CSG, StatusClass: status[0], StatusDetail: status[1]}, keys)
	c.Close()
}

// loginResponse sends one leg's answer. Digests never apply in a login.
func (c *conn) loginResponse(p *pdu.LoginRequest, r pdu.LoginResponse, keys pdu.Keys) {
	if p.ExpStatSN != 0 && c.login.legs == 1 {
		c.statSN = p.ExpStatSN
	}
	r.ISID, r.ITT = p.ISID, p.ITT
	if r.TSIH == 0 {
		r.TSIH = p.TSIH
	}
	r.Window = pdu.Window{StatSN: c.statSN, ExpCmdSN: p.CmdSN, MaxCmdSN: p.CmdSN + uint32(c.m.cfg.Depth) - 1}
	c.statSN++
	text := keys.Append(nil)
	r.DataLen = len(text)
	r.Put(c.head())
	c.data(text)
	c.Touch()
}
