package target

import (
	"bytes"
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/iscsi"
	"github.com/csi-mpath/csi-mpath/pkg/iscsi/auth"
	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
)

const (
	one, two = "iqn.2025-01.io.test:one", "iqn.2025-01.io.test:two"
	host     = "iqn.2025-01.io.test:host"
)

// shared is a hub with two targets behind two doors.
type shared struct {
	t       *testing.T
	hub     *Hub
	doors   [2]*Door
	servers [2]*Server
}

func share(t *testing.T, discovery auth.Credentials, change func(i int, c *Config)) *shared {
	t.Helper()
	h, err := NewHub(discovery)
	if err != nil {
		t.Fatal(err)
	}
	x := &shared{t: t, hub: h}
	t.Cleanup(func() { _ = h.Close() })
	for i := range x.doors {
		if x.doors[i], err = h.Listen("127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
	}
	for i, name := range []string{one, two} {
		c := Config{Name: name, LUNs: []LUN{{Store: NewRAM(1 << 20)}}}
		if change != nil {
			change(i, &c)
		}
		s, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		x.servers[i] = s
		t.Cleanup(func() { _ = s.Close() })
		if err := h.Add(s); err != nil {
			t.Fatal(err)
		}
		for _, d := range x.doors {
			if _, err := d.Add(s, PortalConfig{TPGT: uint16(i + 1)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	return x
}

func (x *shared) config(door int, name string) iscsi.Config {
	return iscsi.Config{Portal: x.doors[door].Addr(), TargetName: name, InitiatorName: host,
		ISID: [6]byte{0x80, 0, 0, 0, 0, byte(door)}}
}

// try dials and says how that ended.
func (x *shared) try(c iscsi.Config) error {
	ctx, cancel := context.WithTimeout(x.t.Context(), time.Minute)
	defer cancel()
	s, err := iscsi.Dial(ctx, c)
	if err == nil {
		s.Abort(errors.New("end of the try"))
		<-s.Done()
	}
	return err
}

func (x *shared) discover(c iscsi.Config) (names []string, all []iscsi.DiscoveredTarget) {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(x.t.Context(), time.Minute)
	defer cancel()
	c.TargetName = ""
	all, err := iscsi.Discover(ctx, c)
	if err != nil {
		x.t.Fatal(err)
	}
	for _, f := range all {
		names = append(names, f.Name)
	}
	return names, all
}

func TestALoginGoesToTheTargetItNames(t *testing.T) {
	x := share(t, auth.Credentials{}, nil)
	var sess [2]*iscsi.Session
	for i, name := range []string{one, two} {
		sess[i] = dial(t, x.config(i, name))
		do(t, sess[i], func(b []byte) int { return scsi.PutWrite16(b, 0, 1, 0) }, nil, bytes.Repeat([]byte{byte(i + 1)}, 512))
	}
	for i, s := range sess {
		got := make([]byte, 512)
		do(t, s, func(b []byte) int { return scsi.PutRead16(b, 0, 1, 0) }, got, nil)
		if got[0] != byte(i+1) || x.servers[i].Stats().Writes != 1 {
			t.Errorf("target %d: block holds %d, %d writes", i, got[0], x.servers[i].Stats().Writes)
		}
	}
}

func TestDiscoveryListsEveryTargetWithItsPortals(t *testing.T) {
	x := share(t, auth.Credentials{}, nil)
	names, all := x.discover(x.config(1, ""))
	if !slices.Equal(names, []string{one, two}) {
		t.Fatalf("found %v", names)
	}
	for i, f := range all {
		if len(f.Portals) != 2 || f.Portals[0].Address != x.doors[0].Addr() || f.Portals[1].Address != x.doors[1].Addr() ||
			f.Portals[0].TPGT != uint16(i+1) {
			t.Errorf("%s: %v", f.Name, f.Portals)
		}
	}
}

func TestDiscoveryHidesTargetsThatDoNotLetTheInitiatorIn(t *testing.T) {
	x := share(t, auth.Credentials{}, func(i int, c *Config) {
		if i == 0 {
			c.Initiators = []string{"iqn.2025-01.io.test:other"}
		}
	})
	if names, _ := x.discover(x.config(0, "")); !slices.Equal(names, []string{two}) {
		t.Fatalf("found %v", names)
	}
	if err := x.try(x.config(0, one)); err == nil {
		t.Fatal("the hidden target let the initiator in")
	}
}

func TestDiscoveryHasCredentialsOfItsOwn(t *testing.T) {
	x := share(t, chap, func(i int, c *Config) { c.Auth = auth.Credentials{User: "own", Secret: "own secret 123"} })
	c := x.config(0, "")
	c.Auth = chap
	if names, _ := x.discover(c); len(names) != 2 {
		t.Fatalf("found %v", names)
	}
	if err := x.hub.SetDiscoveryAuth(auth.Credentials{}); err != nil {
		t.Fatal(err)
	}
	if names, _ := x.discover(x.config(0, "")); len(names) != 2 {
		t.Fatalf("found %v", names)
	}
}

func TestAnUnknownTargetIsNotFound(t *testing.T) {
	x := share(t, auth.Credentials{}, nil)
	for _, name := range []string{"iqn.2025-01.io.test:none", DefaultName} {
		if err := x.try(x.config(0, name)); err == nil || !strings.Contains(err.Error(), "not found") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestARemovedTargetIsGoneForNewLogins(t *testing.T) {
	x := share(t, auth.Credentials{}, nil)
	x.hub.Remove(x.servers[0])
	if names, _ := x.discover(x.config(0, "")); !slices.Equal(names, []string{two}) {
		t.Fatalf("found %v", names)
	}
	if err := x.try(x.config(0, one)); err == nil {
		t.Fatal("it let an initiator in")
	}
}

func TestATargetThatLeavesADoorEndsItsSessionsThere(t *testing.T) {
	x := share(t, auth.Credentials{}, nil)
	here, there := dial(t, x.config(0, one)), dial(t, x.config(1, one))
	x.doors[0].Remove(x.servers[0])
	<-here.Done()
	if err := x.try(x.config(0, one)); err == nil {
		t.Fatal("the door let an initiator in")
	}
	do(t, there, scsi.PutTestUnitReady, nil, nil)
	if _, all := x.discover(x.config(1, "")); len(all) != 2 || len(all[0].Portals) != 1 {
		t.Fatalf("found %v", all)
	}
}

func TestAKilledDoorEndsEverySessionThatCameThroughIt(t *testing.T) {
	x := share(t, auth.Credentials{}, nil)
	a, b, other := dial(t, x.config(0, one)), dial(t, x.config(0, two)), dial(t, x.config(1, one))
	silent, err := net.Dial("tcp", x.doors[0].Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	x.doors[0].Kill()
	<-a.Done()
	<-b.Done()
	if _, err := silent.Read(make([]byte, 1)); err == nil {
		t.Error("a connection that never logged in is still there")
	}
	if err := x.try(x.config(0, one)); err == nil {
		t.Error("the door is open")
	}
	do(t, other, scsi.PutTestUnitReady, nil, nil)
	if err := x.doors[0].Start(); err != nil {
		t.Fatal(err)
	}
	do(t, dial(t, x.config(0, two)), scsi.PutTestUnitReady, nil, nil)
}

func TestAClosedDoorIsNotToldAnyMore(t *testing.T) {
	x := share(t, auth.Credentials{}, nil)
	for _, s := range x.servers {
		x.doors[0].Remove(s)
	}
	if n := x.doors[0].Targets(); n != 0 {
		t.Fatalf("%d targets", n)
	}
	x.doors[0].Close()
	if err := x.try(x.config(0, one)); err == nil {
		t.Fatal("the door is open")
	}
	if _, all := x.discover(x.config(1, "")); len(all[0].Portals) != 1 {
		t.Fatalf("found %v", all)
	}
}

// Listen holds the hub's lock and waits for the directory's: who has the
// directory's must not wait for the hub's.
func TestTheAnswerToDiscoveryWaitsForNoDoor(t *testing.T) {
	x := share(t, auth.Credentials{}, nil)
	var out []byte
	x.hub.Locked(func() {
		x.hub.directory.Do(func(m *Machine) { out = m.directory(nil, host, "") })
	})
	if !bytes.Contains(out, []byte(one)) || !bytes.Contains(out, []byte(two)) {
		t.Errorf("%q", out)
	}
}

func TestTwoTargetsOfOneNameAreRefused(t *testing.T) {
	x := share(t, auth.Credentials{}, nil)
	s, err := New(Config{Name: one, LUNs: []LUN{{Store: NewRAM(512)}}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if x.hub.Add(s) == nil {
		t.Fatal("added")
	}
	if _, err := x.doors[0].Add(s, PortalConfig{}); err == nil {
		t.Fatal("reachable")
	}
}

// firstPDU is a login request with the keys given.
func firstPDU(keys ...pdu.Pair) []byte {
	text := pdu.Keys(keys).Append(nil)
	b := make([]byte, pdu.HeaderLen)
	p := pdu.LoginRequest{CSG: pdu.StageSecurity, DataLen: len(text)}
	p.Put(b)
	b = append(b, text...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

func TestAGreetingIsReadWhateverItsPieces(t *testing.T) {
	b := firstPDU(pdu.Pair{Key: "InitiatorName", Value: host}, pdu.Pair{Key: "TargetName", Value: one})
	got, g, err := readGreeting(iotest.OneByteReader(bytes.NewReader(append(b, "rest"...))))
	if err != nil || !bytes.Equal(got, b) || g != (greeting{initiator: host, target: one}) {
		t.Fatalf("%v %+v %q", err, g, got)
	}
}

func TestWhatIsNoLoginIsForTheDirectory(t *testing.T) {
	x := share(t, auth.Credentials{}, nil)
	for name, b := range map[string][]byte{
		"http":       bytes.Repeat([]byte("GET / HTTP/1.1\r\n"), 50),
		"too long":   func() []byte { b := firstPDU(); b[5] = 0xff; return b }(),
		"no text":    firstPDU(),
		"not a text": append(firstPDU()[:5], append([]byte{0, 0, 4}, make([]byte, 44)...)...),
	} {
		c, err := net.Dial("tcp", x.doors[0].Addr())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write(b)
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		var end net.Error
		for buf := make([]byte, 512); err == nil; {
			_, err = c.Read(buf)
		}
		if errors.As(err, &end) && end.Timeout() {
			t.Errorf("%s: the connection stays", name)
		}
		_ = c.Close()
	}
}

func FuzzGreeting(f *testing.F) {
	f.Add(firstPDU(pdu.Pair{Key: "TargetName", Value: one}), 0)
	f.Add(firstPDU(pdu.Pair{Key: "SessionType", Value: "Discovery"}), 50)
	f.Add([]byte("GET / HTTP/1.1\r\n"), 3)
	f.Fuzz(func(t *testing.T, b []byte, cut int) {
		whole, g, err := readGreeting(bytes.NewReader(b))
		if len(whole) > len(b) || err == nil && !bytes.Equal(whole, b[:len(whole)]) {
			t.Fatalf("read %q of %q", whole, b)
		}
		cut = min(max(cut, 0), len(b))
		pieces := &twoReads{b[:cut], b[cut:]}
		again, h, err2 := readGreeting(pieces)
		if !bytes.Equal(whole, again) || g != h || (err == nil) != (err2 == nil) {
			t.Fatalf("cut at %d: %+v %v, whole: %+v %v", cut, h, err2, g, err)
		}
	})
}

// twoReads gives its parts one after the other.
type twoReads [2][]byte

func (r *twoReads) Read(p []byte) (int, error) {
	i := 0
	if len(r[0]) == 0 {
		i = 1
	}
	if len(r[i]) == 0 {
		return 0, net.ErrClosed
	}
	n := copy(p, r[i])
	r[i] = r[i][n:]
	return n, nil
}
