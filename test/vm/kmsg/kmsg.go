// Package kmsg reads the kernel's log and judges it: after a test it must hold
// no warning of the kernel about itself, no I/O error, and nothing else at level
// "error", except what the test says it provokes.
package kmsg

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// maxRecord bounds one record of /dev/kmsg, bytes.
const maxRecord = 8192

// inMachine is set by vmrun.
const inMachine = "CSI_MPATH_VM_KERNEL"

// Log reads /dev/kmsg. It is for one goroutine.
type Log struct{ fd int }

// Open opens the log at its oldest record.
func Open() (*Log, error) {
	fd, err := unix.Open("/dev/kmsg", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/kmsg: %w", err)
	}
	return &Log{fd}, nil
}

// Close closes the log.
func (l *Log) Close() { _ = unix.Close(l.fd) }

// ToEnd skips what is there already.
func (l *Log) ToEnd() error {
	_, err := unix.Seek(l.fd, 0, 2)
	return err
}

// Read returns all records since the last call. Records that were overwritten
// before they were read are an error: nobody can say what they were.
func (l *Log) Read() ([]Record, error) {
	var out []Record
	buf := make([]byte, maxRecord)
	for {
		n, err := unix.Read(l.fd, buf)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			return out, nil
		case errors.Is(err, unix.EPIPE):
			return out, errors.New("kernel log: records were lost: the log is full (log_buf_len)")
		case err != nil:
			return out, fmt.Errorf("kernel log: %w", err)
		}
		r, err := Parse(string(buf[:n]))
		if err != nil {
			return out, err
		}
		out = append(out, r)
	}
}

// Say writes a line into the kernel's log, to find one's way in it. Outside of
// the virtual machine it says nothing.
func Say(format string, args ...any) {
	if os.Getenv(inMachine) == "" {
		return
	}
	// Without the newline the record could not be read before the next one.
	_ = os.WriteFile("/dev/kmsg", fmt.Appendf(nil, "<6>test: "+format+"\n", args...), 0)
}

// judged are the records a Watch has answered for; Main answers for the rest.
var (
	mu     sync.Mutex
	judged = map[uint64]bool{}
)

// Watch fails the test if the kernel says something it should not, unless one
// of allow matches. It belongs first into the test: what is cleaned up after
// the test is judged, too.
func Watch(t testing.TB, allow ...*regexp.Regexp) {
	t.Helper()
	l, err := Open()
	if err == nil {
		err = l.ToEnd()
	}
	if err != nil {
		t.Fatal(err)
	}
	Say("begin %s", t.Name())
	t.Cleanup(func() {
		defer l.Close()
		all, err := l.Read()
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		for _, r := range all {
			judged[r.Seq] = true
		}
		mu.Unlock()
		if found := Findings(all, allow...); len(found) > 0 {
			t.Errorf("the kernel's log is not clean:\n%s", lines(found))
		}
		Say("end %s", t.Name())
	})
}

// Main runs the tests of a package, and fails for what the kernel said outside
// of every Watch: at boot, between tests, in tests without one.
func Main(m *testing.M, allow ...*regexp.Regexp) int {
	code := m.Run()
	l, err := Open()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer l.Close()
	all, err := l.Read()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var rest []Record
	for _, r := range Findings(all, append(allow, Boot)...) {
		if !judged[r.Seq] {
			rest = append(rest, r)
		}
	}
	if len(rest) > 0 {
		fmt.Fprintf(os.Stderr, "FAIL: the kernel's log is not clean outside of the tests:\n%s", lines(rest))
		return 1
	}
	return code
}

func lines(all []Record) string {
	var b strings.Builder
	for _, r := range all {
		fmt.Fprintln(&b, r)
	}
	return b.String()
}
