package kernel

import (
	"errors"
	"fmt"
)

// Errors of this package that callers tell apart, by errors.Is.
var (
	// ErrNoModule: the kernel has no NBD client.
	ErrNoModule = errors.New("nbd: the kernel module nbd is not loaded: run \"modprobe nbd\" on the node, and list nbd in /etc/modules-load.d (Talos: machine.kernel.modules)")
	// ErrNotPermitted: the process lacks what attaching needs.
	ErrNotPermitted = errors.New("nbd: attaching needs CAP_SYS_ADMIN and a writable /sys: run privileged")
	// ErrNotAttached: the device is not attached (any more).
	ErrNotAttached = errors.New("the device is not attached")
	// ErrForeign: the device belongs to another backend; it was not touched.
	ErrForeign = errors.New("the device belongs to somebody else and was not touched")
	// ErrAlive: another process serves the device.
	ErrAlive = errors.New("the device's connection is alive: another process serves it; stop that process first")
	// ErrInUse: the device is open or mounted.
	ErrInUse = errors.New("the device is still open or mounted: unmount it")
	// ErrInFlight: another process serves the device and has not answered all.
	ErrInFlight = errors.New("requests of the device are in flight, and another process serves it: stop that process first")
	// ErrExists: a device with this backend identifier is attached already.
	ErrExists = errors.New("a device with this backend identifier is attached already: reconnect or disconnect it")
)

// deviceError names the device an error is about.
func deviceError(index int, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("nbd%d: %w", index, err)
}
