//go:build interop

package target

import (
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// run runs a foreign initiator and returns what it printed.
func run(t *testing.T, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Env = append(cmd.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}

func url(s *Server, p *Portal, user string) string {
	return fmt.Sprintf("iscsi://%s%s/%s/0", user, p.Addr(), s.Name())
}

func TestLibiscsiFindsAndReadsTheUnit(t *testing.T) {
	s, p := serve(t, Config{})
	if out := run(t, nil, "iscsi-ls", "-s", "iscsi://"+p[0].Addr()); strings.Count(out, "Portal:") != 2 || strings.Count(out, "DIRECT_ACCESS") != 2 {
		t.Error(out)
	}
	d, err := s.m.DeviceAt(1, 0)
	if err != nil {
		t.Fatal(err)
	}
	if out := run(t, nil, "iscsi-inq", "-e", "1", "-c", "128", url(s, p[0], "")); !strings.Contains(out, d.Serial) {
		t.Error(out)
	}
	if out := run(t, nil, "iscsi-readcapacity16", url(s, p[1], "")); !strings.Contains(out, "Total size:8388608") {
		t.Error(out)
	}
}

func TestLibiscsiProvesItselfBothWays(t *testing.T) {
	s, p := serve(t, Config{Auth: chap})
	u := url(s, p[0], fmt.Sprintf("%s%%%s@", chap.User, string(chap.Secret)))
	run(t, nil, "iscsi-inq", u)
	run(t, []string{"LIBISCSI_CHAP_TARGET_USERNAME=" + chap.MutualUser, "LIBISCSI_CHAP_TARGET_PASSWORD=" + string(chap.MutualSecret)}, "iscsi-inq", u)
	if out, err := exec.CommandContext(t.Context(), "iscsi-inq", url(s, p[0], "")).CombinedOutput(); err == nil || !strings.Contains(string(out), "Authentication failure") {
		t.Errorf("without a secret: %v %s", err, out)
	}
}

// qemuIO runs qemu-io's commands and counts the verified reads. That the target
// has no GET LBA STATUS is told, and no failure.
func qemuIO(t *testing.T, url string, reads int, commands ...string) {
	t.Helper()
	args := []string{"-f", "raw"}
	for _, c := range commands {
		args = append(args, "-c", c)
	}
	out := strings.ReplaceAll(run(t, nil, "qemu-io", append(args, url)...), "GET_LBA_STATUS failed", "")
	if strings.Contains(out, "failed") || strings.Count(out, "read ") != reads {
		t.Error(out)
	}
}

func TestQEMUReadsBackWhatItWrote(t *testing.T) {
	s, p := serve(t, Config{LUNs: []LUN{{Store: NewRAM(64 << 20)}}})
	qemuIO(t, url(s, p[0], ""), 5, "write -P 90 0 1M", "read -P 90 0 1M", "write -f -P 3 1M 8M", "read -P 3 1M 8M",
		"discard 0 64k", "read -P 0 0 64k", "write -z 1M 64k", "read -P 0 1M 64k", "read -P 3 1114112 64k", "flush")
}

// QEMU 7.2 aborts itself when it asks a 4096-byte unit for its holes, so here
// are none.
func TestQEMUUsesAUnitOf4096ByteBlocks(t *testing.T) {
	s, p := serve(t, Config{LUNs: []LUN{{Store: NewRAM(64 << 20), Thick: true, Device: Device{BlockSize: 4096}}}})
	qemuIO(t, url(s, p[0], ""), 2, "write -P 90 0 1M", "read -P 90 0 1M", "write -f -P 3 1M 8M", "read -P 3 1M 8M", "flush")
}

var cuSummary = regexp.MustCompile(`tests +(\d+) +(\d+) +(\d+) +(\d+)`)

// TestLibiscsisConformanceSuitePasses runs iscsi-test-cu over two portals. It
// skips what the target says it has not. The unit is as large as one transfer:
// the suite takes MAXIMUM WRITE SAME LENGTH for a length it may read at once.
func TestLibiscsisConformanceSuitePasses(t *testing.T) {
	s, p := serve(t, Config{LUNs: []LUN{{Store: NewRAM(maxTransfer)}}})
	out := run(t, nil, "iscsi-test-cu", "-d", "-n", url(s, p[0], ""), url(s, p[1], ""))
	m := cuSummary.FindStringSubmatch(out)
	if m == nil || m[1] != m[3] || m[4] != "0" {
		t.Errorf("%v\n%s", m, out)
	}
	t.Logf("%s tests run", m[2])
}
