package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func deployed(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", "agent", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestTheConfigurationToDeployIsRight(t *testing.T) {
	c := parse(t, deployed(t, "agent.yaml"))
	modules := deployed(t, "modules-load.conf")
	for _, e := range c.Exports {
		if !strings.Contains(modules, "# kind: "+e.Kind.String()+"\n") {
			t.Errorf("no module for %s", e.Kind)
		}
	}
}

func TestTheUnitMakesTheDirectoriesThatAreTheDefaults(t *testing.T) {
	unit := deployed(t, "csi-mpath-agent.service")
	for _, line := range []string{
		"StateDirectory=" + strings.TrimPrefix(DefaultState, "/var/lib/"),
		"RuntimeDirectory=" + strings.TrimPrefix(filepath.Dir(DefaultAdmin), "/run/"),
	} {
		if !strings.Contains(unit, "\n"+line+"\n") {
			t.Errorf("the unit has no %s", line)
		}
	}
}
