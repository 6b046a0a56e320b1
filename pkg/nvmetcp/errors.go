package nvmetcp

import (
	"errors"
	"fmt"

	"github.com/csi-mpath/csi-mpath/pkg/nvme"
)

// Causes of a controller's end and of failed connects, for errors.Is.
var (
	// ErrPathTimeout: nothing was received for PathTimeout while something was
	// outstanding.
	ErrPathTimeout = errors.New("nothing received within the path timeout")
	// ErrCommandTimeout: a command was not answered in time.
	ErrCommandTimeout = errors.New("a command was not answered in time")
	// ErrViolation: the controller broke the protocol.
	ErrViolation = errors.New("protocol violation by the controller")
	// ErrTerminated: the controller ended a connection, and said why.
	ErrTerminated = errors.New("the controller ended the connection")
	// ErrFailed: the controller reports a fatal status (CSTS.CFS).
	ErrFailed = errors.New("the controller reports a fatal status")
	// ErrShutdown: the controller was shut down by us.
	ErrShutdown = errors.New("shut down")
	// ErrAuth: the controller refused our credentials, or could not prove itself.
	ErrAuth = errors.New("authentication failed")
	// ErrNotFound: the portal does not know the subsystem.
	ErrNotFound = errors.New("no such subsystem at this portal")
	// ErrForbidden: the subsystem does not admit this host.
	ErrForbidden = errors.New("this host is not admitted")
	// ErrUnavailable: the controller is there and cannot serve now.
	ErrUnavailable = errors.New("controller busy or out of resources")
	// ErrNoNamespace: no such namespace is attached to the controller.
	ErrNoNamespace = errors.New("no such namespace")
	// ErrClosed: the controller is over, or the namespace was closed.
	ErrClosed = errors.New("closed")
	// ErrNoTag: too many admin commands at once.
	ErrNoTag = errors.New("no tag free for an admin command")
)

func violation(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrViolation, fmt.Sprintf(format, args...))
}

// broken wraps what a decoder says of a PDU.
func broken(err error) error { return fmt.Errorf("%w: %w", ErrViolation, err) }

// connectError is a Connect refused, as the errors of this package.
func connectError(st nvme.Status, result uint64) error {
	var kind error
	detail := ""
	switch st.Code() {
	case nvme.InvalidHost:
		kind = ErrForbidden
	case nvme.ConnectInvalid:
		r := nvme.ParseConnectRefusal(result)
		detail = ": " + r.String()
		switch {
		case r.InData && r.Offset == 256:
			kind = ErrNotFound
		case r.InData && (r.Offset == 0 || r.Offset == 512):
			kind = ErrForbidden
		}
	case nvme.ControllerBusy:
		kind = ErrUnavailable
	case nvme.AuthRequired:
		kind = ErrAuth
	}
	err := fmt.Errorf("connect refused: %w%s", st, detail)
	if kind != nil {
		err = fmt.Errorf("%w: %w", kind, err)
	}
	return err
}

// ControllerError is the error of everything that happens with one controller:
// it names portal and subsystem, and wraps the cause.
type ControllerError struct {
	Portal, Subsystem string
	Err               error
}

func (e *ControllerError) Error() string {
	if e.Subsystem == "" {
		return fmt.Sprintf("nvme-tcp: portal %s: %v", e.Portal, e.Err)
	}
	return fmt.Sprintf("nvme-tcp: portal %s, subsystem %s: %v", e.Portal, e.Subsystem, e.Err)
}

// Unwrap returns the cause.
func (e *ControllerError) Unwrap() error { return e.Err }
