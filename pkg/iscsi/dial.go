package iscsi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/poll"
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
	go s.read()
	go s.write()
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
	s := &Session{cfg: cfg, sock: sock, base: base,
		info: Info{TSIH: l.tsih, TPGT: l.neg.tpgt, HasTPGT: l.neg.hasTPGT, Params: l.params,
			Local: conn.LocalAddr(), Remote: conn.RemoteAddr()},
		wakeWriter: make(chan bool, 1), senderGone: make(chan struct{}), quit: make(chan struct{}),
		calls: make(chan chan struct{}, 16), done: make(chan struct{}), aborted: make(chan struct{})}
	s.m = newMachine(l.params, l.window, l.expStatSN, cfg.QueueDepth, runtime.GOMAXPROCS(0),
		func() int64 { return int64(time.Since(base)) })
	return s, nil
}

// connect makes the connection and runs the login.
func connect(ctx context.Context, cfg *Config, discovery bool) (net.Conn, *login, error) {
	conn, err := dialTCP(ctx, cfg)
	if err != nil {
		return nil, nil, err
	}
	l := newLogin(cfg, discovery)
	err = blocking(ctx, conn, cfg.LoginTimeout, func() error { return l.run(conn) })
	if err != nil {
		_ = conn.Close()
		return nil, nil, fmt.Errorf("login: %w", err)
	}
	return conn, l, nil
}

// dialTCP connects with the socket options every session has from birth.
func dialTCP(ctx context.Context, cfg *Config) (net.Conn, error) {
	if cfg.Dial != nil {
		ctx, cancel := context.WithTimeout(ctx, cfg.ConnectTimeout)
		defer cancel()
		return cfg.Dial(ctx, cfg.Portal)
	}
	d := net.Dialer{Timeout: cfg.ConnectTimeout, KeepAlive: -1}
	device := ""
	if ip := net.ParseIP(cfg.Source); ip != nil {
		d.LocalAddr = &net.TCPAddr{IP: ip}
	} else {
		device = cfg.Source
	}
	d.Control = func(network, address string, c syscall.RawConn) error {
		if err := poll.LingerReset(network, address, c); err != nil {
			return err
		}
		return socketOptions(c, device, cfg.PathTimeout)
	}
	return d.DialContext(ctx, "tcp", cfg.Portal)
}

func socketOptions(c syscall.RawConn, device string, timeout time.Duration) error {
	var serr error
	err := c.Control(func(fd uintptr) {
		serr = errors.Join(
			unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NODELAY, 1),
			unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(timeout.Milliseconds())))
		if device != "" && serr == nil {
			if e := unix.SetsockoptString(int(fd), unix.SOL_SOCKET, unix.SO_BINDTODEVICE, device); e != nil {
				serr = fmt.Errorf("bind to interface %s: %w", device, e)
			}
		}
	})
	return errors.Join(err, serr)
}

// blocking runs f, which uses conn, within timeout and ctx.
func blocking(ctx context.Context, conn net.Conn, timeout time.Duration, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	err := f()
	if !stop() && err != nil {
		return fmt.Errorf("not finished in time: %w", context.Cause(ctx))
	}
	if err != nil {
		return err
	}
	return conn.SetDeadline(time.Time{})
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
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return nil, nil, closedEarly(err)
	}
	n := pdu.DataLen(h[:])
	if n > limit {
		op, _ := pdu.Op(h[:])
		return nil, nil, violation("%v with a data segment of %d bytes, %d allowed", op, n, limit)
	}
	rest := make([]byte, pdu.AHSLen(h[:])+n+pdu.Pad(n))
	if _, err := io.ReadFull(r, rest); err != nil {
		return nil, nil, closedEarly(err)
	}
	ahs := pdu.AHSLen(h[:])
	return h[:], rest[ahs : ahs+n], nil
}

func closedEarly(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the target closed the connection")
	}
	return err
}
