//go:build vm

package nbdkernel

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/nbd"
	"github.com/csi-mpath/csi-mpath/pkg/nbd/kernel"
	"github.com/csi-mpath/csi-mpath/pkg/nbd/proto"
	interop "github.com/csi-mpath/csi-mpath/test/interop/rig"
	"github.com/csi-mpath/csi-mpath/test/vm/kmsg"
	"github.com/csi-mpath/csi-mpath/test/vm/rig"
	"github.com/csi-mpath/csi-mpath/test/vm/writers"
)

// ioTimeout is that of the devices, kernel.For's default.
const ioTimeout = 2 * time.Second

// take waits for a held request.
func take(t *testing.T, d *disk) *blk.Request {
	t.Helper()
	select {
	case r := <-d.held:
		return r
	case <-within(t, time.Minute).Done():
		t.Fatal("no request came")
	}
	return nil
}

// write starts a direct write and returns where its outcome comes.
func write(t *testing.T, path string, b byte, off int64) <-chan error {
	f, buf, done := direct(t, path), aligned(t, 4096, b), make(chan error, 1)
	go func() {
		_, err := f.WriteAt(buf, off)
		done <- errors.Join(err, f.Close())
	}()
	return done
}

func outcome(t *testing.T, done <-chan error) error {
	t.Helper()
	select {
	case err := <-done:
		return err
	case <-within(t, 2*time.Minute).Done():
		t.Fatal("the write has not ended")
	}
	return nil
}

func TestWhatADeadServerHeldIsReplayed(t *testing.T) {
	kmsg.Watch(t, kmsg.ServerLost, kmsg.ServerSlow)
	k, d := kernel.New(), newDisk(t, 16*mib)
	first, second := start(t, nbd.Config{}), start(t, nbd.Config{})
	dev := first.attach(k, "t:replay", d)
	d.silent.Store(true)
	done := write(t, dev.Path, 'r', mib)
	r := take(t, d)
	d.held <- r // kill gives it back
	begun := time.Now()
	first.kill(d)
	d.silent.Store(true)
	_, err := k.Reconnect(within(t, time.Minute), dev.Index, kernel.For("t:replay", d.Info()), second.serve(d))
	must(t, err)
	again := take(t, d)
	t.Logf("replayed %v after the kill", time.Since(begun).Round(time.Millisecond))
	if again.Op != blk.Write || again.Off != mib || again.Len != 4096 {
		t.Errorf("replayed: %v of %d bytes at %d", again.Op, again.Len, again.Off)
	}
	d.silent.Store(false)
	d.finish(again)
	must(t, outcome(t, done))
	if d.Bytes()[mib] != 'r' {
		t.Error("the write is not there")
	}
}

