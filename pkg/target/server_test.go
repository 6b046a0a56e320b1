package target

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/iscsi"
	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
)

// startServer starts a server with two portals.
func startServer(t *testing.T, cfg Config) (*Server, [2]*Portal) {
	t.Helper()
	if cfg.LUNs == nil {
		cfg.LUNs = []LUN{{Store: NewRAM(8 << 20)}}
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	var p [2]*Portal
	for i := range p {
		if p[i], err = s.Listen("127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
	}
	return s, p
}

func config(s *Server, p *Portal, isid byte) iscsi.Config {
	return iscsi.Config{Portal: p.Addr(), TargetName: s.Name(), InitiatorName: "iqn.2025-01.io.test:host",
		ISID: [6]byte{0x80, 0, 0, 0, 0, isid}}
}

func dial(t *testing.T, c iscsi.Config) *iscsi.Session {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s, err := iscsi.Dial(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Abort(errors.New("end of test")); <-s.Done() })
	return s
}

// do runs one command through the initiator and wants GOOD.
func do(t *testing.T, s *iscsi.Session, put func(b []byte) int, in, out []byte) {
	t.Helper()
	var cdb [scsi.CDBLen]byte
	n := put(cdb[:])
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := s.Exec(ctx, 0, cdb[:n], in, out)
	if err != nil || r.Status != scsi.StatusGood {
		t.Fatalf("%v %+v", err, r)
	}
}

func TestTheInitiatorWorksThroughBothPortals(t *testing.T) {
	s, p := startServer(t, Config{Auth: chap})
	for i := range p {
		for _, digest := range []iscsi.Digest{iscsi.DigestNone, iscsi.DigestCRC32C} {
			c := config(s, p[i], byte(i))
			c.Auth, c.HeaderDigest, c.DataDigest = chap, digest, digest
			sess := dial(t, c)
			want := pattern(1 << 20)
			do(t, sess, func(b []byte) int { return scsi.PutWrite16(b, 16, 2048, 0) }, nil, want)
			got := make([]byte, 1<<20)
			do(t, sess, func(b []byte) int { return scsi.PutRead16(b, 16, 2048, 0) }, got, nil)
			if !bytes.Equal(got, want) {
				t.Fatal("other bytes")
			}
			do(t, sess, func(b []byte) int { return scsi.PutSyncCache16(b, 0, 0, 0) }, nil, nil)
		}
	}
}

func TestDiscoveryAndIdentificationAgreeAboutTheTarget(t *testing.T) {
	s, p := startServer(t, Config{})
	c := config(s, p[0], 1)
	c.TargetName = ""
	found, err := iscsi.Discover(t.Context(), c)
	if err != nil || len(found) != 1 || len(found[0].Portals) != 2 {
		t.Fatalf("%+v %v", found, err)
	}
	a, err := dial(t, config(s, p[0], 1)).Identify(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	b, err := dial(t, config(s, p[1], 2)).Identify(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Profile.SameVolume(&b.Profile); err != nil || a.Profile.Size() != 8<<20 {
		t.Errorf("%v, %d bytes", err, a.Profile.Size())
	}
}

func TestAReleasedWriteLandsAfterItsSessionIsGone(t *testing.T) {
	ram := NewRAM(1 << 20)
	s, p := startServer(t, Config{LUNs: []LUN{{Store: ram}}})
	h, err := s.Hold(Match{Kind: Writes, Portal: p[0].Number(), Count: 1}, true)
	if err != nil {
		t.Fatal(err)
	}
	a, b := dial(t, config(s, p[0], 1)), dial(t, config(s, p[1], 2))
	done := make(chan struct{})
	go func() {
		defer close(done)
		var cdb [scsi.CDBLen]byte
		scsi.PutWrite16(cdb[:], 0, 1, 0)
		_, _ = a.Exec(t.Context(), 0, cdb[:], nil, block(1, 1))
	}()
	<-h.Arrived()
	p[0].Drop()
	<-a.Done()
	<-done
	do(t, b, func(c []byte) int { return scsi.PutWrite16(c, 0, 1, 0) }, nil, block(2, 1))
	h.Release()
	got := make([]byte, 512)
	do(t, b, func(c []byte) int { return scsi.PutRead16(c, 0, 1, 0) }, got, nil)
	if got[0] != 1 || s.Stats().LateWrites != 1 {
		t.Errorf("block is %d, %+v", got[0], s.Stats())
	}
}

func TestAKilledPortalComesBackAtItsAddress(t *testing.T) {
	s, p := startServer(t, Config{})
	a, b := dial(t, config(s, p[0], 1)), dial(t, config(s, p[1], 2))
	p[0].Kill()
	<-a.Done()
	if c, err := net.Dial("tcp", p[0].Addr()); err == nil {
		_ = c.Close()
		t.Error("a killed portal takes connections")
	}
	do(t, b, scsi.PutTestUnitReady, nil, nil)
	if err := p[0].Start(); err != nil {
		t.Fatal(err)
	}
	do(t, dial(t, config(s, p[0], 1)), scsi.PutTestUnitReady, nil, nil)
}

func TestAFlushOfAFileRunsBesideOtherCommands(t *testing.T) {
	path := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(path, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	gate := &slowFlush{File: file, in: make(chan struct{}), out: make(chan struct{})}
	s, p := startServer(t, Config{LUNs: []LUN{{Store: gate}}})
	a, b := dial(t, config(s, p[0], 1)), dial(t, config(s, p[1], 2))
	done := make(chan struct{})
	go func() {
		defer close(done)
		do(t, a, func(c []byte) int { return scsi.PutSyncCache10(c, 0, 0, 0) }, nil, nil)
	}()
	<-gate.in
	do(t, b, func(c []byte) int { return scsi.PutWrite16(c, 0, 1, 0) }, nil, block(3, 1))
	close(gate.out)
	<-done
}

type slowFlush struct {
	*File
	in, out chan struct{}
}

func (s *slowFlush) Flush() error { close(s.in); <-s.out; return s.File.Flush() }

func TestDelayedCommandsAreAnsweredByTheTimer(t *testing.T) {
	s, p := startServer(t, Config{})
	const d = 30 * time.Millisecond
	if err := s.Delay(Match{Kind: Reads}, d); err != nil {
		t.Fatal(err)
	}
	a := dial(t, config(s, p[0], 1))
	began := time.Now()
	do(t, a, func(c []byte) int { return scsi.PutRead16(c, 0, 1, 0) }, make([]byte, 512), nil)
	if took := time.Since(began); took < d {
		t.Errorf("answered after %v", took)
	}
}

func TestAPeerThatDoesNotReadHoldsUpNobody(t *testing.T) {
	s, p := startServer(t, Config{})
	c, err := net.Dial("tcp", p[0].Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	// A login and 2 MiB reads by hand; nobody takes the answers.
	if _, err := c.Write(deafWire(s)); err != nil {
		t.Fatal(err)
	}
	b := dial(t, config(s, p[1], 2))
	do(t, b, func(c []byte) int { return scsi.PutRead16(c, 0, 128, 0) }, make([]byte, 65536), nil)
	s.Do(func(m *Machine) { m.Ping(0) })
	do(t, b, scsi.PutTestUnitReady, nil, nil)
}

// deafWire is a login and a window full of 2 MiB reads.
func deafWire(s *Server) []byte {
	c := &client{}
	text := pdu.Keys{{Key: "InitiatorName", Value: "iqn.2025-01.io.test:deaf"}, {Key: "TargetName", Value: s.Name()}}.Append(nil)
	l := pdu.LoginRequest{Transit: true, CSG: 1, NSG: 3, CmdSN: 1, DataLen: len(text)}
	wire := c.pdu(l.Put, text)
	for i := range uint32(DefaultDepth) {
		p := pdu.SCSICommand{Final: true, Read: true, EDTL: 2 << 20, ITT: i, CmdSN: 1 + i}
		scsi.PutRead16(p.CDB[:], 0, 4096, 0)
		wire = append(wire, c.pdu(p.Put, nil)...)
	}
	return wire
}

func TestCloseLeavesNoGoroutine(t *testing.T) {
	before := runtime.NumGoroutine()
	s, err := New(Config{LUNs: []LUN{{Store: NewRAM(1 << 20)}}})
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = s.Hold(Match{}, true)
	var conns []net.Conn
	for range 5 {
		c, err := net.Dial("tcp", p.Addr())
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	_ = s.Close()
	for _, c := range conns {
		_, _ = io.Copy(io.Discard, c)
		_ = c.Close()
	}
	for end := time.Now().Add(time.Minute); runtime.NumGoroutine() > before && time.Now().Before(end); {
		runtime.Gosched()
	}
	if after := runtime.NumGoroutine(); after > before {
		t.Errorf("%d goroutines before, %d after", before, after)
	}
	if _, err := s.Listen("127.0.0.1:0"); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}
