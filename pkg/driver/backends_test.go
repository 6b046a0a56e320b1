package driver

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

func TestAChangeOfTheConfigurationLeavesTheRestAlone(t *testing.T) {
	c := newController(t, "east", "west")
	east, west := of(t, c, "east"), of(t, c, "west")
	moved := agentAt("west")
	moved.Agent.Address = "elsewhere.example:7443"
	if err := c.Backends.Change(Config{Cluster: cluster, Backends: []BackendConfig{moved, agentAt("east")}}); err != nil {
		t.Fatal(err)
	}
	if of(t, c, "east") != east || east.closed != 0 || of(t, c, "west") == west || west.closed != 1 {
		t.Errorf("east closed %d times, west %d", east.closed, west.closed)
	}
}

func TestAChangeThatFailsChangesNothing(t *testing.T) {
	made := map[string]*flaky{}
	b, err := NewBackends(Config{Cluster: cluster, Backends: []BackendConfig{agentAt("east")}}, func(c BackendConfig) (backend.Backend, error) {
		if c.Name == "broken" {
			return nil, errors.New("no such file")
		}
		made[c.Name] = storage()
		return made[c.Name], nil
	})
	if err != nil {
		t.Fatal(err)
	}
	err = b.Change(Config{Cluster: cluster, Backends: []BackendConfig{agentAt("new"), agentAt("broken")}})
	if err == nil || !strings.Contains(err.Error(), "broken") {
		t.Errorf("got %v", err)
	}
	if e, err := b.current.Load().get("east"); err != nil || e.Backend != made["east"] || made["east"].closed != 0 || made["new"].closed != 1 {
		t.Errorf("got %v, %v", e, err)
	}
}

// configuration is a file's text with these backends.
func configuration(names ...string) string {
	var b strings.Builder
	b.WriteString("cluster: c\nbackends:\n")
	for _, n := range names {
		b.WriteString("- name: " + n + "\n  agent: {address: " + n + ".example:7443, ca: /ca, certificate: /crt, key: /key}\n")
	}
	return b.String()
}

func TestAFileIsFollowedAsLongAsItCanBeRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(configuration("east"))
	cfg, err := LoadConfig(file)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		b, err := NewBackends(cfg, func(BackendConfig) (backend.Backend, error) { return storage(), nil })
		if err != nil {
			t.Fatal(err)
		}
		names := func() (out string) {
			for _, e := range b.current.Load().entries {
				out += e.cfg.Name + " "
			}
			return out
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go b.Follow(ctx, file)
		for _, step := range []struct{ text, want string }{
			{configuration("east", "west"), "east west "}, {"nonsense", "east west "}, {configuration("west", "west"), "east west "}, {configuration("west"), "west "},
		} {
			write(step.text)
			time.Sleep(reloadEvery)
			synctest.Wait()
			if got := names(); got != step.want {
				t.Errorf("after %q: got %q, want %q", step.text, got, step.want)
			}
		}
		cancel()
		synctest.Wait()
	})
}

func TestAConfigurationThatCannotBeIsRefused(t *testing.T) {
	good := configuration("east")
	if _, err := ParseConfig([]byte(good)); err != nil {
		t.Fatal(err)
	}
	for what, text := range map[string]string{
		"an unknown key":      good + "color: red\n",
		"a doubled key":       good + "cluster: d\n",
		"an empty cluster":    strings.Replace(good, "cluster: c", "cluster: \"\"", 1),
		"a path as name":      strings.Replace(good, "east", "../x", 1),
		"two of a name":       configuration("east", "east"),
		"no port":             strings.Replace(good, ":7443", "", 1),
		"a relative file":     strings.Replace(good, "/ca", "ca", 1),
		"no agent":            "cluster: c\nbackends:\n- name: east\n",
		"an initiator twice":  good + "nodes:\n  a: {iscsi: iqn.2000-01.x:a}\n  b: {iscsi: iqn.2000-01.x:a}\n",
		"no initiator's name": good + "nodes:\n  a: {nvme: iqn.2000-01.x:a}\n",
		"no node's name":      good + "nodes:\n  ../a: {}\n",
		"an empty label":      good + "  topology: {rack: ''}\n",
		"a second document":   good + "---\ncluster: d\n",
		"another case":        strings.Replace(good, "cluster", "Cluster", 1),
		"no initiator":        good + "nodes:\n  a: {iscsi: ''}\n",
	} {
		if _, err := ParseConfig([]byte(text)); err == nil {
			t.Errorf("%s was taken", what)
		}
	}
}

func FuzzConfigurations(f *testing.F) {
	f.Add([]byte(configuration("east", "west")))
	f.Add([]byte("cluster: c\nnodes: {a: {iscsi: iqn.2000-01.x:a}}\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := ParseConfig(b)
		if err != nil {
			return
		}
		for _, x := range c.Backends {
			if !backend.ValidName(x.Name, backend.MaxPool) {
				t.Fatalf("%q became a backend", x.Name)
			}
		}
	})
}

// TestAConfigurationMayLeaveTheClusterOut: the one that is known from elsewhere counts,
// also after a reload, and without one nobody gets a name.
func TestAConfigurationMayLeaveTheClusterOut(t *testing.T) {
	open := func(BackendConfig) (backend.Backend, error) { return nil, nil }
	if _, err := NewBackends(Config{}, open); err == nil || !strings.Contains(err.Error(), "cluster") {
		t.Errorf("no cluster at all: %v", err)
	}
	b, err := NewBackends(Config{Cluster: "known"}, open)
	if err != nil {
		t.Fatal(err)
	}
	for said, want := range map[string]string{"": "known", "other": "other"} {
		if err := b.Change(Config{Cluster: said}); err != nil || b.current.Load().cfg.Cluster != want {
			t.Errorf("%q: %q, %v", said, b.current.Load().cfg.Cluster, err)
		}
	}
}
