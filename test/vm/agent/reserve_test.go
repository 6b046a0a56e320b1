//go:build vm

package agent

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/agent/export"
	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/datapath"
	"github.com/csi-mpath/csi-mpath/pkg/device"
	"github.com/csi-mpath/csi-mpath/pkg/nbd"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
	"github.com/csi-mpath/csi-mpath/test/vm/kmsg"
	"github.com/csi-mpath/csi-mpath/test/vm/rig"
)

// holder is a node that reserves a volume, with a device of its own.
type holder struct {
	*testing.T
	dev  *device.Device
	lane nbd.Lane
	cfg  device.Config

	mu      sync.Mutex
	waiting map[*blk.Request]chan blk.Status
	slots   chan uint32
}

// reserves opens the volume as a static one, fenced by reservation.
func (s *server) reserves(v export.Export, a export.Access, cfg device.Config) *holder {
	s.t.Helper()
	c := s.connection(v, a)
	lun, err := scsi.LUNFromNumber(c.LUN)
	rig.Must(s.t, err)
	cfg.Name, cfg.Protocol, cfg.WWID, cfg.Reserve = "v", device.ISCSI{Target: c.Target, LUN: lun, Initiator: c.Initiator}, c.WWID, true
	cfg.NoPathTimeout, cfg.Portals = datapath.Never, nil
	cfg.Events = func(e datapath.Event) { kmsg.Say("%s: %+v", a.Initiator, e) }
	for _, p := range c.Portals {
		cfg.Portals = append(cfg.Portals, p.Address)
	}
	if cfg.StateDir == "" {
		cfg.StateDir, err = os.MkdirTemp("", "h")
		rig.Must(s.t, err)
	}
	h := &holder{T: s.t, cfg: cfg, waiting: map[*blk.Request]chan blk.Status{}, slots: make(chan uint32, 64)}
	for i := range uint32(64) {
		h.slots <- i
	}
	h.dev, err = device.Open(s.ctx(), cfg)
	rig.Must(s.t, err)
	h.lane, err = h.dev.OpenLane(64)
	rig.Must(s.t, err)
	s.t.Cleanup(func() { _ = h.over() })
	return h
}

// over ends the device.
func (h *holder) over() error {
	h.lane.Close()
	ctx, cancel := context.WithTimeout(context.Background(), rig.Patience)
	defer cancel()
	return h.dev.Close(ctx)
}

// Flush implements blk.Completer.
func (h *holder) Flush() {}

// Complete implements blk.Completer.
func (h *holder) Complete(q *blk.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiting[q] <- q.Status
	delete(h.waiting, q)
	h.slots <- q.Slot
}

// write fills a block with one byte.
func (h *holder) write(block int, v byte) blk.Status {
	q := &blk.Request{Op: blk.Write, Slot: <-h.slots, Off: uint64(block) * 4096, Len: 4096, Buf: bytes.Repeat([]byte{v}, 4096), Owner: h}
	answer := make(chan blk.Status, 1)
	h.mu.Lock()
	h.waiting[q] = answer
	h.mu.Unlock()
	h.lane.Submit(q)
	return <-answer
}

// Issue 8, 6, over LIO, whose store takes 400 ms for a write: no write of the node
// before lands once the next one has opened the volume.
func TestAReservationTakesAVolumeFromItsNode(t *testing.T) {
	kmsg.Watch(t, kmsg.KeptOut)
	// LIO keeps registrations through a loss of power there (APTPL), if it is there.
	rig.Must(t, os.MkdirAll("/var/target/pr", 0o700))
	x, err := kindLIO.open()
	rig.Must(t, err)
	s := &server{x, t, kindLIO}
	d := slow(t, held)
	t.Cleanup(s.clean) // before the disk goes, which the target holds open
	a, b := s.access(1, 1), s.access(2, 1)
	s.ensure(d.v, a, b)
	first := s.reserves(d.v, a, device.Config{})
	var writers sync.WaitGroup
	var landed atomic.Int64
	for block := range inFlight {
		writers.Go(func() {
			for {
				st := first.write(block, 1)
				if st != blk.OK {
					kmsg.Say("the first's writes to block %d end: %v", block, st)
					return
				}
				landed.Add(1)
			}
		})
	}
	rig.Must(t, rig.Wait("writes of the first", func() error {
		if n := landed.Load(); n < inFlight {
			return fmt.Errorf("%d have landed", n)
		}
		return nil
	}))
	second := s.reserves(d.v, b, device.Config{})
	for block := range inFlight {
		writers.Go(func() {
			if st := second.write(block, 2); st != blk.OK {
				t.Errorf("the second's write: %v", st)
			}
		})
	}
	writers.Wait() // the first's are all answered, too
	content, err := os.ReadFile(d.file)
	rig.Must(t, err)
	if !bytes.Equal(content[:inFlight*4096], bytes.Repeat([]byte{2}, inFlight*4096)) {
		t.Fatal("a write of the first landed after the second had the volume")
	}
	if first.write(0, 1) == blk.OK || first.dev.Lost() == "" {
		t.Fatalf("the first wrote; lost %q", first.dev.Lost())
	}
	t.Logf("%d writes of the first before", landed.Load())
	rig.Must(t, first.over())

	// The second's process ends without a word, and the next goes on.
	second.dev.Keep()
	rig.Must(t, second.over())
	cfg := second.cfg
	cfg.Patient = true
	next := s.reserves(d.v, b, cfg)
	if st := next.write(0, 3); st != blk.OK {
		t.Fatalf("after a restart: %v, lost %q", st, next.dev.Lost())
	}
	rig.Must(t, next.over())
	again := s.reserves(d.v, a, device.Config{})
	if st := again.write(0, 4); st != blk.OK {
		t.Fatalf("the first anew: %v", st)
	}
	rig.Must(t, again.over())
}
