//go:build interop

package interop

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/iscsi/auth"
	"github.com/csi-mpath/csi-mpath/pkg/target"
)

// serve starts the embedded target with one unit and two portals, and returns
// their URLs, as libiscsi writes them.
func serve(t *testing.T, cfg target.Config) (s *target.Server, urls [2]string) {
	t.Helper()
	s, err := target.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	for i := range urls {
		p, err := s.Listen("127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		urls[i] = fmt.Sprintf("iscsi://%s/%s/0", p.Addr(), s.Name())
	}
	return s, urls
}

func ram(size uint64, d target.Device) target.Config {
	return target.Config{LUNs: []target.LUN{{Store: target.NewRAM(size), Device: d}}}
}

// diskFile opens a new file of zeroes as a store.
func diskFile(t *testing.T, size int64, o target.Options) *target.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
	f, err := target.OpenFileWith(path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// foreign runs a program we did not write and returns what it printed.
func foreign(t *testing.T, env []string, name string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Env = append(cmd.Environ(), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func mustForeign(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := foreign(t, nil, name, args...)
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return out
}

func TestLibiscsiFindsAndReadsTheEmbeddedTarget(t *testing.T) {
	s, urls := serve(t, ram(8*mib, target.Device{}))
	portal, _, _ := strings.Cut(urls[0], "/iqn.")
	if out := mustForeign(t, "iscsi-ls", "-s", portal); strings.Count(out, "Portal:") != 2 || strings.Count(out, "DIRECT_ACCESS") != 2 {
		t.Error(out)
	}
	var d target.Device
	s.Do(func(m *target.Machine) { d, _ = m.DeviceAt(1, 0) })
	if out := mustForeign(t, "iscsi-inq", "-e", "1", "-c", "128", urls[0]); !strings.Contains(out, d.Serial) {
		t.Error(out)
	}
	for page := range map[int]bool{0x83: true, 0xb0: true, 0xb1: true, 0xb2: true} {
		mustForeign(t, "iscsi-inq", "-e", "1", "-c", fmt.Sprint(page), urls[1])
	}
	if out := mustForeign(t, "iscsi-readcapacity16", urls[1]); !strings.Contains(out, "Total size:8388608") {
		t.Error(out)
	}
}

func TestLibiscsiAndTheEmbeddedTargetProveThemselves(t *testing.T) {
	cfg := ram(mib, target.Device{})
	cfg.Auth = auth.Credentials{User: "host", Secret: "a long secret", MutualUser: "target", MutualSecret: "another secret"}
	_, urls := serve(t, cfg)
	known := strings.Replace(urls[0], "iscsi://", "iscsi://host%a long secret@", 1)
	if out, err := foreign(t, nil, "iscsi-inq", known); err != nil {
		t.Errorf("%v %s", err, out)
	}
	mutual := []string{"LIBISCSI_CHAP_TARGET_USERNAME=target", "LIBISCSI_CHAP_TARGET_PASSWORD=another secret"}
	if out, err := foreign(t, mutual, "iscsi-inq", known); err != nil {
		t.Errorf("both ways: %v %s", err, out)
	}
	if out, err := foreign(t, nil, "iscsi-inq", urls[0]); err == nil || !strings.Contains(out, "Authentication failure") {
		t.Errorf("without a secret: %v %s", err, out)
	}
}

// qemuIO runs qemu-io's commands and counts the reads that found their pattern.
func qemuIO(t *testing.T, url string, reads int, commands ...string) {
	t.Helper()
	args := []string{"-f", "raw"}
	for _, c := range commands {
		args = append(args, "-c", c)
	}
	out := mustForeign(t, "qemu-io", append(args, url)...)
	if strings.Contains(out, "failed") || strings.Count(out, "read ") != reads {
		t.Error(out)
	}
}

func TestQEMUReadsBackWhatItWroteToTheEmbeddedTarget(t *testing.T) {
	for name, st := range map[string]target.Store{"RAM": target.NewRAM(64 * mib), "file": diskFile(t, 64*mib, target.Options{})} {
		t.Run(name, func(t *testing.T) {
			_, urls := serve(t, target.Config{LUNs: []target.LUN{{Store: st}}})
			qemuIO(t, urls[0], 5, "write -P 90 0 1M", "read -P 90 0 1M", "write -f -P 3 1M 8M", "read -P 3 1M 8M",
				"discard 0 64k", "read -P 0 0 64k", "write -z 1M 64k", "read -P 0 1M 64k", "read -P 3 1114112 64k", "flush")
		})
	}
}

// QEMU 7.2 aborts itself when it asks a unit of 4096-byte blocks for its holes,
// so here are none.
func TestQEMUUsesAnEmbeddedUnitOf4096ByteBlocks(t *testing.T) {
	_, urls := serve(t, target.Config{LUNs: []target.LUN{{Store: target.NewRAM(64 * mib), Thick: true, Device: target.Device{BlockSize: 4096}}}})
	qemuIO(t, urls[0], 2, "write -P 90 0 1M", "read -P 90 0 1M", "write -f -P 3 1M 8M", "read -P 3 1M 8M", "flush")
}

func TestQEMUImgCopiesAnImageToTheEmbeddedTargetAndKeepsItsHoles(t *testing.T) {
	image := filepath.Join(t.TempDir(), "image")
	data := bytes.Repeat([]byte("mpath123"), mib/8)
	if err := os.WriteFile(image, append(make([]byte, 4*mib), data...), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 16*mib); err != nil {
		t.Fatal(err)
	}
	store := target.NewRAM(16 * mib)
	_, urls := serve(t, target.Config{LUNs: []target.LUN{{Store: store}}})
	mustForeign(t, "qemu-img", "convert", "-n", "-f", "raw", "-O", "raw", image, urls[0])
	if out := mustForeign(t, "qemu-img", "compare", "-f", "raw", "-F", "raw", image, urls[1]); !strings.Contains(out, "identical") {
		t.Error(out)
	}
	if store.Used() > 2*mib {
		t.Errorf("%d bytes of the store are used by %d of data", store.Used(), len(data))
	}
	if out := mustForeign(t, "qemu-img", "map", "-f", "raw", "--output=json", urls[0]); !strings.Contains(out, `"start": 4194304, "length": 1048576, "depth": 0, "present": true, "zero": false`) {
		t.Error(out)
	}
	if out := mustForeign(t, "qemu-img", "info", urls[0]); !strings.Contains(out, "16777216 bytes") {
		t.Error(out)
	}
}
