package device_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/datapath"
	"github.com/csi-mpath/csi-mpath/pkg/device"
	"github.com/csi-mpath/csi-mpath/pkg/nvmetcp/auth"
	"github.com/csi-mpath/csi-mpath/pkg/target"
	"github.com/csi-mpath/csi-mpath/pkg/target/subsystem"
)

// B-13: the group that takes I/O changes under load. As the target counts, once
// the host has heard of a change it sends nothing where I/O is refused.
func TestB13ANAFlipsUnderLoadSendNothingToTheWrongGroup(t *testing.T) {
	r := overNVMe(t, 2)
	r.setAccess(1, datapath.Unavailable)
	r.open(r.config(), 1)
	states := []string{"optimized", "unavailable"}
	seen := func() bool {
		st := r.dev.Status().Paths
		return st[0].Access == states[0] && st[1].Access == states[1]
	}
	r.until("the states known", seen)
	for flip := range 10 {
		good, bad := flip%2, 1-flip%2
		if flip > 0 {
			r.setAccess(good, datapath.Optimized)
			r.setAccess(bad, datapath.Unavailable)
			states[0], states[1] = states[1], states[0]
			r.until("the change known", func() bool { r.load(8, byte(flip)); return seen() })
		}
		was, wrong := r.sub.Load(r.portals[good].Number())
		_, wrongBad := r.sub.Load(r.portals[bad].Number())
		r.load(64, byte(flip))
		now, more := r.sub.Load(r.portals[good].Number())
		if _, n := r.sub.Load(r.portals[bad].Number()); n != wrongBad || more != wrong || now < was+64 {
			t.Fatalf("flip %d: %d commands went to the right group, %d to the wrong one", flip, now-was, n-wrongBad)
		}
	}
	if st := r.dev.Status(); st.Paths[0].Errors+st.Paths[1].Errors != 0 || st.InDoubt != 0 {
		t.Fatalf("a refusal by state is a definite answer, no loss: %+v", st)
	}
}

// load writes n blocks, as many at a time as the lane takes, without an error.
func (r *rig) load(n int, v byte) {
	r.Helper()
	all := make([]*blk.Request, 0, n)
	for i := range n {
		all = append(all, r.send(blk.Write, uint64(i)*8192, 4096, uint64(v))) // none continues another
	}
	for _, q := range all {
		r.until("a write answered", func() bool { _, ok := r.answered(q); return ok })
		if st, _ := r.answered(q); st != blk.OK {
			r.Fatalf("a write ended %v", st)
		}
	}
}

// B-14, I1: what was on its way when a namespace became another one is counted
// and told, and nothing follows.
func TestB14WritesInFlightAtARemapAreReportedAndNoneFollows(t *testing.T) {
	r := overNVMe(t, 1)
	r.open(r.config(), 1)
	hold, err := r.base.Hold(target.Match{Kind: target.Writes}, false)
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint64(3) {
		r.send(blk.Write, i*4096, 4096, 1)
	}
	r.until("the writes at the target", func() bool { return hold.Len() == 3 })
	r.show(r.portals[0], volume{id: 0xb})
	r.hint(r.portals[0], false)
	r.until("the mismatch seen", func() bool { return r.saw(datapath.PathIdentityMismatch) == 1 })
	r.send(blk.Write, 1<<16, 4096, 1)
	r.until("the path down", func() bool { return r.saw(datapath.PathDown) == 1 })
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e.Kind == datapath.PathIdentityMismatch && !strings.Contains(e.Detail, "; 3 commands were in flight") {
			t.Error(e.Detail)
		}
	}
	if w := r.sub.Stats().Writes; w != 0 || hold.Len() > 3 {
		t.Errorf("%d writes executed, %d held", w, hold.Len())
	}
}

