// Package host plays a storage host for tests: csi-mpath agent as a process of
// its own, over a directory and the embedded target, which can be killed and
// started over what it left.
package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/agent/pki"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/backend/agentclient"
	"github.com/csi-mpath/csi-mpath/test/child"
	"github.com/csi-mpath/csi-mpath/test/port"
)

// What the agent is told.
const (
	Pool   = "files"
	tenant = "test"
	// portals of each transport.
	portals = 2
)

// Host is the machine. Its ports stay its own while no agent runs.
type Host struct {
	dir     string
	bin     string
	address string
	held    []*port.Held
	output  io.Writer
	agent   *child.Child
}

// Options are what may be different from a directory that the embedded target
// serves.
type Options struct {
	// Pool is the pool's kind and what belongs to it, as the agent's configuration
	// has it.
	Pool string
	// Kernel has the kernel's targets serve, at the ports that belong to them.
	Kernel bool
	// Output gets a copy of what the agent prints.
	Output io.Writer
	// Front makes of a portal's address the one that nodes are told.
	Front func(t backend.Transport, listen string) (advertise string, err error)
}

// New prepares a host in a directory: certificates, a configuration, ports. bin
// is the csi-mpath to run.
func New(bin, dir string) (*Host, error) { return NewWith(bin, dir, Options{}) }

// NewWith is New with options.
func NewWith(bin, dir string, o Options) (*Host, error) {
	h := &Host{dir: dir, bin: bin, output: o.Output}
	if _, err := pki.Init(h.path("tls"), []string{"127.0.0.1"}, tenant, time.Now()); err != nil {
		return nil, err
	}
	var err error
	if h.address, err = h.port(); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	if o.Pool == "" {
		o.Pool = fmt.Sprintf("directory: {path: %s}", h.Bytes())
	}
	exports, err := h.exports(o)
	if err != nil {
		return nil, errors.Join(err, h.Close())
	}
	text := fmt.Sprintf("listen: %s\ntls: {cert: %s, key: %s, clientCA: %s}\nstate: %s\nadmin: %s\npools:\n- name: %s\n  %s\nexports:\n%s",
		h.address, h.path("tls/server.crt"), h.path("tls/server.key"), h.path("tls/ca.crt"), h.path("state"), h.path("run/admin"), Pool, o.Pool, exports)
	for _, d := range []string{h.Bytes(), h.path("state")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, errors.Join(err, h.Close())
		}
	}
	return h, os.WriteFile(h.path("agent.yaml"), []byte(text), 0o600)
}

// kernels are the kernel's targets, and the ports that are theirs.
var kernels = map[backend.Transport]struct {
	kind string
	port int
}{backend.ISCSI: {"lio", 3260}, backend.NVMe: {"nvmet", 4420}}

// exports are both transports, each at two portals.
func (h *Host) exports(o Options) (text string, err error) {
	for _, t := range []backend.Transport{backend.ISCSI, backend.NVMe} {
		kind := "embedded"
		if o.Kernel {
			kind = kernels[t].kind
		}
		text += fmt.Sprintf("  %s:\n    kind: %s\n    portals:\n", t, kind)
		for i := range portals {
			at := fmt.Sprint("127.0.0.1:", kernels[t].port+i)
			if !o.Kernel {
				if at, err = h.port(); err != nil {
					return "", err
				}
			}
			text += "    - listen: " + at + "\n"
			if o.Front == nil {
				continue
			}
			told, err := o.Front(t, at)
			if err != nil {
				return "", err
			}
			text += "      advertise: " + told + "\n"
		}
	}
	return text, nil
}

func (h *Host) path(name string) string { return filepath.Join(h.dir, name) }

// Bytes is the directory of the pool.
func (h *Host) Bytes() string { return h.path("bytes") }

func (h *Host) port() (string, error) {
	p, err := port.Hold()
	if err != nil {
		return "", err
	}
	h.held = append(h.held, p)
	return p.Addr(), nil
}

// Start starts the agent, with env added to its environment, and returns when it
// listens: it has restored what it served.
func (h *Host) Start(ctx context.Context, env ...string) (err error) {
	if h.agent, err = child.Start(child.Options{Env: env, Stdout: h.output, Stderr: h.output}, h.bin, "agent", "--config", h.path("agent.yaml")); err != nil {
		return err
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if c, err := net.Dial("tcp", h.address); err == nil {
			return c.Close()
		}
		select {
		case <-tick.C:
		case <-h.agent.Done():
			return h.agent.Wait()
		case <-ctx.Done():
			return fmt.Errorf("the agent does not listen: %w", ctx.Err())
		}
	}
}

// PID is the agent's.
func (h *Host) PID() int { return h.agent.PID() }

// Kill ends the agent with SIGKILL.
func (h *Host) Kill() { h.agent.Kill() }

// Tenant is how the agent's tenant reaches it.
func (h *Host) Tenant() agentclient.Config {
	return agentclient.Config{Address: h.address,
		TLS: pki.Files{Cert: h.path("tls/client-" + tenant + ".crt"), Key: h.path("tls/client-" + tenant + ".key"), CA: h.path("tls/ca.crt")}}
}

// Client is the agent as its tenant has it.
func (h *Host) Client() (*agentclient.Client, error) { return agentclient.New(h.Tenant()) }

// Journal lists what the agent remembers of volumes and fences: files.
func (h *Host) Journal() (out []string, err error) {
	for _, kind := range []string{"volumes", "fences"} {
		entries, readErr := os.ReadDir(filepath.Join(h.path("state"), kind))
		if err = errors.Join(err, readErr); errors.Is(readErr, os.ErrNotExist) {
			err = nil
		}
		for _, e := range entries {
			out = append(out, filepath.Join(kind, e.Name()))
		}
	}
	return out, err
}

// Left lists the files of the pool that are not the store's own.
func (h *Host) Left() (out []string, err error) {
	entries, err := os.ReadDir(h.Bytes())
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") {
			out = append(out, e.Name())
		}
	}
	return out, err
}

// Close ends the agent, if it runs, and gives the ports up.
func (h *Host) Close() (err error) {
	if h.agent != nil && h.agent.Alive() {
		err = h.agent.Stop(time.Minute)
	}
	for _, p := range h.held {
		err = errors.Join(err, p.Close())
	}
	return err
}

// Done is closed when the agent has ended.
func (h *Host) Done() <-chan struct{} { return h.agent.Done() }
