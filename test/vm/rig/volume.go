package rig

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/test/vm/kmsg"
)

// Volume is a block device that the product serves.
type Volume struct {
	*Product
	Name   string
	Device string // "/dev/nbd0"
	State  string // the state directory
}

// Serving is what attach prints once the device is there.
const Serving = "serving "

var deviceNode = regexp.MustCompile(`/dev/nbd[0-9]+`)

// AttachVolume runs csi-mpath attach --device auto with some more flags, and
// waits for the device. dir is where the state directory goes. The device is
// removed at the end of the test.
func AttachVolume(t testing.TB, dir, name string, flags ...string) *Volume {
	t.Helper()
	v, err := TryAttach(t, dir, name, flags...)
	Must(t, err)
	return v
}

// TryAttach is AttachVolume for what may be refused.
func TryAttach(t testing.TB, dir, name string, flags ...string) (*Volume, error) {
	t.Helper()
	v := &Volume{Name: name, State: filepath.Join(dir, "state")}
	v.Product = StartProduct(t, append([]string{"attach", "--device", "auto", "--name", name, "--state-dir", v.State}, flags...)...)
	t.Cleanup(func() {
		if err := v.Detach(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	_, text, err := v.Await(t.Context(), Serving, 0)
	if err != nil {
		return v, err
	}
	if v.Device = deviceNode.FindString(text); v.Device == "" {
		return v, fmt.Errorf("no device in %q", text)
	}
	return v, nil
}

// Restarted waits until the product serves the device again after an event at
// mark, and says when that was.
func (v *Volume) Restarted(ctx context.Context, mark int) (time.Time, error) {
	at, text, err := v.Await(ctx, Serving, mark)
	if err == nil && deviceNode.FindString(text) != v.Device {
		err = fmt.Errorf("%s is served as another device: %s", v.Device, text)
	}
	return at, err
}

// Detach removes the device with csi-mpath detach, whether its attach runs or
// not, and waits for that to end. A device that is gone is no error.
func (v *Volume) Detach(ctx context.Context) error {
	if v.Device != "" && !v.attached() {
		return nil
	}
	kmsg.Say("csi-mpath detach %s", v.Name)
	out, err := Try(os.Getenv("CSI_MPATH_BIN") + " detach " + v.Name)
	if err != nil {
		if v.Device == "" {
			return nil // it never came
		}
		return err
	}
	limit := time.NewTimer(stopWithin)
	defer limit.Stop()
	select {
	case <-v.c.Done():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-limit.C:
		return fmt.Errorf("%s, but its attach still runs %v later:\n%s", out, stopWithin, tail(v.lines.text()))
	}
}

func (v *Volume) attached() bool {
	_, err := os.Stat(filepath.Join("/sys/block", filepath.Base(v.Device), "pid"))
	return err == nil
}
