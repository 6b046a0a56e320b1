package device

import (
	"errors"
	"os"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/nbd/kernel"
)

func TestAStateDirectoryKnowsItsKernelDevicesAgain(t *testing.T) {
	dir := t.TempDir()
	if _, err := identified(dir, "v"); !errors.Is(err, kernel.ErrNotAttached) {
		t.Errorf("before anything was attached: %v", err)
	}
	first, err := identifier(dir, "v")
	again, err2 := identifier(dir, "v")
	found, err3 := identified(dir, "v")
	if errors.Join(err, err2, err3) != nil || first != again || first != found {
		t.Errorf("%q, %q, %q: %v %v %v", first, again, found, err, err2, err3)
	}
	if len(first) > kernel.MaxBackend {
		t.Errorf("%d bytes", len(first))
	}
}

func TestTwoNodesOnOneKernelDoNotFindEachOthersDevices(t *testing.T) {
	a, err := identifier(t.TempDir(), "v")
	b, err2 := identifier(t.TempDir(), "v")
	if errors.Join(err, err2) != nil || a == b {
		t.Errorf("%q and %q: %v %v", a, b, err, err2)
	}
}

func TestADamagedInstanceIsNamedAndNotReplaced(t *testing.T) {
	dir := t.TempDir()
	for _, text := range []string{"", "00", "zz00000000000000", "0000000000000000f"} {
		if err := os.WriteFile(instanceFile(dir), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if id, err := identifier(dir, "v"); err == nil {
			t.Errorf("%q is taken for an instance: %s", text, id)
		}
	}
}
