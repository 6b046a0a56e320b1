//go:build vm

package agent

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/agent/export"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/test/node"
	"github.com/csi-mpath/csi-mpath/test/vm/kmsg"
	"github.com/csi-mpath/csi-mpath/test/vm/rig"
	"golang.org/x/sys/unix"
)

// Of a fencing story: the evicted node writes to the first half, the one that
// stays to the next quarter, the test to the end.
const (
	half     = volumeSize / 2
	sentinel = volumeSize - 4096

	held     = 400 // milliseconds that a write takes
	inFlight = 16  // writes of the evicted node, on each of its two paths
	enough   = 8   // of them are in the backing store when the eviction begins
)

// rounds is how often each story is told.
func rounds() int {
	if os.Getenv("CSI_MPATH_LONG") != "" {
		return 30
	}
	return 2
}

// story is one eviction.
type story struct {
	*server
	disk
	round   int
	evicted export.Access
	stays   []export.Access

	paths   []*node.Path // of the evicted node
	writers sync.WaitGroup
	count   atomic.Uint64 // each write is another one
	landed  atomic.Int64  // of the evicted node, acknowledged
	kept    *load         // of the node that stays
}

// disk is a volume whose writes are held, and the file in which they arrive.
type disk struct {
	v    export.Export
	file string
}

func newStory(s *server, d disk, round int, shared bool) *story {
	x := &story{server: s, disk: d, round: round, evicted: s.access(1, 2*round), kept: newLoad()}
	if shared {
		x.stays = []export.Access{s.access(2, 1)}
	}
	s.ensure(x.v, append(x.stays, x.evicted)...)
	return x
}

// begin starts the writers, and waits until the store holds some of their writes.
func (x *story) begin() {
	for portal := range x.Portals() {
		p := x.dial(x.v, x.evicted, portal)
		x.paths = append(x.paths, p)
		for i := range inFlight {
			x.writers.Go(func() { x.write(p, int64(i)*half/inFlight) })
		}
	}
	for _, a := range x.stays {
		for portal := range x.Portals() {
			p := x.dial(x.v, a, portal)
			for i := range 2 {
				x.kept.add(p, half+int64(2*portal+i)*4096)
			}
		}
	}
	rig.Must(x.t, x.holds(enough))
}

// holds waits until the store holds so many writes.
func (x *story) holds(want int) error {
	return rig.Wait("writes to be held in the store", func() error {
		n, err := inflight(x.v.Backing.Path)
		if err == nil && n < want {
			err = fmt.Errorf("%d are", n)
		}
		return err
	})
}

// inflight is the writes that a dm-delay device holds.
func inflight(path string) (int, error) {
	out, err := rig.Try("dmsetup status " + filepath.Base(path))
	f := strings.Fields(out) // begin, length, "delay", reads, writes, flushes
	if err != nil || len(f) < 5 {
		return 0, fmt.Errorf("status of %s: %q, %w", path, out, err)
	}
	return strconv.Atoi(f[4])
}

// write writes, each time something else, until the session is lost; what the
// target says does not stop it.
func (x *story) write(p *node.Path, off int64) {
	b := make([]byte, 4096<<(off/4096%3))
	for {
		binary.LittleEndian.PutUint64(b, x.count.Add(1))
		switch err := p.Write(b, off); {
		case errors.Is(err, node.ErrLost):
			return
		case err == nil:
			x.landed.Add(1)
		}
		off = (off + 20480) % (half - int64(len(b)))
		select {
		case <-p.Done():
			return
		default:
		}
	}
}

// bytes is what the evicted node's half holds now.
func (x *story) bytes() []byte {
	x.t.Helper()
	b := make([]byte, half)
	f, err := os.Open(x.file)
	if err == nil {
		_, err = f.ReadAt(b, 0)
		_ = f.Close()
	}
	rig.Must(x.t, err)
	return b
}

// settle returns when every write that the store holds now has arrived: they do
// in order.
func (x *story) settle() {
	x.t.Helper()
	b, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE) // a page, for O_DIRECT
	rig.Must(x.t, err)
	defer unix.Munmap(b)
	f, err := os.OpenFile(x.v.Backing.Path, os.O_WRONLY|unix.O_DIRECT, 0)
	rig.Must(x.t, err)
	_, err = f.WriteAt(b, sentinel)
	rig.Must(x.t, errors.Join(err, f.Close()))
}

// late counts what of the evicted node's half has changed since then, when
// nothing of it can be under way any more.
func (x *story) late(then []byte) (blocks int) {
	x.settle()
	for now, i := x.bytes(), 0; i < half; i += 512 {
		if !bytes.Equal(now[i:i+512], then[i:i+512]) {
			blocks++
		}
	}
	return blocks
}

