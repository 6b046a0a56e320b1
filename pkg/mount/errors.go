package mount

import (
	"errors"
	"fmt"
)

// Errors that callers tell apart, by errors.Is.
var (
	// ErrUnreadable: the device could not be read in full. Nothing is known of it,
	// and nothing was written to it (I7).
	ErrUnreadable = errors.New("the device cannot be read: nothing was written to it; try again when its paths are back")
	// ErrContent: the device holds something else than the file system asked for.
	ErrContent = errors.New("nothing was written to it: wipe it by hand if its data is not wanted, or ask for what it holds")
	// ErrNotBlank: a file system was to be made, and that is not allowed.
	ErrNotBlank = errors.New("it holds no file system, and may not be formatted")
	// ErrDamaged: the file system has errors that are not corrected without a human.
	ErrDamaged = errors.New("the file system is damaged")
	// ErrTooSmall: the file system is larger than its device.
	ErrTooSmall = errors.New("the device is smaller than its file system: give it back its size")
	// ErrHangs: an earlier call waits for the device still.
	ErrHangs = errors.New("an earlier call still waits for the device")
	// ErrOccupied: something else is mounted at the path.
	ErrOccupied = errors.New("something else is mounted there: unmount it first")
	// ErrNotMounted: there is no mount at the path.
	ErrNotMounted = errors.New("nothing is mounted there")
	// ErrInUse: the file system is in use.
	ErrInUse = errors.New("it is in use")
	// ErrInvalid: the request is malformed.
	ErrInvalid = errors.New("invalid request")
)

func invalid(format string, a ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, a...))
}
