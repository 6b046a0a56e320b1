package target

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/iscsi/auth"
	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
)

// luns reads REPORT LUNS.
func (c *client) luns() (out []uint32) {
	c.t.Helper()
	data, _ := c.ask(1024, func(b []byte) int { return scsi.PutReportLUNs(b, 1024) })
	all, _, err := scsi.ParseReportLUNs(nil, data)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, l := range all {
		n, _ := l.Number()
		out = append(out, n)
	}
	return out
}

func TestALUNThatComesIsToldAndServed(t *testing.T) {
	r := newRig(t, nil)
	c := r.session(1, 1)
	if err := r.AddLUN(LUN{Number: 7, Store: NewRAM(4096)}); err != nil {
		t.Fatal(err)
	}
	c.fails(c.readCmd(0, 1), senseLUNsChanged)
	if got := c.luns(); !slices.Equal(got, []uint32{0, 7}) {
		t.Fatal(got)
	}
	wire, _ := scsi.LUNFromNumber(7)
	c.good(c.command(pdu.SCSICommand{LUN: uint64(wire), Final: true, Read: true, EDTL: 512},
		func(b []byte) int { return scsi.PutRead16(b, 7, 1, 0) }, nil))
}

func TestALUNThatGoesTakesItsTasksAlong(t *testing.T) {
	r := newRig(t, func(c *Config) { c.LUNs = append(c.LUNs, LUN{Number: 1, Store: NewRAM(4096)}) })
	c := r.session(1, 1)
	itt := c.command(pdu.SCSICommand{Final: true, Write: true, EDTL: 512}, func(b []byte) int { return scsi.PutWrite16(b, 0, 1, 0) }, nil)
	p := c.r2t()
	if err := r.RemoveLUN(0); err != nil {
		t.Fatal(err)
	}
	c.dataOut(itt, p.TTT, 0, 0, true, block(1, 1))
	c.quiet()
	if got := c.luns(); !slices.Equal(got, []uint32{1}) || r.first(0) != 0 || r.Buffers.Held() != 0 {
		t.Fatal(got, r.first(0), r.Buffers.Held())
	}
	c.fails(c.readCmd(0, 1), scsi.SenseNoLUN)
	if r.RemoveLUN(0) == nil || r.AddLUN(LUN{Number: 1, Store: NewRAM(512)}) == nil {
		t.Error("a LUN that is not there went, or one came twice")
	}
}

func TestAGrownLUNIsToldAndItsNewEndIsThere(t *testing.T) {
	r := newRig(t, nil)
	c := r.session(1, 1)
	c.good(c.writeCmd(2047, block(9, 1)))
	if err := r.ram.Grow(2 << 20); err != nil {
		t.Fatal(err)
	}
	c.fails(c.readCmd(2048, 1), scsi.SenseOutOfRange) // until the target says so
	if err := r.Resize(0, 0); err != nil {
		t.Fatal(err)
	}
	c.fails(c.readCmd(0, 1), senseCapacityChanged)
	c.good(c.writeCmd(4095, block(1, 1)))
	if got := c.good(c.readCmd(2047, 2)); got[0] != 9 || got[512] != 0 {
		t.Error("the old end changed")
	}
	if err := r.Resize(0, 0); err != nil {
		t.Fatal(err)
	}
	c.good(c.readCmd(0, 1)) // nothing new, nothing told
}

