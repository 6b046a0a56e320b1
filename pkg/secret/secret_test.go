package secret

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

func TestASecretPrintsInNoForm(t *testing.T) {
	s := Text("swordfish")
	var b bytes.Buffer
	slog.New(slog.NewJSONHandler(&b, nil)).Info("m", "secret", s, "in", struct{ S Text }{s})
	slog.New(slog.NewTextHandler(&b, nil)).Info("m", "secret", s, "in", struct{ S Text }{s})
	js, err := json.Marshal(map[string]any{"a": s, "b": &s})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&b, "%s %v %+v %#v %q %x %d %v", s, s, s, s, s, s, s, struct{ S Text }{s})
	b.Write(js)
	for _, bad := range []string{"swordfish", "73776f7264"} {
		if strings.Contains(b.String(), bad) {
			t.Errorf("printed: %s", b.String())
		}
	}
}

func TestTheLastChallengesAreRecognizedAndNoOthers(t *testing.T) {
	var c Challenges
	first, err := c.New(32)
	if err != nil {
		t.Fatal(err)
	}
	if !c.Mine(first) || c.Mine(first[:31]) || c.Mine(nil) || c.Mine(make([]byte, 32)) {
		t.Error("the only challenge is not recognized, or another one is")
	}
	for range recentChallenges {
		if _, err := c.New(32); err != nil {
			t.Fatal(err)
		}
	}
	if c.Mine(first) {
		t.Error("memory is not bounded")
	}
}

func TestAChallengeNeedsRandomBytes(t *testing.T) {
	c := Challenges{Rand: strings.NewReader("short")}
	if b, err := c.New(32); err == nil {
		t.Errorf("made %x of five bytes", b)
	}
}
