package kernel

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func want(t *testing.T, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("got %v, want %v", err, target)
	}
}

func TestAnAttachedDeviceIsSetUp(t *testing.T) {
	f := newFake(t)
	d, s := f.attach("vol-1")
	if d.Index != 0 || d.Path != "/dev/nbd0" || len(d.Warnings) != 0 || len(s.conns) != 1 {
		t.Fatalf("got %+v, %d connections", d, len(s.conns))
	}
	for name, value := range map[string]string{
		"queue/scheduler": "none", "queue/io_timeout": "2000", "queue/max_sectors_kb": "1024", "queue/nr_requests": "64",
		"bdi/max_ratio": "20", "bdi/strict_limit": "1",
	} {
		if got := f.get(0, name); got != value {
			t.Errorf("%s is %q, want %q", name, got, value)
		}
	}
	m := f.devices[0].last
	if *m.timeout != 0 || *m.deadConnects != 86400 || *m.block != 4096 || m.index != nil {
		t.Fatalf("sent %+v", m)
	}
}

func TestSettingsThatAreRightAreNotWritten(t *testing.T) {
	f := newFake(t)
	d, s := f.attach("vol-1")
	s.die()
	old := time.Unix(1e9, 0)
	must(t, os.Chtimes(f.path(0, "queue/scheduler"), old, old))
	_, err := f.k.Reconnect(f.ctx(), d.Index, options("vol-1"), (&server{}).serve)
	must(t, err)
	if st, err := os.Stat(f.path(0, "queue/scheduler")); err != nil || !st.ModTime().Equal(old) {
		t.Fatalf("written at %v: that would freeze the queue until its requests end", st.ModTime())
	}
}

func TestWhatAnOldKernelLacksIsAWarning(t *testing.T) {
	f := newFake(t, "bdi/strict_limit", "queue/io_timeout", "backend")
	d, _ := f.attach("vol-1")
	if all := strings.Join(d.Warnings, "\n"); len(d.Warnings) != 3 || !strings.Contains(all, "strict_limit") ||
		!strings.Contains(all, "wait 30 s") || !strings.Contains(all, "not recognized") {
		t.Fatalf("warnings: %q", d.Warnings)
	}
}

func TestABackendIsAttachedOnce(t *testing.T) {
	f := newFake(t)
	f.attach("vol-1")
	_, err := f.k.Attach(f.ctx(), options("vol-1"), (&server{}).serve)
	want(t, err, ErrExists)
	if f.count(cmdConnect) != 1 {
		t.Fatal("the kernel was asked")
	}
}

func TestABusyIndexIsNamed(t *testing.T) {
	f := newFake(t)
	f.attach("vol-1")
	o := options("vol-2")
	o.Index = 0
	_, err := f.k.Attach(f.ctx(), o, (&server{}).serve)
	want(t, err, unix.EBUSY)
	if !strings.Contains(err.Error(), "nbd0 is in use") {
		t.Fatal(err)
	}
}

func TestAFailedAttachLeavesNothingAttached(t *testing.T) {
	f := newFake(t)
	f.probed = unix.EIO
	_, err := f.k.Attach(f.ctx(), options("vol-1"), (&server{}).serve)
	want(t, err, unix.EIO)
	if len(f.devices) != 0 {
		t.Fatal("still attached")
	}
}

func TestAttachEndsWithItsContextWhenTheNodeNeverComes(t *testing.T) {
	f := newFake(t)
	f.probed = errNotYet
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := f.k.Attach(ctx, options("vol-1"), (&server{}).serve)
	want(t, err, context.DeadlineExceeded)
	// At once, or in the goroutine of a connect that answered too late.
	f.await(func() bool { return f.attached() == 0 })
}

func TestAConnectThatAnswersTooLateIsUndone(t *testing.T) {
	f := newFake(t)
	f.hang[cmdConnect] = make(chan struct{})
	f.hang[cmdDisconnect] = make(chan struct{})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	s := &server{}
	_, err := f.k.Attach(ctx, options("vol-1"), s.serve)
	want(t, err, context.DeadlineExceeded)
	f.hang[cmdConnect] <- struct{}{}
	f.hang[cmdDisconnect] <- struct{}{}
	f.await(func() bool { return f.count(cmdDisconnect) == 1 })
	if len(s.conns) != 0 {
		t.Fatal("a connection is served that nobody uses")
	}
}

func TestCallsThatHangAreBounded(t *testing.T) {
	f := newFake(t)
	f.hang[cmdStatus] = make(chan struct{})
	f.unhang(cmdStatus, MaxCalls)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	for range MaxCalls {
		_, err := f.k.Connected(ctx, 0)
		want(t, err, context.DeadlineExceeded)
	}
	if _, err := f.k.Connected(t.Context(), 0); err == nil || !strings.Contains(err.Error(), "hang already") {
		t.Fatal(err)
	}
}

func TestResizeGrowsOnly(t *testing.T) {
	f := newFake(t)
	d, _ := f.attach("vol-1")
	must(t, d.Resize(f.ctx(), 2<<20))
	if s, err := f.k.Find("vol-1"); err != nil || s.Size != 2<<20 {
		t.Fatalf("%+v, %v", s, err)
	}
	must(t, d.Resize(f.ctx(), 2<<20)) // once more is no error
	if err := d.Resize(f.ctx(), 1<<20); err == nil || !strings.Contains(err.Error(), "only grows") {
		t.Fatal(err)
	}
}

func TestTheDeadConnectionTimeoutCanBeShortened(t *testing.T) {
	f := newFake(t)
	d, _ := f.attach("vol-1")
	must(t, d.SetDeadConnTimeout(f.ctx(), 3*time.Second))
	if m := f.devices[0].last; *m.deadConnects != 3 || m.timeout != nil || m.sockets != nil {
		t.Fatalf("sent %+v", m)
	}
	if err := d.SetDeadConnTimeout(f.ctx(), time.Millisecond); err == nil {
		t.Fatal("less than a second was accepted")
	}
}

func TestListKnowsWhatIsNoDevice(t *testing.T) {
	f := newFake(t)
	f.attach("vol-1")
	for _, dir := range []string{"nbd1", "nbd2p1", "nbdx", "sda"} {
		must(t, os.MkdirAll(f.dir+"/block/"+dir, 0o755))
	}
	all, err := f.k.List()
	must(t, err)
	if len(all) != 1 || all[0] != (Status{Index: 0, Backend: "vol-1", PID: 4711, Size: 1 << 20}) {
		t.Fatalf("got %+v", all)
	}
	_, err = f.k.Find("vol-2")
	want(t, err, ErrNotAttached)
	f.set(0, "size", "many")
	if _, err := f.k.List(); err == nil || !strings.Contains(err.Error(), "holds no number") {
		t.Fatal(err)
	}
}

func TestAFileOfSysfsThatVanishesIsNoDevice(t *testing.T) {
	for _, err := range []error{fs.ErrNotExist, unix.ENODEV, unix.ENOENT} {
		if !gone(err) {
			t.Errorf("%v", err)
		}
	}
}

func TestAMissingModuleSaysTheWayOut(t *testing.T) {
	f := newFake(t)
	f.k.exchange = func(message) (message, error) { return message{}, ErrNoModule }
	err := f.k.Available(t.Context())
	want(t, err, ErrNoModule)
	if !strings.Contains(err.Error(), "modprobe nbd") {
		t.Fatal(err)
	}
}
