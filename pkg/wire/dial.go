package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csi-mpath/csi-mpath/pkg/poll"
)

// Dialer says how to connect.
type Dialer struct {
	Portal string // host:port
	// Source is a local IP address or the name of an interface to bind to;
	// empty lets the kernel choose.
	Source string
	// Dial, if set, makes the connection instead of TCP.
	Dial func(ctx context.Context, portal string) (net.Conn, error)
	// Timeout bounds the connect. Unacknowledged is how long the peer's TCP may
	// leave something unacknowledged, or a probe of an idle connection unanswered
	// if Probe is set, before the connection is dropped.
	Timeout, Unacknowledged time.Duration
	Probe                   bool
}

// Connect connects with the socket options every connection has from birth.
func (d *Dialer) Connect(ctx context.Context) (net.Conn, error) {
	if d.Dial != nil {
		ctx, cancel := context.WithTimeout(ctx, d.Timeout)
		defer cancel()
		return d.Dial(ctx, d.Portal)
	}
	n := net.Dialer{Timeout: d.Timeout, KeepAlive: -1}
	device := ""
	if ip := net.ParseIP(d.Source); ip != nil {
		n.LocalAddr = &net.TCPAddr{IP: ip}
	} else {
		device = d.Source
	}
	n.Control = func(network, address string, c syscall.RawConn) error {
		if err := poll.LingerReset(network, address, c); err != nil {
			return err
		}
		return d.options(c, device)
	}
	return n.DialContext(ctx, "tcp", d.Portal)
}

func (d *Dialer) options(c syscall.RawConn, device string) error {
	var serr error
	err := c.Control(func(fd uintptr) {
		set := func(level, opt, v int) {
			serr = errors.Join(serr, unix.SetsockoptInt(int(fd), level, opt, v))
		}
		set(unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
		set(unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d.Unacknowledged.Milliseconds()))
		if d.Probe {
			set(unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1)
			set(unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, max(1, int((d.Unacknowledged/2).Seconds())))
			set(unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 1)
		}
		if device != "" && serr == nil {
			if e := unix.SetsockoptString(int(fd), unix.SOL_SOCKET, unix.SO_BINDTODEVICE, device); e != nil {
				serr = fmt.Errorf("bind to interface %s: %w", device, e)
			}
		}
	})
	return errors.Join(err, serr)
}

// Blocking runs f, which uses conn, within timeout and ctx.
func Blocking(ctx context.Context, conn net.Conn, timeout time.Duration, f func() error) error {
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

// ReadFull reads all of b; the end of the stream is named.
func ReadFull(r io.Reader, b []byte) error {
	_, err := io.ReadFull(r, b)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the target closed the connection")
	}
	return err
}
