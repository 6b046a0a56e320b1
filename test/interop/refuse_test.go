//go:build interop

package interop

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/test/interop/rig"
	"github.com/csi-mpath/csi-mpath/test/interop/tgt"
	"github.com/csi-mpath/csi-mpath/test/port"
)

const (
	chapUser   = "mpathuser"
	chapSecret = "secretsecret12"
)

// patient is for an attach that ends by itself when it has seen the cause: on a
// machine short of CPU that must not be the end of its time.
const patient = "--open-timeout=50s"

// maxMemory bounds what a failed attach may have used, KiB.
const maxMemory = 128 << 10

// secretFile writes CHAP credentials as attach wants them.
func secretFile(t *testing.T, secret string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "chap")
	must(t, os.WriteFile(path, fmt.Appendf(nil, "username=%s\npassword=%s\n", chapUser, secret), 0o600))
	return path
}

// attachFails runs attach, which must end by itself with the exit code for a
// volume that did not come up, soon, in little memory, and returns what it said.
func attachFails(t *testing.T, portals, target string, more ...string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "x")
	must(t, err)
	defer func() { _ = os.RemoveAll(dir) }()
	cmd := exec.CommandContext(t.Context(), binary(t), append([]string{"attach", "--iscsi", portals, "--target", target,
		"--lun", "1", "--socket", filepath.Join(dir, "s"), "--state-dir", dir, "--open-timeout", "3s"}, more...)...)
	begin := time.Now()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	must(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	peak := 0
	for err = errRunning; errors.Is(err, errRunning); {
		select {
		case err = <-ended:
		case <-time.After(50 * time.Millisecond):
			peak = max(peak, memoryPeak(cmd.Process.Pid))
		}
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 3 {
		t.Fatalf("attach ended with %v, want exit code 3: %s", err, out.String())
	}
	if took := time.Since(begin); took > 90*time.Second {
		t.Errorf("attach took %v", took)
	}
	if peak > maxMemory {
		t.Errorf("attach used %d KiB of memory", peak)
	}
	return out.String()
}

var errRunning = errors.New("it runs")

// memoryPeak is the most memory a process has used since it began, KiB. (What
// wait reports counts the memory of the process that forked it, too.)
func memoryPeak(pid int) (kib int) {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if _, rest, ok := strings.Cut(string(status), "VmHWM:"); ok {
		_, _ = fmt.Sscan(rest, &kib)
	}
	return kib
}

func wantWords(t *testing.T, out string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(strings.ToLower(out), strings.ToLower(w)) {
			t.Errorf("no %q in: %s", w, out)
		}
	}
}

func chapPair(t *testing.T) *tgt.Pair {
	t.Helper()
	p, err := tgt.StartPair(t.Context(), 64*mib, withCHAP)
	must(t, err)
	t.Cleanup(func() { _ = p.Stop() })
	return p
}

func withCHAP(c *tgt.Config) { c.User, c.Secret = chapUser, chapSecret }

func TestTheRightCHAPSecretOpensTheVolume(t *testing.T) {
	r := start(t, rig.Options{Target: withCHAP, Args: []string{"--chap-secret-file", secretFile(t, chapSecret)}})
	finish(t, fio(t, r, time.Second))
}

func TestAWrongCHAPSecretIsNamedButNotShown(t *testing.T) {
	p := chapPair(t)
	const wrong = "wrongwrongwrong1"
	out := attachFails(t, p.A.Portal(), tgt.PairTarget, "--chap-secret-file", secretFile(t, wrong), patient)
	wantWords(t, out, p.A.Portal(), "auth")
	if strings.Contains(out, wrong) {
		t.Errorf("the secret is in: %s", out)
	}
}

func TestAMissingCHAPSecretIsNamed(t *testing.T) {
	p := chapPair(t)
	wantWords(t, attachFails(t, p.A.Portal(), tgt.PairTarget, patient), p.A.Portal(), "auth")
}

func TestAWrongTargetNameIsNamed(t *testing.T) {
	p, err := tgt.StartPair(t.Context(), 64*mib, nil)
	must(t, err)
	defer func() { _ = p.Stop() }()
	wantWords(t, attachFails(t, p.A.Portal(), "iqn.2026-01.io.csi-mpath:nothere", patient), p.A.Portal(), "iqn.2026-01.io.csi-mpath:nothere", "not found")
}

func TestAWrongLUNIsNamed(t *testing.T) {
	p, err := tgt.StartPair(t.Context(), 64*mib, nil)
	must(t, err)
	defer func() { _ = p.Stop() }()
	wantWords(t, attachFails(t, p.A.Portal(), tgt.PairTarget, "--lun", "7", patient), p.A.Portal(), "lun")
}

func TestEveryPortalThatNobodyListensOnIsNamed(t *testing.T) {
	var closed []string
	for range 2 {
		p, err := port.Hold() // and nobody else can listen there meanwhile
		must(t, err)
		defer func() { _ = p.Close() }()
		closed = append(closed, p.Addr())
	}
	wantWords(t, attachFails(t, strings.Join(closed, ","), tgt.PairTarget), closed[0], closed[1], "refused")
}

// impostor serves every connection with f, as an iSCSI portal would be.
func impostor(t *testing.T, f func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				f(c)
			}()
		}
	}()
	return l.Addr().String()
}

func TestAPortalThatIsNoTargetIsNamed(t *testing.T) {
	swallow := func(c net.Conn) {
		buf := make([]byte, 4096)
		for {
			if _, err := c.Read(buf); err != nil {
				return
			}
		}
	}
	flood := func(b []byte) func(net.Conn) {
		return func(c net.Conn) {
			for {
				if _, err := c.Write(b); err != nil {
					return
				}
			}
		}
	}
	login := make([]byte, 48) // a Login Response that asks for one more round, for ever
	login[0] = 0x23
	for name, f := range map[string]func(net.Conn){
		"says nothing":         swallow,
		"closes at once":       func(net.Conn) {},
		"speaks HTTP":          func(c net.Conn) { _, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")); swallow(c) },
		"sends zeroes":         flood(make([]byte, 64<<10)),
		"answers for ever":     flood(login),
		"sends a huge segment": flood([]byte{0x23, 0, 0, 0, 0, 0xff, 0xff, 0xff}),
	} {
		t.Run(name, func(t *testing.T) {
			portal := impostor(t, f)
			wantWords(t, attachFails(t, portal, tgt.PairTarget), portal)
		})
	}
}