func TestADeathIsHeard(t *testing.T) {
	kmsg.Watch(t, kmsg.ServerLost)
	k, d, p := kernel.New(), newDisk(t, 4*mib), start(t, nbd.Config{})
	dev := p.attach(k, "t:watch", d)
	ready, dead := make(chan struct{}), make(chan int, 16)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- kernel.Watch(ctx, ready, func(i int) { dead <- i }) }()
	<-ready
	p.kill()
	select {
	case i := <-dead:
		if i != dev.Index {
			t.Errorf("nbd%d is dead, want nbd%d", i, dev.Index)
		}
	case <-within(t, time.Minute).Done():
		t.Error("no event came")
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// The kernel ends a connection, and keeps the device, when it gets an answer it
// did not wait for.
func TestAConnectionThatTheKernelGaveUpIsReplaced(t *testing.T) {
	kmsg.Watch(t, kmsg.ServerLost, kmsg.Provoked("Wrong magic"))
	k, d := kernel.New(), newDisk(t, 4*mib)
	p := start(t, nbd.Config{})
	dev := p.attach(k, "t:gave-up", d)
	_, err := p.conns[0].Write(make([]byte, proto.SimpleLen)) // not even a reply
	must(t, err)
	select {
	case err := <-p.last:
		if !errors.Is(err, nbd.ErrHungUp) {
			t.Errorf("ended with %v", err)
		}
	case <-within(t, time.Minute).Done():
		t.Fatal("the connection has not ended")
	}
	_, err = k.Reconnect(within(t, time.Minute), dev.Index, kernel.For("t:gave-up", d.Info()), p.serve(d))
	must(t, err)
	must(t, outcome(t, write(t, dev.Path, 'a', 0)))
	must(t, dev.Disconnect(within(t, time.Minute)))
	if err := <-p.last; err != nil {
		t.Errorf("after the goodbye: %v", err)
	}
}

func TestALivingServerIsNotReplaced(t *testing.T) {
	kmsg.Watch(t, kmsg.ServerLost)
	k, d := kernel.New(), newDisk(t, 4*mib)
	p := start(t, nbd.Config{})
	dev := p.attach(k, "t:alive", d)
	var other int
	_, err := k.Reconnect(within(t, 2*time.Second), dev.Index, kernel.For("t:alive", d.Info()), func(net.Conn) { other++ })
	if !errors.Is(err, kernel.ErrAlive) || other != 0 {
		t.Fatalf("got %v, %d connections", err, other)
	}
	must(t, outcome(t, write(t, dev.Path, 'a', 0)))
}

func TestAWrongBackendGetsNoDevice(t *testing.T) {
	kmsg.Watch(t, kmsg.ServerLost)
	k, d := kernel.New(), newDisk(t, 4*mib)
	first, second := start(t, nbd.Config{}), start(t, nbd.Config{})
	dev := first.attach(k, "t:right", d)
	first.kill(d)
	_, err := k.Reconnect(within(t, time.Minute), dev.Index, kernel.For("t:wrong", d.Info()), second.serve(d))
	if !errors.Is(err, kernel.ErrForeign) {
		t.Fatal(err)
	}
	_, err = k.Reconnect(within(t, time.Minute), dev.Index, kernel.For("t:right", d.Info()), second.serve(d))
	must(t, err)
	must(t, outcome(t, write(t, dev.Path, 'a', 0)))
}

// The kernel of a killed process closes its sockets in the middle of whatever
// they carry.
func TestWritersDoNotNoticeThatTheServerDied(t *testing.T) {
	kmsg.Watch(t, kmsg.ServerLost, kmsg.ServerSlow)
	restarts(t, "t:kill", func(p *process, d *disk) { p.kill(d) })
}

func TestWritersDoNotNoticeAHandOver(t *testing.T) {
	kmsg.Watch(t, kmsg.ServerLost, kmsg.ServerSlow)
	restarts(t, "t:drain", func(p *process, _ *disk) {
		kmsg.Say("the server drains")
		must(t, p.srv.Drain(within(t, time.Minute)))
		p.ended.Wait()
	})
}

func restarts(t *testing.T, backend string, end func(*process, *disk)) {
	k, d, p := kernel.New(), newDisk(t, 64*mib), start(t, nbd.Config{})
	dev := p.attach(k, backend, d)
	l, err := writers.Start(writers.Config{Path: dev.Path, Size: mib, Max: 16}, 16)
	must(t, err)
	for range 3 {
		must(t, l.Progress(within(t, 2*time.Minute)))
		undisturbed := l.TakeStall().For
		end(p, d)
		p = start(t, nbd.Config{})
		begun := time.Now()
		_, err := k.Reconnect(within(t, time.Minute), dev.Index, kernel.For(backend, d.Info()), p.serve(d))
		must(t, err)
		reconnect := time.Since(begun)
		must(t, l.Progress(within(t, 2*time.Minute)))
		t.Logf("longest operation %v, without restart %v; reconnect took %v; bound: restart + %v",
			l.TakeStall().For.Round(time.Millisecond), undisturbed.Round(time.Millisecond), reconnect.Round(time.Millisecond), 2*ioTimeout)
	}
	r, err := l.Stop(within(t, 2*time.Minute))
	must(t, err)
	must(t, l.Verify(within(t, time.Minute), ""))
	t.Logf("%d writes, %d reads", r.Writes, r.Reads)
}

// ioError is what a write says whose device was taken away.
var ioError = kmsg.Provoked("I/O error, dev nbd")

func TestASilentServerDoesNotHoldUpADisconnect(t *testing.T) {
	kmsg.Watch(t, kmsg.ServerLost, kmsg.ServerSlow, ioError)
	k, d, p := kernel.New(), newDisk(t, 16*mib), start(t, nbd.Config{})
	dev := p.attach(k, "t:silent", d)
	d.silent.Store(true)
	done := write(t, dev.Path, 's', 0)
	d.held <- take(t, d)
	disconnectWithin(t, dev, done)
	p.kill(d)
}

// A server that does not even read: the kernel's farewell finds no room.
func TestADeafServerDoesNotHoldUpADisconnect(t *testing.T) {
	kmsg.Watch(t, kmsg.ServerLost, kmsg.ServerSlow, ioError)
	k, d, p := kernel.New(), newDisk(t, 64*mib), start(t, nbd.Config{Depth: 1})
	dev := p.attach(k, "t:deaf", d)
	d.silent.Store(true)
	f, buf, done := direct(t, dev.Path), aligned(t, 32*mib, 'd'), make(chan error, 1)
	go func() {
		_, err := f.WriteAt(buf, 0)
		done <- errors.Join(err, f.Close())
	}()
	d.held <- take(t, d)
	waitDeaf(t)
	disconnectWithin(t, dev, done)
	p.kill(d)
}

// waitDeaf waits until a sender of the kernel is stuck in a socket.
func waitDeaf(t *testing.T) {
	t.Helper()
	for ctx := within(t, time.Minute); ctx.Err() == nil; {
		if len(stuck(t)) > 0 {
			return
		}
	}
	t.Fatal("no sender is stuck")
}

// stuck returns the kernel stacks of the threads that wait for room in a socket
// of an nbd device.
func stuck(t *testing.T) (out []string) {
	for _, pattern := range []string{"/proc/self/task/*/stack", "/proc/[0-9]*/stack"} {
		all, err := filepath.Glob(pattern)
		must(t, err)
		for _, name := range all {
			if b, _ := os.ReadFile(name); strings.Contains(string(b), "nbd_queue_rq") && strings.Contains(string(b), "sock_sendmsg") {
				out = append(out, string(b))
			}
		}
	}
	return out
}

// A server that stops reading stops the kernel's sender, which holds up netlink
// and the block layer's timers. So it gets no more than the server has room for.
func TestAServerThatAnswersNothingStillReads(t *testing.T) {
	kmsg.Watch(t, kmsg.ServerLost, kmsg.ServerSlow)
	k, d, p := kernel.New(), newDisk(t, 256*mib), start(t, nbd.Config{})
	dev := p.attach(k, "t:full", d)
	depth := nbd.DefaultArena / mib
	d.silent.Store(true)
	f, buf, done := direct(t, dev.Path), aligned(t, 128*mib, 'f'), make(chan error, 1)
	go func() {
		_, err := f.WriteAt(buf, 0)
		done <- errors.Join(err, f.Close())
	}()
	var all []*blk.Request
	for range depth {
		all = append(all, take(t, d))
	}
	interop.Pause(t.Context(), 3*time.Second)
	if s := stuck(t); len(s) > 0 || len(d.held) > 0 {
		t.Errorf("%d requests more than %d; stuck: %v", len(d.held), depth, s)
	}
	d.silent.Store(false)
	for _, r := range all {
		d.finish(r)
	}
	must(t, outcome(t, done))
}

func disconnectWithin(t *testing.T, dev *kernel.Device, done <-chan error) {
	t.Helper()
	begun := time.Now()
	must(t, dev.Disconnect(within(t, time.Minute)))
	took := time.Since(begun)
	if err := outcome(t, done); !errors.Is(err, unix.EIO) {
		t.Errorf("the write says %v, want EIO", err)
	}
	t.Logf("the disconnect took %v", took.Round(time.Millisecond))
	if took > 15*time.Second {
		t.Errorf("the disconnect took %v", took)
	}
}

func TestADeviceOfAnotherProgramIsLeftAlone(t *testing.T) {
	kmsg.Watch(t, kmsg.ServerLost, kmsg.Provoked("nbd0 already in use"))
	k, d := kernel.New(), newDisk(t, 16*mib)
	dir, err := os.MkdirTemp("", "x")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	l, err := net.Listen("unix", dir+"/s")
	must(t, err)
	srv := nbd.NewServer(map[string]nbd.Export{"": d}, nbd.Config{}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(ctx, l) }()
	t.Cleanup(func() { cancel(); <-ended })
	rig.Sh(t, "nbd-client -unix "+dir+"/s /dev/nbd0")
	t.Cleanup(func() { rig.Sh(t, "nbd-client -d /dev/nbd0") })
	must(t, rig.WaitSize(t.Context(), "nbd0", 16*mib))

	p := start(t, nbd.Config{})
	mine := newDisk(t, 4*mib)
	if dev := p.attach(k, "t:mine", mine); dev.Index == 0 {
		t.Error("nbd0 was taken from its program")
	}
	o := kernel.For("t:mine-too", mine.Info())
	o.Index = 0
	if _, err := k.Attach(within(t, time.Minute), o, p.serve(mine)); !errors.Is(err, unix.EBUSY) {
		t.Errorf("got %v, want EBUSY", err)
	}
	if err := k.Disconnect(within(t, time.Minute), 0, "t:mine"); !errors.Is(err, kernel.ErrForeign) {
		t.Errorf("got %v, want ErrForeign", err)
	}
	got, err := k.ReleaseStale(within(t, time.Minute), "t:", func(kernel.Status) bool { return false })
	if len(got) != 0 || !errors.Is(err, kernel.ErrAlive) {
		t.Errorf("released %+v, %v", got, err)
	}
	must(t, outcome(t, write(t, "/dev/nbd0", 'f', 0)))
}

func TestStaleDevicesAreReleased(t *testing.T) {
	kmsg.Watch(t, kmsg.ServerLost)
	k := kernel.New()
	dead, alive := start(t, nbd.Config{}), start(t, nbd.Config{})
	stale, mounted, living := newDisk(t, 4*mib), newDisk(t, 32*mib), newDisk(t, 4*mib)
	dir := t.TempDir()
	dead.attach(k, "t:stale", stale)
	m := dead.attach(k, "t:mounted", mounted)
	alive.attach(k, "t:living", living)
	rig.Sh(t, "mkfs.ext4 -q "+m.Path+" && mount "+m.Path+" "+dir+" && sync -f "+dir)
	dead.kill(stale, mounted)
	got, err := k.ReleaseStale(within(t, time.Minute), "t:", func(kernel.Status) bool { return false })
	if len(got) != 1 || got[0].Backend != "t:stale" || !errors.Is(err, kernel.ErrInUse) || !errors.Is(err, kernel.ErrAlive) {
		t.Errorf("released %+v, %v", got, err)
	}
	back := start(t, nbd.Config{})
	_, err = k.Reconnect(within(t, time.Minute), m.Index, kernel.For("t:mounted", mounted.Info()), back.serve(mounted))
	must(t, err)
	rig.Sh(t, "umount "+dir+" && e2fsck -fn "+m.Path)
}
