package lab

import (
	"fmt"
	"net"
	"os"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/agent/pki"
)

// What the storage host's agent is told, and a chart's backend has to say.
const (
	Pool   = "files"
	tenant = "lab"
	agent  = machine + ":7443"
)

// storage starts the storage host: an agent over files in an XFS, which has
// snapshots, and the embedded targets at both networks.
func (l *Lab) storage() {
	l.t.Helper()
	for _, d := range []string{"bytes", "state"} {
		l.must(os.MkdirAll(l.path("host", d), 0o700))
	}
	l.do("truncate", "-s", "8G", l.path("host", "disk"))
	l.do("mkfs.xfs", "-q", l.path("host", "disk"))
	l.do("mount", "-o", "loop", l.path("host", "disk"), l.path("host", "bytes"))
	_, err := pki.Init(l.path("host", "tls"), []string{machine}, tenant, time.Now())
	l.must(err)
	text := fmt.Sprintf("listen: %s\ntls: {cert: %s, key: %s, clientCA: %s}\nstate: %s\nadmin: %s\npools:\n- name: %s\n  directory: {path: %s}\nexports:\n",
		agent, l.path("host/tls/server.crt"), l.path("host/tls/server.key"), l.path("host/tls/ca.crt"), l.path("host/state"), l.path("host/run/admin"), Pool, l.path("host/bytes"))
	for name, port := range map[string]int{"iscsi": 3260, "nvme-tcp": 4420} {
		text += fmt.Sprintf("  %s:\n    kind: embedded\n    portals:\n", name)
		for _, s := range Storage {
			text += fmt.Sprintf("    - listen: %s:%d\n", s.Address, port)
		}
	}
	l.must(os.WriteFile(l.path("host", "agent.yaml"), []byte(text), 0o600))
	l.daemon("agent", l.Own, "agent", "--config", l.path("host", "agent.yaml"))
	l.Until("the agent", ready, func() error {
		c, err := net.Dial("tcp", agent)
		if err == nil {
			err = c.Close()
		}
		return err
	})
}

// Agent is how the storage host is reached, as a backend of the chart's values.
func (l *Lab) Agent() map[string]any {
	files := map[string]any{}
	for key, file := range map[string]string{"ca.crt": "ca.crt", "tls.crt": "client-" + tenant + ".crt", "tls.key": "client-" + tenant + ".key"} {
		b, err := os.ReadFile(l.path("host", "tls", file))
		l.must(err)
		files[key] = string(b)
	}
	return map[string]any{"name": "east", "agent": map[string]any{"address": agent, "pki": files}}
}

// Objects are the files of volumes and snapshots at the storage host.
func (l *Lab) Objects() (out []string) {
	entries, err := os.ReadDir(l.path("host", "bytes"))
	l.must(err)
	for _, e := range entries {
		if e.Name()[0] != '.' {
			out = append(out, e.Name())
		}
	}
	return out
}
