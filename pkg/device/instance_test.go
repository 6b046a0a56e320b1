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

func TestADeviceOfAnotherStateDirectoryIsFoundIfItIsTheOnlyOne(t *testing.T) {
	a, err := identifier(t.TempDir(), "v")
	b, err2 := identifier(t.TempDir(), "v")
	w, err3 := identifier(t.TempDir(), "w")
	if err := errors.Join(err, err2, err3); err != nil {
		t.Fatal(err)
	}
	foreign := []kernel.Status{{Index: 1, Backend: w}, {Index: 2, Backend: "others:0123456789abcdef:v"}, {Index: 3, Backend: "csi-mpath:v"}, {Index: 4}}
	if s, err := onlyOne(foreign, "v"); !errors.Is(err, kernel.ErrNotAttached) {
		t.Errorf("%+v, %v", s, err)
	}
	if s, err := onlyOne(append(foreign, kernel.Status{Index: 5, Backend: a}), "v"); err != nil || s.Index != 5 {
		t.Errorf("%+v, %v", s, err)
	}
	if s, err := onlyOne(append(foreign, kernel.Status{Index: 5, Backend: a}, kernel.Status{Index: 6, Backend: b}), "v"); err == nil || errors.Is(err, kernel.ErrNotAttached) {
		t.Errorf("%+v, %v", s, err)
	}
}
