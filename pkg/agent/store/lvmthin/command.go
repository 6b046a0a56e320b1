package lvmthin

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// runner runs lvm with these arguments, the first of which is its command, and
// returns what it printed. It ends with ctx.
type runner func(ctx context.Context, args []string) ([]byte, error)

// searched is where lvm may be, and what it may start.
const searched = "/usr/sbin:/usr/bin:/sbin:/bin"

// execute is the runner of the real thing.
func execute(ctx context.Context, args []string) ([]byte, error) {
	path, err := program("lvm")
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, path, args...) //nolint:gosec // argv: every name in it is checked
	cmd.Env = []string{"PATH=" + searched, "LC_ALL=C", "LVM_SUPPRESS_FD_WARNINGS=1"}
	stdout, stderr := &bounded{limit: maxOutput}, &bounded{limit: maxStderr}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	// LVM holds signals back while devices are suspended, and tidies up.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = endGrace
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("lvm %s: %w: %s", args[0], err, complaint(stderr.Bytes()))
	}
	if stdout.cut {
		return nil, fmt.Errorf("lvm %s printed more than %d bytes", args[0], maxOutput)
	}
	return stdout.Bytes(), nil
}

func program(name string) (string, error) {
	for _, dir := range strings.Split(searched, ":") {
		path := filepath.Join(dir, name)
		if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", fmt.Errorf("there is no %s in %s: install lvm2", name, searched)
}

// complaint is what a command said, on one line.
func complaint(b []byte) string {
	s := strings.Join(strings.Fields(strings.ToValidUTF8(string(b), "?")), " ")
	if len(s) > maxComplaint {
		s = s[:maxComplaint] + "..."
	}
	return s
}

// bounded keeps the first limit bytes and takes the rest: a command that blocks
// on its output would never end.
type bounded struct {
	bytes.Buffer
	limit int
	cut   bool
}

// Write never fails.
func (b *bounded) Write(p []byte) (int, error) {
	if room := b.limit - b.Len(); len(p) > room {
		b.cut = true
		b.Buffer.Write(p[:room])
		return len(p), nil
	}
	return b.Buffer.Write(p)
}

// turns has a channel of one place for each volume group: LVM takes a lock per
// group anyway, and commands that wait for it would only be in each other's way.
var turns sync.Map

func turn(vg string) chan struct{} {
	t, _ := turns.LoadOrStore(vg, make(chan struct{}, 1))
	return t.(chan struct{})
}

// lvm runs one command, after those before it. When ctx ends, the caller is free,
// but a command that has begun goes on to its end, and the next one waits for it:
// it is never killed in the middle of a change because somebody hung up.
func (s *Store) lvm(ctx context.Context, args ...string) ([]byte, error) {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	type result struct {
		out []byte
		err error
	}
	done := make(chan result, 1)
	go func() {
		defer func() { <-s.turn }()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commandTimeout)
		defer cancel()
		out, err := s.run(ctx, append(args[:1:1], append(s.always, args[1:]...)...))
		done <- result{out, err}
	}()
	select {
	case r := <-done:
		if r.err != nil {
			r.err = fmt.Errorf("%w: %w", backend.ErrUnavailable, r.err)
		}
		return r.out, r.err
	case <-ctx.Done():
		return nil, fmt.Errorf("lvm %s goes on: %w", args[0], context.Cause(ctx))
	}
}

// always are the arguments of every command: which devices it may look at, and,
// where no udev runs, that it makes its nodes itself. What a guest writes into a
// volume, physical volumes of its own among it, is never looked into.
func always(cfg Config, udev bool) ([]string, error) {
	config := "devices{scan_lvs=0}"
	if !udev {
		config += " activation{udev_sync=0 udev_rules=0}"
	}
	args := []string{"--config", config}
	for _, d := range cfg.Devices {
		if !strings.HasPrefix(d, "/dev/") || filepath.Clean(d) != d || strings.ContainsAny(d, ", ") {
			return nil, fmt.Errorf("device %q: want a path below /dev", d)
		}
		args = append(args, "--devices", d)
	}
	return args, nil
}

// validName reports whether s is a name of LVM: it becomes an argument, so no
// hyphen first.
func validName(s string) bool {
	if s == "" || len(s) > maxLVName || s[0] == '-' || s == "." || s == ".." {
		return false
	}
	for i := range len(s) {
		c := s[i]
		letter := c|0x20 >= 'a' && c|0x20 <= 'z'
		if !letter && (c < '0' || c > '9') && !strings.ContainsRune("_+.-", rune(c)) {
			return false
		}
	}
	return true
}
