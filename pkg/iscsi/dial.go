package iscsi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/poll"
	"github.com/csi-mpath/csi-mpath/pkg/wire"
)

// Dial connects to cfg.Portal and logs in to cfg.TargetName. ctx, ConnectTimeout
// and LoginTimeout bound it. Errors are SessionErrors that wrap a LoginError, a
// RedirectError, ErrAuth, ErrViolation or what the network said.
func Dial(ctx context.Context, cfg Config) (*Session, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if cfg.TargetName == "" {
		return nil, cfg.errorf("no target name given")
	}
	conn, l, err := connect(ctx, &cfg, false)
	if err != nil {
		return nil, cfg.wrap(err)
	}
	s, err := newSession(cfg, conn, l)
	if err != nil {
		_ = conn.Close()
		return nil, cfg.wrap(err)
	}
	s.link.Run()
	go s.ticker()
	return s, nil
}

func newSession(cfg Config, conn net.Conn, l *login) (*Session, error) {
	sock, err := poll.NewSocket(conn)
	if err != nil {
		return nil, err
	}
	sock.SetPolling(cfg.Polling)
	base := time.Now()
	s := &Session{cfg: cfg, base: base, done: make(chan struct{}),
		info: Info{TSIH: l.tsih, TPGT: l.neg.tpgt, HasTPGT: l.neg.hasTPGT, Params: l.params,
			Local: conn.LocalAddr(), Remote: conn.RemoteAddr()}}
	s.m = newMachine(l.params, l.window, l.expStatSN, cfg.QueueDepth, runtime.GOMAXPROCS(0),
		func() int64 { return int64(time.Since(base)) })
	s.link = wire.NewLink(sock, s.m.Flow, s)
	return s, nil
}

// connect makes the connection and runs the login. A target that may have misread the
// list of CHAP algorithms gets one more login, with MD5 alone.
func connect(ctx context.Context, cfg *Config, discovery bool) (net.Conn, *login, error) {
	conn, l, err := connectOnce(ctx, cfg, discovery)
	if err == nil || l == nil || !l.stumbled {
		return conn, l, err
	}
	alone, ok := cfg.Auth.Fallback()
	if !ok || ctx.Err() != nil {
		return nil, nil, err
	}
	again := *cfg
	again.Auth = alone
	conn, l, err2 := connectOnce(ctx, &again, discovery)
	if err2 != nil {
		return nil, nil, fmt.Errorf("%w (and with CHAP_A=5 alone: %w)", err, err2)
	}
	return conn, l, nil
}

// connectOnce is one connection and one login. The login is returned when it failed,
// too.
func connectOnce(ctx context.Context, cfg *Config, discovery bool) (net.Conn, *login, error) {
	d := wire.Dialer{Portal: cfg.Portal, Source: cfg.Source, Dial: cfg.Dial, Timeout: cfg.ConnectTimeout, Unacknowledged: cfg.PathTimeout}
	conn, err := d.Connect(ctx)
	if err != nil {
		return nil, nil, err
	}
	l := newLogin(cfg, discovery)
	err = wire.Blocking(ctx, conn, cfg.LoginTimeout, func() error { return l.run(conn) })
	if err != nil {
		_ = conn.Close()
		ours := errors.Is(err, ErrAuth) && !errors.As(err, new(*LoginError)) // it was us who refused
		l.stumbled = l.chap != nil && l.chap.Misread() && !ours
		return nil, l, fmt.Errorf("login: %w", err)
	}
	return conn, l, nil
}

// run drives the login over a connection.
func (l *login) run(conn io.ReadWriter) error {
	out := l.start()
	for out != nil {
		if _, err := conn.Write(out); err != nil {
			return err
		}
		header, data, err := readPDU(conn, pdu.DefaultRecvDataSegment)
		if err != nil {
			return err
		}
		if out, err = l.step(header, data); err != nil {
			return err
		}
	}
	return nil
}

// readPDU reads one whole PDU without digests, for login and discovery. It
// reads no byte beyond it.
func readPDU(r io.Reader, limit int) (header, data []byte, err error) {
	var h [pdu.HeaderLen]byte
	if err := wire.ReadFull(r, h[:]); err != nil {
		return nil, nil, err
	}
	n := pdu.DataLen(h[:])
	if n > limit {
		op, _ := pdu.Op(h[:])
		return nil, nil, violation("%v with a data segment of %d bytes, %d allowed", op, n, limit)
	}
	rest := make([]byte, pdu.AHSLen(h[:])+n+pdu.Pad(n))
	if err := wire.ReadFull(r, rest); err != nil {
		return nil, nil, err
	}
	ahs := pdu.AHSLen(h[:])
	return h[:], rest[ahs : ahs+n], nil
}
