package device

import (
	"net"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"
)

// shortListener is out of file descriptors for a while, then closed.
type shortListener struct {
	net.Listener
	left int
}

func (l *shortListener) Accept() (net.Conn, error) {
	if l.left--; l.left < 0 {
		return nil, net.ErrClosed
	}
	return nil, &net.OpError{Op: "accept", Err: unix.EMFILE}
}

func TestTheControlSocketOutlivesAShortageOfFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &shortListener{left: 3}
		s := &statusServer{l: l}
		s.accept()
		if l.left >= 0 {
			t.Errorf("gave up with %d shortages to come", l.left)
		}
	})
}
