//go:build vm

package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/agent/pki"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/backend/agentclient"
	"github.com/csi-mpath/csi-mpath/test/node"
	"github.com/csi-mpath/csi-mpath/test/vm/kmsg"
	"github.com/csi-mpath/csi-mpath/test/vm/rig"
)

const agentAddress = "127.0.0.1:7420"

const agentConfig = `listen: %[1]s
tls: {cert: %[2]s/tls/server.crt, key: %[2]s/tls/server.key, clientCA: %[2]s/tls/ca.crt}
state: %[2]s/state
admin: %[2]s/run/admin.sock
pools: [{name: files, directory: {path: %[2]s/files}}]
exports:
  iscsi: {kind: lio, portals: [{listen: "127.0.0.1:3260"}, {listen: "127.0.0.2:3260"}]}
  nvme-tcp: {kind: nvmet, portals: [{listen: "127.0.0.1:4420"}, {listen: "127.0.0.2:4420"}]}
`

// host is the machine with csi-mpath agent on it, and a cluster's way to it.
type host struct {
	*rig.Product
	*agentclient.Client
	t *testing.T
}

func startAgent(t *testing.T) *host {
	t.Helper()
	dir, err := os.MkdirTemp("/run", "a")
	rig.Must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	rig.Sh(t, os.Getenv("CSI_MPATH_BIN")+" agent init --dir "+dir+"/tls --host 127.0.0.1 --tenant prod; mkdir -m 700 "+dir+"/files")
	config := filepath.Join(dir, "agent.yaml")
	rig.Must(t, os.WriteFile(config, fmt.Appendf(nil, agentConfig, agentAddress, dir), 0o600))
	h := &host{t: t, Product: rig.StartProduct(t, "agent", "--config", config)}
	h.ready(0)
	f := func(n string) string { return filepath.Join(dir, "tls", n) }
	h.Client, err = agentclient.New(agentclient.Config{Address: agentAddress, TLS: pki.Files{Cert: f("client-prod.crt"), Key: f("client-prod.key"), CA: f("ca.crt")}})
	rig.Must(t, err)
	t.Cleanup(func() { _ = h.Close() })
	return h
}

// ready waits until it serves, after a mark in what it prints.
func (h *host) ready(mark int) {
	h.t.Helper()
	_, _, err := h.Await(h.t.Context(), `"msg":"ready"`, mark)
	rig.Must(h.t, err)
}

// ask calls until the agent is there: it may be starting.
func (h *host) ask(call func(ctx context.Context) error) {
	h.t.Helper()
	rig.Must(h.t, rig.Wait("the agent", func() error {
		ctx, cancel := context.WithTimeout(h.t.Context(), rig.Patience)
		defer cancel()
		err := call(ctx)
		if err != nil && !errors.Is(err, backend.ErrUnavailable) && !errors.Is(err, backend.ErrBusy) {
			err = fmt.Errorf("%w: %w", rig.ErrOver, err)
		}
		return err
	}))
}

// publish makes a volume, and gives node n access.
func (h *host) publish(tr backend.Transport, name string) (v backend.Volume, c backend.Connection) {
	h.t.Helper()
	h.ask(func(ctx context.Context) (err error) {
		v, err = h.CreateVolume(ctx, backend.CreateVolume{Name: name, Pool: "files", Size: backend.Size{Required: 8 * mib}})
		return err
	})
	base := map[backend.Transport]string{backend.ISCSI: "iqn.2026-01.io.test:node", backend.NVMe: "nqn.2026-01.io.test:node"}[tr]
	h.ask(func(ctx context.Context) (err error) {
		c, err = h.Publish(ctx, backend.Publish{Volume: v.ID, Node: "node", Initiator: base, Transport: tr})
		return err
	})
	return v, c
}

// begin has the load on the first n portals of a connection.
func (h *host) begin(l *load, c backend.Connection, n int) {
	h.t.Helper()
	for portal := range n {
		p, err := node.Dial(h.t.Context(), c, portal, backend.Auth{})
		rig.Must(h.t, err)
		h.t.Cleanup(p.Close)
		l.add(p, int64(portal)*mib)
	}
}

// links are the links in the kernel's trees that are ours.
func links(t *testing.T) (all []string) {
	t.Helper()
	for _, k := range []kind{kindLIO, kindNvmet} {
		paths, err := tree(k.root)
		rig.Must(t, err)
		for _, p := range paths {
			p = filepath.Join(k.root, p)
			if st, err := os.Lstat(p); err == nil && st.Mode()&os.ModeSymlink != 0 {
				all = append(all, p)
			}
		}
	}
	return all
}

