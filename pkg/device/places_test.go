package device

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/datapath"
	"github.com/csi-mpath/csi-mpath/pkg/iscsi"
)

// A path of a process over the given file, after a kill of the one before.
func pathOver(file string) *iscsiPath {
	p := &iscsiPath{way: way{cfg: &Config{Portals: []string{"a:1"}}, portal: "a:1", places: openPlaces(file)},
		volume: ISCSI{FenceTimeout: 15 * time.Second}, login: iscsi.Config{Portal: "a:1", ISID: [6]byte{0x80, 1}}}
	p.siblings = []*iscsiPath{p}
	p.inherit()
	return p
}

// arriveAt is arrived without a session.
func (p *iscsiPath) arriveAt(t *testing.T, g group) (proof bool) {
	t.Helper()
	proof, here := p.note(g)
	if err := p.places.put(p.portal, here, p.cfg.Portals); err != nil {
		t.Fatal(err)
	}
	return proof
}

func TestAfterAKillOnlyALoginAtTheSamePlaceIsProof(t *testing.T) {
	a, b := group{known: true, address: "a:1", tpgt: 1}, group{known: true, address: "b:1", tpgt: 2}
	for name, c := range map[string]struct {
		before []group // logins of the process that died, none within the fence time of another
		now    group
		proof  bool
	}{
		"nothing known, at home":            {nil, a, true},
		"nothing known, elsewhere":          {nil, b, false},
		"at home as before":                 {[]group{a}, a, true},
		"another portal group":              {[]group{a}, group{known: true, address: "a:1", tpgt: 3}, false},
		"was elsewhere, at home now":        {[]group{b}, a, false},
		"moved before the kill, same place": {[]group{a, b}, b, false}, // what was at a lives on
	} {
		file := filepath.Join(t.TempDir(), "v.places")
		dead := pathOver(file)
		for _, g := range c.before {
			dead.arriveAt(t, g)
		}
		if got := pathOver(file).arriveAt(t, c.now); got != c.proof {
			t.Errorf("%s: proof %v", name, got)
		}
	}
}

func TestAMoveBeforeTheKillIsForgottenWhenTheClockHasEndedWhatWasElsewhere(t *testing.T) {
	file := filepath.Join(t.TempDir(), "v.places")
	b := group{known: true, address: "b:1", tpgt: 2}
	dead := pathOver(file)
	dead.moved = time.Now().Add(-14 * time.Second) // of 15
	dead.last = b
	dead.arriveAt(t, b)
	next := pathOver(file)
	if left := time.Until(next.moved.Add(next.volume.FenceTimeout)); left > time.Second || next.moved.IsZero() && left > -time.Minute {
		t.Fatalf("%v left", left)
	}
	next.moved = next.moved.Add(-time.Second) // a second later
	if !next.arriveAt(t, b) {
		t.Fatal("no proof although all that is left was there")
	}
}

func TestALoginUnderAnotherISIDThanTheDeadProcesssIsNoProof(t *testing.T) {
	file := filepath.Join(t.TempDir(), "v.places")
	a := group{known: true, address: "a:1", tpgt: 1}
	pathOver(file).arriveAt(t, a)
	next := pathOver(file) // the file of ISIDs was moved away meanwhile
	next.login.ISID = [6]byte{0x80, 2}
	next.inherit()
	if next.arriveAt(t, a) {
		t.Fatal("it reinstates nothing, and counts as proof (I3)")
	}
	after := pathOver(file)
	after.login.ISID = next.login.ISID
	after.inherit()
	if after.arriveAt(t, a) {
		t.Fatal("the process after that takes it for proof")
	}
}

func TestPlacesOfAnotherBootOrISIDAreNotOurs(t *testing.T) {
	file := filepath.Join(t.TempDir(), "v.places")
	pathOver(file).arriveAt(t, group{known: true, address: "a:1", tpgt: 1})
	p := openPlaces(file)
	if g, _ := p.get("a:1", [6]byte{0x80, 1}, time.Second); !g.known {
		t.Fatal("our own is not known")
	}
	if g, left := p.get("a:1", [6]byte{0x80, 2}, time.Second); g.known || left != time.Second {
		t.Fatal("another ISID's place")
	}
	p.boot = "another boot"
	if err := p.put("b:1", place{Address: "b:1"}, nil); err != nil {
		t.Fatal(err)
	}
	if g, left := openPlaces(file).get("b:1", [6]byte{}, time.Second); g.known || left != 0 {
		t.Fatal("another boot's place")
	}
}

func TestADamagedFileOfPlacesMeansThatSessionsMayHaveBeenAnywhere(t *testing.T) {
	for _, content := range []string{"", "{", `{"version":2,"places":{}}`, `{"version":1}`,
		`{"version":1,"places":{"a:1":{"address":"nowhere"}}}`} {
		file := filepath.Join(t.TempDir(), "v.places")
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		p := pathOver(file)
		if p.arriveAt(t, group{known: true, address: "a:1", tpgt: 1}) {
			t.Errorf("%q: a login counts as proof", content)
		}
		if f, err := readPlaces(file); err != nil || len(f.Places) != 1 {
			t.Errorf("%q: not replaced: %v", content, err)
		}
	}
}

func TestADamagedFileIsRememberedForThePathsThatHaveNotLoggedInYet(t *testing.T) {
	file := filepath.Join(t.TempDir(), "v.places")
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	first := openPlaces(file)
	if err := first.put("a:1", place{ISID: "800100000000", Address: "a:1", TPGT: 1}, []string{"a:1", "b:1"}); err != nil {
		t.Fatal(err)
	}
	next := openPlaces(file) // after a kill before the other path was up
	if g, left := next.get("b:1", [6]byte{0x80, 2}, time.Second); g.known || left != time.Second {
		t.Fatalf("known %v, %v left: its earlier session may have been anywhere (I3)", g.known, left)
	}
	if g, _ := next.get("a:1", [6]byte{0x80, 1}, time.Second); !g.known {
		t.Fatal("the other one's place is gone")
	}
}

func TestAPlaceThatCannotBeWrittenDownIsAnError(t *testing.T) {
	p := openPlaces(filepath.Join(t.TempDir(), "gone", "v.places"))
	if err := p.put("a:1", place{Address: "a:1"}, nil); err == nil {
		t.Fatal("no error")
	}
}

func TestAKnownPlaceIsNotWrittenAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "v.places")
	a := group{known: true, address: "a:1", tpgt: 1}
	p := pathOver(file)
	p.arriveAt(t, a)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	p.arriveAt(t, a)
	if _, err := os.Stat(file); err == nil {
		t.Fatal("written at each login")
	}
}

func TestAfterAKillThePathsOwnLoginHasAHeadStartBeforeProofsElsewhere(t *testing.T) {
	file := filepath.Join(t.TempDir(), "v.places")
	pathOver(file).arriveAt(t, group{known: true, address: "a:1", tpgt: 1})
	p := pathOver(file)
	if err := p.ProveDead(t.Context()); err == nil || err == datapath.ErrNoProof {
		t.Fatalf("%v: must be asked again", err)
	}
	if err := p.ProveDead(t.Context()); err != datapath.ErrNoProof { // it has no sibling
		t.Fatalf("%v", err)
	}
}

func FuzzParsePlaces(f *testing.F) {
	f.Add([]byte(`{"version":1,"bootID":"x","places":{"a:1":{"isid":"80","address":"a:1","tpgt":1}}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := parsePlaces(b)
		if err == nil && (p.Version != placesVersion || len(p.Places) > datapath.MaxPaths) {
			t.Fatalf("%+v", p)
		}
	})
}