func TestServersGrowFilesAndRefuseWhatWouldShrink(t *testing.T) {
	path := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(path, bytes.Repeat([]byte{1}, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	s, _ := startServer(t, Config{LUNs: []LUN{{Store: f}}})
	if err := s.Grow(0, 8192); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || st.Size() != 8192 {
		t.Fatal(st, err)
	}
	for _, size := range []uint64{4096, 8193, 0} {
		if s.Grow(0, size) == nil {
			t.Errorf("it became %d bytes", size)
		}
	}
	if s.Grow(1, 8192) == nil {
		t.Error("a LUN that is not there grew")
	}
}

func TestRAMThatGrowsKeepsItsBytes(t *testing.T) {
	const size, piece = 70*ramPage + 512, 8 * ramPage
	r, want := NewRAM(size), pattern(size)
	clear(want[piece : 2*piece])
	if err := errors.Join(r.WriteAt(want[:piece], 0), r.WriteAt(want[2*piece:], 2*piece), r.Grow(2*size)); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 2*size)
	if err := r.ReadAt(got, 0); err != nil || !bytes.Equal(got[:size], want) || !allZero(got[size:]) {
		t.Fatal("bytes changed", err)
	}
	if r.Grow(size) == nil {
		t.Error("it shrank")
	}
}

func TestAModeChangeIsToldOnce(t *testing.T) {
	r := newRig(t, nil)
	c := r.session(1, 1)
	for range 2 {
		if err := r.SetMode(0, true, false, true); err != nil {
			t.Fatal(err)
		}
	}
	c.fails(c.readCmd(0, 1), senseModeChanged)
	c.fails(c.writeCmd(0, block(1, 1)), senseProtected)
	if r.SetMode(1, true, false, false) == nil {
		t.Error("a LUN that is not there changed")
	}
}

func TestAnInitiatorThatLosesAccessLosesItsSession(t *testing.T) {
	r := newRig(t, nil)
	out, in := r.session(1, 1), r.dial(2)
	in.name = "iqn.2025-01.io.test:other"
	in.mustLogin()
	h, err := r.Hold(Match{Kind: Writes}, true, nil)
	if err != nil {
		t.Fatal(err)
	}
	out.writeCmd(0, block(1, 1))
	if err := r.SetAccess([]string{in.name}, auth.Credentials{}); err != nil {
		t.Fatal(err)
	}
	if !out.c.Aborting() || h.Len() != 0 {
		t.Fatalf("aborting %v, %d held", out.c.Aborting(), h.Len())
	}
	h.Release()
	if r.first(0) != 0 {
		t.Error("a write of the one that was put out executed")
	}
	in.good(in.readCmd(0, 1))
	again := r.dial(1)
	if resp, _ := again.leg(pdu.StageOperational, pdu.StageFull, true, again.hello()); resp.StatusClass != 2 || resp.StatusDetail != 2 {
		t.Errorf("login: %+v", resp)
	}
}

func TestALoginUnderWayGetsNowhereOnceItsInitiatorIsOut(t *testing.T) {
	r := newRig(t, nil)
	c := r.dial(1)
	if resp, _ := c.leg(pdu.StageSecurity, pdu.StageOperational, true, c.hello()); resp.StatusClass != 0 {
		t.Fatalf("%+v", resp)
	}
	if err := r.SetAccess([]string{"iqn.2025-01.io.test:other"}, auth.Credentials{}); err != nil {
		t.Fatal(err)
	}
	if resp, _ := c.leg(pdu.StageOperational, pdu.StageFull, true, nil); resp.StatusClass != 2 || resp.StatusDetail != 2 {
		t.Errorf("login: %+v (I9)", resp)
	}
	if !c.c.Closing() {
		t.Error("its connection stays")
	}
}

func TestCredentialsThatCannotWorkChangeNothing(t *testing.T) {
	r := newRig(t, nil)
	c := r.session(1, 1)
	if r.SetAccess([]string{"iqn.2025-01.io.test:other"}, auth.Credentials{User: "x"}) == nil {
		t.Fatal("taken")
	}
	c.good(c.readCmd(0, 1))
}

func TestTheDepthIsForSessionsToCome(t *testing.T) {
	r := newRig(t, nil)
	if err := r.SetDepth(3); err != nil {
		t.Fatal(err)
	}
	c := r.dial(1)
	resp, _ := c.leg(pdu.StageOperational, pdu.StageFull, true, c.hello())
	if got := resp.MaxCmdSN - resp.ExpCmdSN + 1; got != 3 {
		t.Errorf("a window of %d", got)
	}
	if r.SetDepth(0) == nil || r.SetDepth(maxDepth+1) == nil {
		t.Error("a depth out of range was taken")
	}
}

func TestAPortalThatGoesIsNotInAnyAnswer(t *testing.T) {
	r := newRig(t, nil)
	n, err := r.AddPortal(PortalConfig{Address: "10.0.0.3:3260", Group: 9})
	if err != nil {
		t.Fatal(err)
	}
	gone, stays := r.session(n, 3), r.session(1, 1)
	if err := r.RemovePortal(n); err != nil {
		t.Fatal(err)
	}
	if !gone.c.Aborting() {
		t.Error("its session stays")
	}
	groups := r.portGroups()
	if len(groups.Groups) != 1 || len(groups.Groups[0].Ports) != 2 || bytes.Contains(r.appendTargets(nil), []byte("10.0.0.3")) {
		t.Errorf("%+v", groups)
	}
	stays.good(stays.readCmd(0, 1))
	gone.c.Gone()
	if again, err := r.AddPortal(PortalConfig{Address: "10.0.0.4:3260"}); err != nil || again != n {
		t.Errorf("its place is lost: %d %v", again, err)
	}
	if r.RemovePortal(99) == nil {
		t.Error("a portal that is not there went")
	}
}

// slowStore writes when it is told to.
type slowStore struct {
	Store
	begun, goOn chan struct{}
}

func (s slowStore) WriteAt(p []byte, off uint64) error {
	s.begun <- struct{}{}
	<-s.goOn
	return s.Store.WriteAt(p, off)
}

// What is put out has no effect after it is out: a write that runs in its store
// is waited for.
func TestWhoIsPutOutHasNoWriteRunningAfterwards(t *testing.T) {
	for name, out := range map[string]func(s *Server, p *Portal) error{
		"access": func(s *Server, _ *Portal) error { return s.SetAccess([]string{one}, auth.Credentials{}) },
		"LUN":    func(s *Server, _ *Portal) error { return s.RemoveLUN(0) },
		"portal": func(s *Server, p *Portal) error { s.Leave(p); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			ram := NewRAM(1 << 20)
			st := slowStore{ram, make(chan struct{}), make(chan struct{})}
			s, p := startServer(t, Config{LUNs: []LUN{{Store: st}}})
			sess := dial(t, config(s, p[0], 1))
			go func() {
				var cdb [scsi.CDBLen]byte
				n := scsi.PutWrite16(cdb[:], 0, 1, 0)
				_, _ = sess.Exec(context.Background(), 0, cdb[:n], nil, block(1, 1)) // its answer may never come
			}()
			<-st.begun
			done := make(chan error, 1)
			go func() { done <- out(s, p[0]) }()
			until := time.After(20 * time.Millisecond)
			select {
			case <-done:
				t.Fatal("out while a write runs")
			case <-until:
			}
			close(st.goOn)
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			if got := make([]byte, 1); ram.ReadAt(got, 0) != nil || got[0] != 1 {
				t.Error("out before the write was over")
			}
		})
	}
}
