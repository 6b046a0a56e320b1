// Package cluster is a small cluster for tests, of real processes: a storage host
// with csi-mpath agent, csi-mpath controller, and two nodes with csi-mpath node. A
// test makes the calls that sidecars and kubelets make, and loses the network's
// paths.
package cluster

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/test/child"
	"github.com/csi-mpath/csi-mpath/test/faultproxy"
	"github.com/csi-mpath/csi-mpath/test/host"
	"github.com/csi-mpath/csi-mpath/test/kubelet"
	"github.com/csi-mpath/csi-mpath/test/vm/rig"
)

// name is the cluster's, in all configurations.
const name = "c1b5e0f2"

// Backend is what the controller calls the storage host.
const Backend = "east"

// stopWithin is how long a process may take to end in order.
const stopWithin = time.Minute

// Options describe a cluster.
type Options struct {
	// Bin is the csi-mpath to run.
	Bin string
	// Attach is nbd, or fuse.
	Attach string
	// Storage is how the storage host is built. Its Front is the cluster's.
	Storage host.Options
}

// Cluster is running.
type Cluster struct {
	t   testing.TB
	opt Options

	Dir  string // what all processes keep is below it; short
	Host *host.Host
	// Portals are the storage's, each with a fault proxy in front.
	Portals map[backend.Transport][]*faultproxy.Proxy

	Controller csi.ControllerClient
	Nodes      []*Node

	controller *child.Child
}

// Node is one of a cluster.
type Node struct {
	csi.NodeClient
	Name string
	Dir  string // of its mounts and state

	c      *Cluster
	plugin *child.Child
}

// Start starts all of it. It ends with the test, which fails when something is
// left.
func Start(t testing.TB, opt Options) *Cluster {
	t.Helper()
	dir, err := os.MkdirTemp("", "cl")
	c := &Cluster{t: t, opt: opt, Dir: dir, Portals: map[backend.Transport][]*faultproxy.Proxy{}}
	c.must(err)
	t.Cleanup(func() { c.must(os.RemoveAll(dir)) })
	c.Controller = csi.NewControllerClient(kubelet.Dial(t, c.ControllerEndpoint()))
	for _, n := range []string{"n1", "n2"} {
		c.Nodes = append(c.Nodes, c.newNode(n))
	}
	t.Cleanup(c.end)
	opt.Storage.Front = c.front
	c.Host, err = host.NewWith(opt.Bin, c.path("host"), opt.Storage)
	c.must(err)
	c.must(c.Host.Start(t.Context()))
	c.startController()
	for _, n := range c.Nodes {
		n.Start()
	}
	c.listens(c.controller, c.path("controller.sock"))
	for _, n := range c.Nodes {
		n.Listens()
	}
	return c
}

func (c *Cluster) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *Cluster) path(name string) string { return filepath.Join(c.Dir, name) }

// front puts a proxy before a portal.
func (c *Cluster) front(t backend.Transport, listen string) (string, error) {
	p, err := faultproxy.Listen("127.0.0.1:0", listen)
	if err != nil {
		return "", err
	}
	c.Portals[t] = append(c.Portals[t], p)
	return p.Addr(), nil
}

// ControllerEndpoint is the controller's socket.
func (c *Cluster) ControllerEndpoint() string { return "unix://" + c.path("controller.sock") }

func (c *Cluster) startController() {
	c.t.Helper()
	a := c.Host.Tenant()
	text := fmt.Sprintf("cluster: %s\nbackends:\n- name: %s\n  agent: {address: %q, ca: %s, certificate: %s, key: %s}\nnodes: {n1: {}, n2: {}}\nonlyNodes: true\n",
		name, Backend, a.Address, a.TLS.CA, a.TLS.Cert, a.TLS.Key)
	c.must(os.WriteFile(c.path("controller.yaml"), []byte(text), 0o600))
	var err error
	c.controller, err = child.Start(child.Options{}, c.opt.Bin, "controller", "--config", c.path("controller.yaml"), "--endpoint", c.ControllerEndpoint())
	c.must(err)
}

func (c *Cluster) newNode(name string) *Node {
	c.t.Helper()
	n := &Node{Name: name, Dir: c.path(name), c: c}
	c.must(os.Mkdir(n.Dir, 0o700))
	n.NodeClient = csi.NewNodeClient(kubelet.Dial(c.t, n.Endpoint()))
	return n
}

// Endpoint is the node plugin's socket.
func (n *Node) Endpoint() string { return "unix://" + filepath.Join(n.Dir, "csi") }

// Start starts the node plugin, with env added to its environment.
func (n *Node) Start(env ...string) {
	n.c.t.Helper()
	var err error
	n.plugin, err = child.Start(child.Options{Env: env}, n.c.opt.Bin, "node", "--attach", n.c.opt.Attach, "--node-name", n.Name, "--cluster", name,
		"--endpoint", n.Endpoint(), "--state-dir", n.state())
	n.c.must(err)
}

// Listens waits until the node plugin answers: it has brought back what it had.
func (n *Node) Listens() {
	n.c.t.Helper()
	n.c.listens(n.plugin, filepath.Join(n.Dir, "csi"))
}

// listens waits until a process answers at a socket. Its end is the test's.
func (c *Cluster) listens(p *child.Child, socket string) {
	c.t.Helper()
	c.must(rig.Wait(socket, func() error {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			return conn.Close()
		}
		if !p.Alive() {
			err = fmt.Errorf("%w: %w", p.Wait(), rig.ErrOver)
		}
		return err
	}))
}

func (n *Node) state() string { return filepath.Join(n.Dir, "state") }

// Stop ends the node plugin in order.
func (n *Node) Stop() error { return n.plugin.Stop(stopWithin) }

// end stops every process, and looks for what should not be left.
func (c *Cluster) end() {
	if !c.t.Failed() {
		c.empty(context.WithoutCancel(c.t.Context()))
	}
	said := map[string]*child.Child{"controller": c.controller}
	for _, n := range c.Nodes {
		said[n.Name] = n.plugin
	}
	for what, p := range said {
		if p == nil {
			continue
		}
		if err := p.Stop(stopWithin); err != nil {
			c.t.Error(err)
		}
		if c.t.Failed() {
			c.t.Logf("%s: %s", what, p.Output())
		}
	}
	if c.Host != nil {
		if err := c.Host.Close(); err != nil {
			c.t.Error(err)
		}
	}
	for _, all := range c.Portals {
		for _, p := range all {
			_ = p.Close()
		}
	}
	for _, left := range c.processes() {
		c.t.Errorf("a process is left: %s", left)
	}
}