// gone waits for the end of the evicted node's sessions.
func (x *story) gone() {
	x.t.Helper()
	limit := time.NewTimer(rig.Patience)
	defer limit.Stop()
	for _, p := range x.paths {
		select {
		case <-p.Done():
		case <-limit.C:
			x.t.Fatal("the evicted node is still connected")
		}
	}
}

// end stops everybody.
func (x *story) end() {
	x.t.Helper()
	x.kept.end(x.t)
	for _, p := range x.paths {
		p.Close()
	}
	x.writers.Wait()
}

// TestNoWriteOfAnEvictedNodeLands is what the fence is for (I9).
func TestNoWriteOfAnEvictedNodeLands(t *testing.T) {
	kinds(t, func(t *testing.T, s *server) {
		for _, shared := range []bool{false, true} {
			t.Run(fmt.Sprintf("shared=%v", shared), func(t *testing.T) {
				var took []time.Duration
				var landed int64
				var kept uint64
				var stall time.Duration
				d := slow(t, held)
				for round := range rounds() {
					t.Run("round", func(t *testing.T) {
						x := newStory(&server{s.Exporter, t, s.kind}, d, round, shared)
						took = append(took, x.evict())
						landed, kept, stall = landed+x.landed.Load(), kept+x.kept.count.Load(), max(stall, time.Duration(x.kept.longest.Load()))
					})
					if t.Failed() {
						return
					}
				}
				t.Logf("%d rounds; evictions took %v; %d writes of the evicted node, %d of the one that stays, of which the longest took %v", len(took), took, landed, kept, stall)
			})
		}
	})
}

// evict tells the story, and says how long the eviction took.
func (x *story) evict() time.Duration {
	x.begin()
	kmsg.Say("eviction of %s", x.evicted.Initiator)
	at := time.Now()
	x.ensure(x.v, x.stays...)
	took := time.Since(at)
	then := x.bytes()
	kmsg.Say("evicted")
	x.refused(x.v, x.evicted)
	x.gone()
	if n := x.late(then); n > 0 {
		x.t.Errorf("%d blocks changed after the eviction", n)
	}
	x.again()
	x.end()
	rig.Must(x.t, x.Remove(x.ctx(), x.v.Volume, x.v.Identity))
	return took
}

// again: the same node in a new epoch has access, in the old one it has not.
func (x *story) again() {
	next := x.access(1, 2*x.round+1)
	x.ensure(x.v, append(x.stays, next)...)
	x.refused(x.v, x.evicted)
	p := x.dial(x.v, next, 0)
	rig.Must(x.t, errors.Join(roundTrip(p, 0, 7), p.Flush()))
	p.Close()
}

// revokeOnly takes away what a list of allowed initiators says, and nothing more.
func (x *story) revokeOnly() {
	x.t.Helper()
	if x.Transport() == backend.NVMe {
		rig.Must(x.t, os.Remove(filepath.Join(x.kind.root, "subsystems", x.Target(x.v.Identity, x.evicted.Initiator), "allowed_hosts", x.evicted.Initiator)))
		return
	}
	rig.Must(x.t, os.Remove(filepath.Join(x.kind.root, "iscsi", x.Target(x.v.Identity, ""), "tpgt_1/acls", x.evicted.Initiator, "lun_0/lun_0")))
}

func TestTakingAccessAwayAloneIsNoFence(t *testing.T) {
	kinds(t, func(t *testing.T, s *server) {
		x := newStory(s, slow(t, held), 0, false)
		x.begin()
		kmsg.Say("access is taken away")
		x.revokeOnly()
		then := x.bytes()
		kmsg.Say("it is")
		if n := x.late(then); n == 0 {
			t.Error("nothing changed: the story does not tell what the fence is for")
		} else {
			t.Logf("%d blocks changed after access was taken away", n)
		}
		kmsg.Say("the story ends")
		x.end()
		kmsg.Say("and is over")
		rig.Must(t, s.Remove(s.ctx(), x.v.Volume, x.v.Identity))
	})
}

// An eviction that the kernel does not finish in time says so, and the next call
// ends it.
func TestAnEvictionThatTakesLongerThanItsCallerIsFinishedByTheNext(t *testing.T) {
	kinds(t, func(t *testing.T, s *server) {
		x := newStory(s, slow(t, held), 0, false)
		x.begin()
		ctx, cancel := shortly()
		defer cancel()
		x.v.Access = nil
		if _, err := s.Ensure(ctx, x.v); !errors.Is(err, backend.ErrBusy) {
			t.Errorf("got %v, want ErrBusy", err)
		}
		x.ensure(x.v)
		then := x.bytes()
		x.gone()
		if n := x.late(then); n > 0 {
			t.Errorf("%d blocks changed after the eviction", n)
		}
		x.end()
	})
}
