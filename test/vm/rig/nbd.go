package rig

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	interop "github.com/csi-mpath/csi-mpath/test/interop/rig"
)

// Connected lists the nbd devices that have a server or wait for its return:
// "nbd0".
func Connected() ([]string, error) {
	all, err := filepath.Glob("/sys/block/nbd*/pid")
	for i, p := range all {
		all[i] = filepath.Base(filepath.Dir(p))
	}
	slices.Sort(all)
	return all, err
}

// Size is a block device's capacity, bytes; device is "nbd0" or "/dev/nbd0".
func Size(device string) (int64, error) {
	s, err := Attribute(device, "size")
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n * 512, err
}

// Attribute reads a file below the device's folder in sysfs: "queue/io_timeout".
func Attribute(device, name string) (string, error) {
	b, err := os.ReadFile(filepath.Join("/sys/block", filepath.Base(device), name))
	return strings.TrimSpace(string(b)), err
}

// SetAttribute writes such a file.
func SetAttribute(device, name, value string) error {
	return os.WriteFile(filepath.Join("/sys/block", filepath.Base(device), name), []byte(value), 0)
}

// WaitSize waits until a device has a size, 0 for one that is detached.
func WaitSize(ctx context.Context, device string, size int64) error {
	var last int64
	err := interop.Until(ctx, deviceWithin, fmt.Sprintf("%s to have %d bytes", device, size), func() bool {
		var err error
		last, err = Size(device)
		return err == nil && last == size
	})
	if err != nil {
		return fmt.Errorf("%w; it has %d", err, last)
	}
	return nil
}

// WaitConnected waits until so many nbd devices are connected.
func WaitConnected(ctx context.Context, n int) error {
	var last []string
	err := interop.Until(ctx, deviceWithin, fmt.Sprint(n, " connected nbd devices"), func() bool {
		var err error
		last, err = Connected()
		return err == nil && len(last) == n
	})
	if err != nil {
		return fmt.Errorf("%w; there are %v", err, last)
	}
	return nil
}
