package volume

import (
	"context"
	"errors"
	"fmt"

	"github.com/csi-mpath/csi-mpath/pkg/mount"
	"github.com/csi-mpath/csi-mpath/pkg/volume/attrs"
)

// What can go wrong, by errors.Is. Every error of this package wraps one of them,
// or is the context's.
var (
	ErrInvalid     = errors.New("invalid request")
	ErrNotFound    = errors.New("not found on this node")
	ErrBusy        = errors.New("an operation on the volume is in progress: try again")
	ErrConflict    = errors.New("there already, with other properties")
	ErrState       = errors.New("not possible in this state")
	ErrUnsupported = errors.New("not supported")
	// ErrUnavailable: the storage does not answer, or not as it should; that may
	// pass.
	ErrUnavailable = errors.New("the storage cannot be used now")
	// ErrDenied: the storage refuses this node.
	ErrDenied = errors.New("the storage refuses access")
	// ErrIdentity: what the portals show is another volume (I1).
	ErrIdentity = errors.New("another volume than it should be")
)

// of names the volume in an error, and what was done.
func of(volume, doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("volume %s: %s: %w", clip(volume), doing, classify(err))
}

// kinds say what errors of the parts below mean for a caller.
var kinds = []struct{ is, means error }{
	{attrs.ErrInvalid, ErrInvalid},
	{mount.ErrInvalid, ErrInvalid},
	{mount.ErrUnreadable, ErrUnavailable},
	{mount.ErrHangs, ErrUnavailable},
	{mount.ErrContent, ErrState},
	{mount.ErrNotBlank, ErrState},
	{mount.ErrDamaged, ErrState},
	{mount.ErrTooSmall, ErrState},
	{mount.ErrOccupied, ErrState},
	{mount.ErrNotMounted, ErrState},
	{mount.ErrInUse, ErrState},
}

// ours are the errors that need no translation.
var ours = []error{ErrInvalid, ErrNotFound, ErrBusy, ErrConflict, ErrState, ErrUnsupported, ErrUnavailable, ErrDenied, ErrIdentity,
	context.DeadlineExceeded, context.Canceled}

// classify makes err one of this package's.
func classify(err error) error {
	for _, e := range ours {
		if errors.Is(err, e) {
			return err
		}
	}
	for _, k := range kinds {
		if errors.Is(err, k.is) {
			return &meaning{err, k.means}
		}
	}
	return err
}

// meaning is an error that reads as it did, and is one of ours too.
type meaning struct {
	error
	means error
}

// Unwrap makes it both.
func (m *meaning) Unwrap() []error { return []error{m.error, m.means} }

// passing reports that the same call may succeed later, so that what was built
// up is kept for it.
func passing(err error) bool {
	return errors.Is(err, ErrUnavailable) || errors.Is(err, ErrBusy) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// clip keeps hostile input out of messages.
func clip(s string) string {
	const most = maxVolume
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}
