package device

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/datapath"
	"github.com/csi-mpath/csi-mpath/pkg/nvmetcp"
)

func TestAHostKeepsItsNQNAndIdentifier(t *testing.T) {
	a, b := DefaultHostNQN(), DefaultHostNQN()
	text, ok := strings.CutPrefix(a, uuidNQN)
	if id, err := ParseUUID(text); a != b || !ok || err != nil || HostIDOf(a) != id {
		t.Fatalf("%s, then %s: %v", a, b, err)
	}
	if one, other := HostIDOf("nqn.2026-01.a:b"), HostIDOf("nqn.2026-01.a:c"); one == other || one == ([16]byte{}) {
		t.Fatalf("%x and %x", one, other)
	}
}

func TestOnlyAWholeUUIDIsAHostIdentifier(t *testing.T) {
	if _, err := ParseUUID("3e5A3f5e-8a0c-4f57-9d06-0f6f2b0a1c11"); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"", "x", "3e5a3f5e8a0c4f579d060f6f2b0a1c11", "3e5a3f5e-8a0c-4f57-9d06-0f6f2b0a1c1",
		"00000000-0000-0000-0000-000000000000", "3e5a-3f5e8a0c-4f57-9d06-0f6f2b0a1c11"} {
		if id, err := ParseUUID(bad); err == nil {
			t.Errorf("%q was taken for %x", bad, id)
		}
	}
}

// nvmeOver is a path of a process over the given file of places.
func nvmeOver(file string, portals ...string) *nvmePath {
	p := &nvmePath{way: way{cfg: &Config{Portals: portals}, portal: portals[0], places: openPlaces(file)},
		controller: nvmetcp.Config{KeepAlive: DefaultKeepAlive}}
	p.inherit()
	return p
}

func TestAfterAKillTheFenceOfTheDeadProcesssControllersCounts(t *testing.T) {
	file := filepath.Join(t.TempDir(), "v.places")
	first := nvmeOver(file, "a:1", "b:1")
	if err := first.note(25*time.Second, "a:1"); err != nil {
		t.Fatal(err)
	}
	if got := first.FenceBound(); got != 25*time.Second {
		t.Fatalf("its own controller's is %v", got)
	}
	second := nvmeOver(file, "b:1") // portal a is not configured any more
	if got := second.FenceBound(); got != 25*time.Second {
		t.Fatalf("the next process waits %v", got)
	}
	if err := second.note(10*time.Second, "b:1"); err != nil {
		t.Fatal(err)
	}
	if got := second.FenceBound(); got != 10*time.Second {
		t.Fatalf("its own controller's is %v", got)
	}
	if got := nvmeOver(file, "b:1").FenceBound(); got != 25*time.Second {
		t.Fatalf("the process after that waits %v: what was at a may be in doubt yet", got)
	}
}

func TestAControllerThatMayLiveForHoursIsRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "v.places")
	p := nvmeOver(file, "a:1")
	if err := p.note(maxFence+time.Second, "a:1"); err == nil {
		t.Errorf("taken: the next process would wait %v", nvmeOver(file, "a:1").FenceBound())
	}
	if err := p.note(maxFence, "a:1"); err != nil {
		t.Error(err)
	}
	if got := nvmeOver(file, "a:1").FenceBound(); got != maxFence {
		t.Errorf("the next process waits %v", got)
	}
}

func TestWithoutAReadableRecordTheFenceIsTheLongestPossible(t *testing.T) {
	file := filepath.Join(t.TempDir(), "v.places")
	cfg := nvmetcp.Config{KeepAlive: DefaultKeepAlive}
	if got, want := nvmeOver(file, "a:1").FenceBound(), cfg.FenceBound(); got != want {
		t.Fatalf("nothing was there, and it waits %v, want %v", got, want)
	}
	cfg.KeepAlive = maxKeepAlive
	for _, content := range []string{"{", `{"version":1,"bootID":"x","places":{"a:1":{"address":"a:1","fenceNanoseconds":-1}}}`} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, want := nvmeOver(file, "a:1").FenceBound(), cfg.FenceBound(); got != want {
			t.Errorf("%s: it waits %v, want %v", content, got, want)
		}
	}
}

func TestANewControllerProvesNothing(t *testing.T) {
	if err := nvmeOver(filepath.Join(t.TempDir(), "v.places"), "a:1").ProveDead(t.Context()); err != datapath.ErrNoProof {
		t.Fatal(err)
	}
}
