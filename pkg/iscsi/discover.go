package iscsi

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"

	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/wire"
)

// Discover asks a portal for the targets it offers, in a discovery session of
// its own (RFC 7143 appendix C). cfg.TargetName is not used; digests are never
// offered. Bounded by ctx, ConnectTimeout and twice LoginTimeout.
func Discover(ctx context.Context, cfg Config) ([]DiscoveredTarget, error) {
	cfg.TargetName = ""
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	// A session of its own: it must reinstate nobody's, and tgt refuses ISID 0.
	_, _ = rand.Read(cfg.ISID[1:])
	cfg.ISID[0] = isidRandom
	conn, l, err := connect(ctx, &cfg, true)
	if err != nil {
		return nil, cfg.wrap(err)
	}
	defer func() { _ = conn.Close() }()
	var found []DiscoveredTarget
	err = wire.Blocking(ctx, conn, cfg.LoginTimeout, func() error {
		found, err = l.sendTargets(conn)
		return err
	})
	if err != nil {
		return nil, cfg.wrap(fmt.Errorf("discovery: %w", err))
	}
	return found, nil
}

// isidRandom is the type of a random ISID (RFC 7143 11.12.5).
const isidRandom = 0x80

// sendTargets runs SendTargets=All and a logout on a connection fresh from
// the login.
func (l *login) sendTargets(conn net.Conn) ([]DiscoveredTarget, error) {
	x := newTextExchange("SendTargets", "All")
	cmdSN := uint32(initialCmdSN)
	for {
		data, ttt := x.request()
		b := append(make([]byte, pdu.HeaderLen), data...)
		(&pdu.TextRequest{Final: true, ITT: 1, TTT: ttt, CmdSN: cmdSN, ExpStatSN: l.expStatSN, DataLen: len(data)}).Put(b)
		cmdSN++
		if _, err := conn.Write(append(b, make([]byte, pdu.Pad(len(data)))...)); err != nil {
			return nil, err
		}
		r, text, err := l.readText(conn)
		if err != nil {
			return nil, err
		}
		whole, err := x.answer(text, r.Final, r.Continue, r.TTT)
		if err != nil {
			return nil, err
		}
		if whole != nil {
			l.logout(conn, cmdSN)
			return parseTargets(whole)
		}
	}
}

// readText reads the next Text Response, past pings of the target.
func (l *login) readText(conn net.Conn) (r pdu.TextResponse, text []byte, err error) {
	for range maxPings {
		header, data, err := readPDU(conn, int(l.params.MaxRecv))
		if err != nil {
			return r, nil, err
		}
		if op, _ := pdu.Op(header); op == pdu.OpNOPIn {
			continue
		}
		if err := r.Decode(header); err != nil {
			return r, nil, violation("%v", err)
		}
		if r.ITT != 1 {
			return r, nil, violation("Text Response with task tag %#x", r.ITT)
		}
		l.expStatSN = r.StatSN + 1
		return r, data, nil
	}
	return r, nil, violation("%d pings and no Text Response", maxPings)
}

// logout says goodbye; the answer no longer matters.
func (l *login) logout(conn net.Conn, cmdSN uint32) {
	var b [pdu.HeaderLen]byte
	(&pdu.LogoutRequest{Immediate: true, ITT: 2, CmdSN: cmdSN, ExpStatSN: l.expStatSN}).Put(b[:])
	if _, err := conn.Write(b[:]); err == nil {
		_, _, _ = readPDU(conn, maxOtherData)
	}
}
