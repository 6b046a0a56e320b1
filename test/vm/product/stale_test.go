//go:build vm

package product

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csi-mpath/csi-mpath/pkg/target"
	interop "github.com/csi-mpath/csi-mpath/test/interop/rig"
	"github.com/csi-mpath/csi-mpath/test/vm/kmsg"
	"github.com/csi-mpath/csi-mpath/test/vm/rig"
)

const (
	blockSize = 4096
	// fenceTimeout is how long the product must take a lost write for alive when
	// nothing proves the contrary. The target lets it go earlier, or the story
	// proves nothing and is told again with twice the time (see inTime).
	fenceTimeout = 20 * time.Second
	// overtake is how long a newer write has to overtake the old one.
	overtake = 3 * time.Second
)

// late is a volume over a target of ours, which can hold a write for longer
// than its connection and its sender live. Portal B does not listen at first.
type late struct {
	*testing.T
	srv  *target.Server
	ram  *target.RAM
	a, b *target.Portal
	v    *rig.Volume
	// fence is the product's fence timeout; slow says that the story took longer.
	fence time.Duration
	slow  bool
}

// inTime tells a story, which returns what the block holds in the end. While the
// machine is too slow to tell it within a fence, it gets a longer one.
func inTime(t *testing.T, story func(x *late) byte) (got byte) {
	t.Helper()
	for fence := fenceTimeout; fence < patience; fence *= 2 {
		slow := true
		t.Run(fence.String(), func(t *testing.T) {
			kmsg.Watch(t, kmsg.ServerLost, kmsg.ServerSlow)
			x := newLate(t, fence)
			got = story(x)
			slow = x.slow
		})
		if !slow || t.Failed() {
			return got
		}
	}
	t.Fatal("the machine is too slow for this test")
	return 0
}

func newLate(t *testing.T, fence time.Duration) *late {
	t.Helper()
	x := &late{T: t, ram: target.NewRAM(16 * mib), fence: fence}
	var err error
	x.srv, err = target.New(target.Config{LUNs: []target.LUN{{Number: 1, Store: x.ram}}})
	must(t, err)
	t.Cleanup(func() { _ = x.srv.Close() })
	x.a, err = x.srv.Listen("127.0.0.1:0")
	must(t, err)
	// Another portal group: a login there ends nothing of A's.
	x.b, err = x.srv.ListenPortal("127.0.0.1:0", target.PortalConfig{TPGT: 2})
	must(t, err)
	x.b.Kill()
	dir, err := os.MkdirTemp("", "x")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	x.v = rig.AttachVolume(t, dir, "late", "--iscsi", x.a.Addr()+","+x.b.Addr(), "--target", x.srv.Name(), "--lun", "1",
		"--fence-timeout", fence.String())
	return x
}

// write writes one block full of c, directly, and tells when it was answered.
func (x *late) write(c byte) chan error {
	done := make(chan error, 1)
	go func() { done <- x.writeNow(c) }()
	return done
}

