package target

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
)

// receive handles one whole PDU. t is the task of data received in place.
func (c *conn) receive(h, data []byte, t *task, landed bool) {
	op, immediate := pdu.Op(h)
	if c.waiting {
		c.Fail(fmt.Sprintf("%v behind a login or logout request that is not answered yet", op))
		return
	}
	if c.sess == nil {
		if op != pdu.OpLoginRequest {
			c.Fail(fmt.Sprintf("%v before the login", op))
			return
		}
		c.loginRequest(h, data)
		return
	}
	if op == pdu.OpDataOut {
		c.dataOut(h, data, t)
		return
	}
	if !immediate && !c.inOrder(h) {
		if t != nil {
			c.m.free(t)
		}
		return
	}
	copy(c.header[:], h) // for reject
	switch op {
	case pdu.OpSCSICommand:
		c.command(h, data, t, landed)
	case pdu.OpNOPOut:
		c.nop(h, data)
	case pdu.OpTMFRequest:
		c.tmf(h)
	case pdu.OpTextRequest:
		c.textRequest(h, data)
	case pdu.OpLogoutRequest:
		c.logout(h)
	case pdu.OpSNACK:
		c.reject(pdu.RejectSNACK, true) // ErrorRecoveryLevel 0
	case pdu.OpLoginRequest:
		c.Fail("login request after the login")
	default:
		c.reject(pdu.RejectNotSupported, true)
	}
}

// inOrder checks a CmdSN (RFC 7143 4.2.2.1): outside the window the PDU is
// ignored. A gap inside it can never close: all of a session comes on one connection.
func (c *conn) inOrder(h []byte) bool {
	s, sn := c.sess, binary.BigEndian.Uint32(h[24:])
	if pdu.SNLess(s.maxCmdSN, sn) || pdu.SNLess(sn, s.expCmdSN) {
		return false
	}
	if sn != s.expCmdSN {
		c.Fail(fmt.Sprintf("CmdSN %d, expected %d", sn, s.expCmdSN))
		return false
	}
	s.expCmdSN++
	return true
}

// advance opens the window again after a PDU that is no task.
func (c *conn) advance(immediate bool) {
	if !immediate {
		c.sess.maxCmdSN++
	}
}

// reject refuses the PDU in c.header (RFC 7143 11.17).
func (c *conn) reject(reason uint8, immediate bool) {
	c.advance(immediate)
	p := pdu.Reject{Reason: reason, Window: c.window(true), DataLen: pdu.HeaderLen}
	p.Put(c.head())
	c.seal()
	c.data(c.header[:])
}

func (c *conn) nop(h, data []byte) {
	var p pdu.NOPOut
	_ = p.Decode(h)
	c.advance(p.Immediate)
	if p.ITT == pdu.NoTag {
		c.pongs++
		return // an answer to our ping, or nothing
	}
	data = data[:min(len(data), int(c.params.maxSend))]
	r := pdu.NOPIn{LUN: p.LUN, ITT: p.ITT, TTT: pdu.NoTag, Window: c.window(true), DataLen: len(data)}
	r.Put(c.head())
	c.seal()
	c.data(data)
}

func (c *conn) logout(h []byte) {
	var p pdu.LogoutRequest
	_ = p.Decode(h)
	c.advance(p.Immediate)
	r := pdu.LogoutResponse{ITT: p.ITT, Response: pdu.LogoutDone, Time2Wait: 0, Time2Retain: 0}
	switch {
	case p.Reason == pdu.LogoutRecovery:
		r.Response = pdu.LogoutNoRecovery
	case p.Reason == pdu.LogoutConn && p.CID != c.cid:
		r.Response = pdu.LogoutNoCID
	}
	if r.Response != pdu.LogoutDone {
		c.logoutResponse(&r)
		return
	}
	s := c.sess
	c.m.endTasks(s)
	c.waiting = true
	c.m.whenOver(func(t *task) bool { return t.sess == s }, func() {
		if c.waiting = false; c.Closing() {
			return
		}
		c.logoutResponse(&r)
		c.m.endSession(s, false)
	})
}

func (c *conn) logoutResponse(r *pdu.LogoutResponse) {
	r.Window = c.window(true)
	r.Put(c.head())
	c.seal()
}

// abortUnit ends a session's tasks of one unit.
func (m *Machine) abortUnit(s *session, n uint32) {
	for _, t := range s.tasks {
		if t.unit != nil && t.unit.Number == n {
			m.abort(t)
		}
	}
}

// textRequest answers SendTargets (RFC 7143 appendix C), in parts if it must.
func (c *conn) textRequest(h, data []byte) {
	var p pdu.TextRequest
	_ = p.Decode(h)
	if p.TTT != pdu.NoTag {
		if p.TTT != c.textTTT || len(c.text) == 0 || len(data) > 0 {
			c.reject(pdu.RejectProtocol, p.Immediate)
			return
		}
		c.textResponse(&p)
		return
	}
	keys, err := pdu.ParseKeys(data)
	if err != nil || p.Continue {
		c.reject(pdu.RejectProtocol, p.Immediate)
		return
	}
	c.text = c.textAnswer(keys)
	c.textResponse(&p)
}

func (c *conn) textAnswer(keys pdu.Keys) []byte {
	var out []byte
	for _, k := range keys {
		switch k.Key {
		case "SendTargets":
			if c.m.directory != nil {
				out = c.m.directory(out, c.sess.key.initiator, strings.TrimPrefix(k.Value, "All"))
				continue
			}
			all := c.sess.discovery && k.Value == "All"
			if all || k.Value == c.m.cfg.Name || !c.sess.discovery && k.Value == "" {
				out = c.m.appendTargets(out)
			}
		case "MaxRecvDataSegmentLength":
			_ = c.params.take(k)
		default:
			out = pdu.AppendPair(out, k.Key, "NotUnderstood")
		}
	}
	return out
}

func (m *Machine) appendTargets(out []byte) []byte {
	out = pdu.AppendPair(out, "TargetName", m.cfg.Name)
	for _, p := range m.portals {
		if p.Address != "" && len(out) < maxTextAnswer {
			out = pdu.AppendPair(out, "TargetAddress", fmt.Sprintf("%s,%d", p.Address, p.TPGT))
		}
	}
	return out
}

func (c *conn) textResponse(p *pdu.TextRequest) {
	c.advance(p.Immediate)
	n := min(len(c.text), int(c.params.maxSend))
	part := c.text[:n]
	c.text = c.text[n:]
	r := pdu.TextResponse{ITT: p.ITT, TTT: pdu.NoTag, Final: true, Window: c.window(true), DataLen: n}
	if len(c.text) > 0 {
		c.textTTT = (c.textTTT + 1) & 0x7fffffff
		r.Final, r.Continue, r.TTT = false, true, c.textTTT
	}
	r.Put(c.head())
	c.seal()
	c.data(part)
}