// B-17: two gateways may give the same controller ID; the identity decides.
func TestB17TwoSubsystemsOfOneNameAndOneVolumeAreTwoPaths(t *testing.T) {
	a, b := overNVMe(t, 1), overNVMe(t, 1)
	for _, r := range []*rig{a, b} {
		r.show(r.portals[0], volume{id: 0xa})
	}
	cfg := a.config()
	cfg.Portals = append(cfg.Portals, b.portals[0].Addr())
	a.open(cfg, 2)
	b.show(b.portals[0], volume{id: 0xb})
	b.hint(b.portals[0], false)
	a.until("the mismatch seen", func() bool { return a.saw(datapath.PathIdentityMismatch) == 1 })
	if st := a.dev.Status(); st.Usable != 1 || !st.Paths[0].InUse {
		t.Fatalf("%+v", st.Paths)
	}
}

func TestAWWIDMayBeAnyOfTheIdentifiers(t *testing.T) {
	r := overNVMe(t, 1)
	for _, want := range []string{"uuid." + subsystem.Derive(r.sub.Name(), 1).UUID, strings.ToUpper(subsystem.Derive(r.sub.Name(), 1).NGUID)} {
		cfg := r.config()
		cfg.WWID = want
		r.open(cfg, 1)
		if got := r.dev.Status().Identity.Device; got != want {
			t.Errorf("it is %s, want %s", got, want)
		}
	}
	cfg := r.config()
	cfg.WWID = "uuid.60000000-0000-4000-8000-00000000000c"
	if err := r.tryOpen(cfg, patience); err == nil || !strings.Contains(err.Error(), "wwid") {
		t.Fatalf("%v", err)
	}
}

func TestHostAndControllerProveThemselvesWithDHChap(t *testing.T) {
	secret := func(b byte) auth.Secret {
		raw := make([]byte, 32)
		raw[0] = b
		return auth.FormatSecret(auth.SHA256, raw)
	}
	c := auth.Credentials{Secret: secret(1), ControllerSecret: secret(2)}
	r := newNVMeRig(t, 2, subsystem.Config{Auth: c})
	with := func(c auth.Credentials) device.Config {
		cfg := r.config()
		p, _ := cfg.Protocol.(device.NVMe)
		p.Auth = c
		cfg.Protocol = p
		return cfg
	}
	r.open(with(c), 2)
	if q := r.do(blk.Write, 0, 4096, 1); q.Status != blk.OK {
		t.Fatal(q.Status)
	}
	for name, wrong := range map[string]auth.Credentials{
		"none": {}, "another": {Secret: secret(3)}, "another controller's": {Secret: secret(1), ControllerSecret: secret(3)}} {
		if err := r.tryOpen(with(wrong), patience); err == nil || strings.Contains(err.Error(), "DHHC-1:") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The loss of a controller is fenced by its own bound, not by another's.
func TestTheClockFencesALostControllerAndSaysSo(t *testing.T) {
	r := overNVMe(t, 2)
	r.open(fencedAfter(r.config(), 2*time.Second), 2)
	hold, err := r.base.Hold(target.Match{Kind: target.Writes, Count: 1}, true)
	if err != nil {
		t.Fatal(err)
	}
	w := r.send(blk.Write, 0, 4096, 1)
	<-hold.Arrived()
	start := time.Now()
	r.portals[r.busyPath()].Drop() // and it may come back at once: that proves nothing
	r.until("the retry answered", func() bool { _, ok := r.answered(w); return ok })
	r.until("the fence", func() bool { return r.saw(datapath.Fenced) == 1 })
	if d := time.Since(start); d < 2*time.Second {
		t.Fatalf("fenced after %v", d)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e.Kind == datapath.Fenced && !strings.HasPrefix(e.Detail, "by time") {
			t.Error(e.Detail)
		}
	}
}

func TestAnOrderlyEndIsAShutdown(t *testing.T) {
	r := overNVMe(t, 2)
	r.open(r.config(), 2)
	r.lane.Close()
	if err := r.dev.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if n := r.sub.Stats().Shutdowns; n != 2 {
		t.Fatalf("%d of 2 controllers were shut down in order", n)
	}
}