func TestNodesDoNotNoticeThatTheAgentRestarts(t *testing.T) {
	kmsg.Watch(t, kmsg.KeptOut)
	h, l := startAgent(t), newLoad()
	v, c := h.publish(backend.ISCSI, "one")
	w, d := h.publish(backend.NVMe, "two")
	h.begin(l, c, 2)
	h.begin(l, d, 2)
	want := links(t)
	for _, stop := range []func() error{h.Stop, func() error { h.Kill(); return nil }} {
		l.moves(t)
		rig.Must(t, stop())
		l.moves(t)
		mark := h.Mark()
		rig.Must(t, h.Start())
		h.ready(mark)
		l.moves(t)
		if got := links(t); !slices.Equal(got, want) {
			t.Errorf("the kernel serves\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	again, e := h.publish(backend.ISCSI, "one")
	if again.ID != v.ID || e.Epoch != c.Epoch || e.WWID != c.WWID || e.Target != c.Target {
		t.Errorf("published as %+v, and then as %+v", c, e)
	}
	l.end(t)
	h.leave(v, c)
	h.leave(w, d)
}

// leave ends a publication, and its volume.
func (h *host) leave(v backend.Volume, c backend.Connection) {
	h.t.Helper()
	h.ask(func(ctx context.Context) error { return h.Unpublish(ctx, v.ID, "node") })
	for portal := range c.Portals {
		if p, err := node.Dial(h.t.Context(), c, portal, backend.Auth{}); err == nil {
			p.Close()
			h.t.Errorf("%s let in whom it had put out", c.Target)
		}
	}
	h.ask(func(ctx context.Context) error { return h.DeleteVolume(ctx, v.ID) })
	if left := links(h.t); slices.ContainsFunc(left, func(l string) bool { return strings.Contains(l, v.Identity) }) {
		h.t.Errorf("left: %s", strings.Join(left, "\n"))
	}
}

// A reboot forgets what the kernel served, and an administrator may remove a
// piece: the agent makes all of it again, identically, before it is ready.
func TestAnAgentServesAgainWhatTheKernelForgot(t *testing.T) {
	kmsg.Watch(t, kmsg.KeptOut)
	h := startAgent(t)
	for _, tr := range []backend.Transport{backend.ISCSI, backend.NVMe} {
		v, c := h.publish(tr, string(tr))
		want := links(t)
		h.Kill()
		for _, k := range []kind{kindLIO, kindNvmet} {
			x, err := k.open()
			rig.Must(t, err)
			s := &server{x, t, k}
			s.forget()
		}
		if left := links(t); len(left) > 0 {
			t.Fatalf("left: %s", strings.Join(left, "\n"))
		}
		mark := h.Mark()
		rig.Must(t, h.Start())
		h.ready(mark)
		if got := links(t); !slices.Equal(got, want) {
			t.Errorf("the kernel serves\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		p, err := node.Dial(t.Context(), c, 1, backend.Auth{})
		rig.Must(t, err)
		if p.WWID != c.WWID {
			t.Errorf("the volume is %s, and was %s", p.WWID, c.WWID)
		}
		rig.Must(t, roundTrip(p, 0, 1))
		p.Close()
		h.leave(v, c)
	}
}

func TestExpandingIsSeenByANodeThatIsConnected(t *testing.T) {
	kmsg.Watch(t, kmsg.KeptOut)
	h := startAgent(t)
	for _, tr := range []backend.Transport{backend.ISCSI, backend.NVMe} {
		v, c := h.publish(tr, string(tr))
		l := newLoad()
		if tr == backend.ISCSI { // over NVMe the session is told, and wants to look again first
			h.begin(l, c, 1)
		}
		var w backend.Volume
		h.ask(func(ctx context.Context) (err error) {
			w, err = h.ExpandVolume(ctx, v.ID, backend.Size{Required: 32 * mib})
			return err
		})
		p, err := node.Dial(t.Context(), c, 1, backend.Auth{})
		rig.Must(t, err)
		if p.Size != w.Size || w.Size < 32*mib {
			t.Errorf("%s: %d bytes, want %d", tr, p.Size, w.Size)
		}
		rig.Must(t, roundTrip(p, w.Size-4096, 1))
		p.Close()
		l.end(t)
		h.leave(v, c)
	}
}
