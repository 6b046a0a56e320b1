package main

import (
	"bufio"
	"context"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/iscsi"
)

const small = `targets:
- name: iqn.2026-01.a:one
  portals: [{address: "127.0.0.1:0"}]
  luns: [{number: 0, store: {ram: 1Mi}}]
`

// running is serveTargets beside the test.
type running struct {
	t       *testing.T
	file    string
	lines   *bufio.Scanner
	signals chan os.Signal
	done    chan error
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func runTargets(t *testing.T) *running {
	t.Helper()
	r := &running{t: t, file: filepath.Join(t.TempDir(), "t.yaml"), signals: make(chan os.Signal, 4), done: make(chan error, 1)}
	write(t, r.file, small)
	cfg, err := readTargets(r.file)
	if err != nil {
		t.Fatal(err)
	}
	in, out := io.Pipe()
	r.lines = bufio.NewScanner(in)
	go func() {
		err := serveTargets(out, r.file, cfg, r.signals)
		_ = out.Close()
		r.done <- err
	}()
	return r
}

// line is the next line that begins with prefix.
func (r *running) line(prefix string) string {
	r.t.Helper()
	for r.lines.Scan() {
		if strings.HasPrefix(r.lines.Text(), prefix) {
			return r.lines.Text()
		}
	}
	r.t.Fatalf("no line begins with %q", prefix)
	return ""
}

func (r *running) end() {
	r.t.Helper()
	r.signals <- syscall.SIGTERM
	r.line("stopped")
	if err := <-r.done; err != nil {
		r.t.Fatal(err)
	}
}

var served = regexp.MustCompile(`127\.0\.0\.1:\d+`)

func discovered(t *testing.T, at string) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	all, err := iscsi.Discover(ctx, iscsi.Config{Portal: at, InitiatorName: "iqn.2026-01.a:host"})
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

func TestTheReadyLineSaysWhereAndHow(t *testing.T) {
	r := runTargets(t)
	at := served.FindString(r.line("ready: 1 target on 127.0.0.1:"))
	if got := r.line("    csi-mpath attach"); got != "    csi-mpath attach --iscsi "+at+" --target iqn.2026-01.a:one --lun 0 --socket /tmp/lun0.sock" {
		t.Error(got)
	}
	if n := discovered(t, at); n != 1 {
		t.Errorf("%d targets", n)
	}
	r.end()
}

func TestSIGHUPReadsTheConfigurationAgain(t *testing.T) {
	r := runTargets(t)
	at := served.FindString(r.line("ready:"))
	write(t, r.file, small+strings.ReplaceAll(strings.TrimPrefix(small, "targets:\n"), "a:one", "a:two"))
	r.signals <- syscall.SIGHUP
	r.line("changed: 2 targets on " + at)
	r.line("    csi-mpath attach")
	r.line("    csi-mpath attach")
	if n := discovered(t, at); n != 2 {
		t.Errorf("%d targets", n)
	}
	r.end()
}

func TestAMistakeInTheConfigurationChangesNothing(t *testing.T) {
	r := runTargets(t)
	at := served.FindString(r.line("ready:"))
	r.line("    csi-mpath attach")
	write(t, r.file, strings.Replace(small, "ram: 1Mi", "rom: 1Mi", 1))
	r.signals <- syscall.SIGHUP
	if got := r.line("not changed: "); !strings.Contains(got, "targets[0].luns[0].store.rom: unknown key") {
		t.Error(got)
	}
	if n := discovered(t, at); n != 1 {
		t.Errorf("%d targets", n)
	}
	r.end()
}

func TestTargetFlagsAreChecked(t *testing.T) {
	dir := t.TempDir()
	good, bad, open := filepath.Join(dir, "good"), filepath.Join(dir, "bad"), filepath.Join(dir, "open")
	write(t, good, small)
	write(t, bad, "targets: 7")
	write(t, open, strings.Replace(small, "  luns", "  auth: {secretFile: "+filepath.Join(dir, "secret")+"}\n  luns", 1))
	secret := filepath.Join(dir, "secret")
	write(t, secret, "username=host\npassword=a long secret\n")
	if err := os.Chmod(secret, 0o644); err != nil { //nolint:gosec // that is the mistake
		t.Fatal(err)
	}
	for want, all := range map[int][][]string{
		0:         {{"--example"}, {"--check", "--config", good}},
		exitUsage: {{}, {"--config", bad}, {"--config", filepath.Join(dir, "none")}, {"--config", good, "--example"}, {"--check", "--config", open}, {"x"}},
	} {
		for _, args := range all {
			if got := run(append([]string{"target"}, args...)); got != want {
				t.Errorf("target %v: exit code %d, want %d", args, got, want)
			}
		}
	}
}