func (x *late) writeNow(c byte) error {
	fd, err := unix.Open(x.v.Device, unix.O_WRONLY|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	buf, err := unix.Mmap(-1, 0, blockSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Munmap(buf) }()
	for i := range buf {
		buf[i] = c
	}
	_, err = unix.Pwrite(fd, buf, 0)
	return err
}

// content is what the target's first block is full of.
func (x *late) content() byte {
	x.Helper()
	b := make([]byte, blockSize)
	must(x.T, x.ram.ReadAt(b, 0))
	if !bytes.Equal(b, bytes.Repeat(b[:1], blockSize)) {
		x.Fatal("the block is torn")
	}
	return b[0]
}

// holdOld has the target hold a write of 1, which went over A; B listens then,
// and A does not any more.
func (x *late) holdOld() (*target.Hold, chan error) {
	x.Helper()
	hold, err := x.srv.Hold(target.Match{Kind: target.Writes, Count: 1}, true)
	must(x.T, err)
	old := x.write(1)
	select {
	case <-hold.Arrived():
	case <-time.After(patience):
		x.Fatal("the write did not reach the target")
	}
	must(x.T, x.b.Start())
	x.a.Stop()
	return hold, old
}

func (x *late) await(done <-chan error, what string) {
	x.Helper()
	select {
	case err := <-done:
		must(x.T, err)
	case <-time.After(patience):
		x.Fatalf("%s was not answered within %v", what, patience)
	}
}

// newer writes 2, lets the target execute what it holds when 2 has had its time
// to overtake, and says what the block holds in the end.
func (x *late) newer(hold *target.Hold, since time.Time) byte {
	x.Helper()
	begun := time.Now()
	done := x.write(2)
	select {
	case err := <-done:
		must(x.T, err)
		done <- nil
	case <-time.After(overtake):
	}
	held := hold.Len()
	hold.Release()
	if d := time.Since(since); d > x.fence {
		x.Logf("%v passed since the loss, and the fence took %v for the end", d, x.fence)
		x.slow = true
	}
	x.await(done, "the newer write")
	x.Logf("the newer write was answered after %v; the target held %d old ones until %v after the loss",
		time.Since(begun).Round(10*time.Millisecond), held, begun.Sub(since).Round(time.Second))
	return x.content()
}

// noGuard removes the in-flight table: what the dead process sent is forgotten.
func (x *late) noGuard() {
	x.Helper()
	all, err := filepath.Glob(filepath.Join(x.v.State, "*.ledger"))
	must(x.T, err)
	if len(all) != 1 {
		x.Fatalf("in-flight tables: %v, want one", all)
	}
	must(x.T, os.Remove(all[0]))
}

// restart is kill -9 of everything and a new attach; guard tells whether that
// one learns what was in flight.
func (x *late) restart(guard bool) {
	x.Helper()
	mark := x.v.Mark()
	x.v.Kill()
	if !guard {
		x.noGuard()
	}
	must(x.T, x.v.Start())
	_, err := x.v.Restarted(within(x.T, patience), mark)
	must(x.T, err)
}

// replayed is the story of a write that was in flight when the process died.
func (x *late) replayed(guard bool) byte {
	x.Helper()
	hold, old := x.holdOld()
	since := time.Now()
	x.restart(guard)
	x.await(old, "the replay of the old write")
	return x.newer(hold, since)
}

// retried is the story of a write in doubt on A whose retry on B was
// acknowledged before the process died.
func (x *late) retried(guard bool) byte {
	x.Helper()
	hold, old := x.holdOld()
	must(x.T, interop.Until(within(x.T, patience), patience, "a session over B", func() bool {
		n := 0
		x.srv.Do(func(m *target.Machine) { n = m.Sessions(x.b.Number()) })
		return n > 0
	}))
	since := time.Now()
	x.a.Kill()
	x.await(old, "the retry of the old write")
	x.restart(guard)
	return x.newer(hold, since)
}

func TestANewerWriteWinsOverOneOfADeadProcess(t *testing.T) {
	if got := inTime(t, func(x *late) byte { return x.replayed(true) }); got != 2 && !t.Failed() {
		t.Fatalf("the block holds write %d, and 2 was acknowledged last", got)
	}
}

func TestANewerWriteWinsOverOneInDoubtBeforeTheProcessDied(t *testing.T) {
	if got := inTime(t, func(x *late) byte { return x.retried(true) }); got != 2 && !t.Failed() {
		t.Fatalf("the block holds write %d, and 2 was acknowledged last", got)
	}
}

// The next process logs in at A in the dead one's name: the target itself ends
// the old write, and nobody waits for the clock.
func TestALoginInItsNameEndsADeadProcesssWrite(t *testing.T) {
	got := inTime(t, func(x *late) byte {
		hold, old := x.holdOld()
		since := time.Now()
		must(x.T, x.a.Start())
		x.restart(true)
		x.await(old, "the replay of the old write")
		got := x.newer(hold, since)
		if d := time.Since(since); d > x.fence && !x.slow {
			x.Errorf("it took %v, as if the clock had decided", d)
		}
		return got
	})
	if got != 2 && !t.Failed() {
		t.Fatalf("the block holds write %d, and 2 was acknowledged last", got)
	}
}

// The stories prove something only if they go wrong without the guard.
func TestWithoutTheInFlightTableAStaleWriteWins(t *testing.T) {
	for name, story := range map[string]func(*late, bool) byte{"replayed": (*late).replayed, "retried": (*late).retried} {
		t.Run(name, func(t *testing.T) {
			if got := inTime(t, func(x *late) byte { return story(x, false) }); got != 1 && !t.Failed() {
				t.Fatalf("the block holds write %d: the story no longer provokes the fault", got)
			}
		})
	}
}
