package driver

import (
	"net"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/strictyaml"
	"github.com/csi-mpath/csi-mpath/pkg/volume/attrs"
)

// Config is the controller's configuration.
type Config struct {
	// Cluster names the cluster: the UID of its namespace kube-system. Nodes' names
	// at the storage are made of it. Empty: the one that Backends were made with.
	Cluster  string
	Backends []BackendConfig
	// Nodes that do not have the names that are made for them.
	Nodes map[string]NodeNames
	// OnlyNodes says that there are no nodes but those: for clusters without
	// Kubernetes, whose controller would believe in any.
	OnlyNodes bool
}

// BackendConfig is one backend.
type BackendConfig struct {
	Name string
	// Agent is how a storage host's agent is reached.
	Agent *AgentConfig
	// Topology are the labels of nodes that reach it; empty: all nodes do.
	Topology map[string]string
}

// AgentConfig is how an agent is reached: an address, and files of certificates.
type AgentConfig struct {
	Address     string // host:port
	ServerName  string // in its certificate; empty: Address's host
	CA          string
	Certificate string
	Key         string
}

// NodeNames are a node's names at the storage; empty ones are made.
type NodeNames struct {
	ISCSI string
	NVMe  string
}

// ParseConfig reads a configuration: unknown and doubled keys are errors.
func ParseConfig(b []byte) (Config, error) {
	n, err := strictyaml.Parse(b, maxConfig)
	if err != nil {
		return Config{}, err
	}
	n.Object("cluster", "backends", "nodes", "onlyNodes")
	c := Config{}
	if name := n.Key("cluster"); name.Given() {
		c.Cluster = name.Text(maxCluster)
	}
	names := strictyaml.Seen{}
	for _, e := range n.Key("backends").List(maxBackends) {
		x := parseBackend(e)
		names.Once(e.Key("name"), "backend", x.Name)
		c.Backends = append(c.Backends, x)
	}
	c.Nodes, c.OnlyNodes = parseNodes(n.Key("nodes")), n.Key("onlyNodes").Flag()
	if n.Err() != nil {
		return Config{}, n.Err()
	}
	return c, nil
}

func parseBackend(n strictyaml.Node) BackendConfig {
	n.Object("name", "agent", "topology")
	b := BackendConfig{Name: n.Want("name").Text(attrs.MaxBackend)}
	if !backend.ValidName(b.Name, attrs.MaxBackend) {
		n.Key("name").Fail("%q: want 1..%d of a-z, 0-9 and inner hyphens", b.Name, attrs.MaxBackend)
	}
	b.Agent = parseAgent(n.Want("agent"))
	labels := n.Key("topology")
	for _, k := range labels.Names(maxTopology) {
		if b.Topology == nil {
			b.Topology = map[string]string{}
		}
		b.Topology[k] = labels.Want(k).Text(maxLabel)
	}
	return b
}

func parseAgent(n strictyaml.Node) *AgentConfig {
	n.Object("address", "serverName", "ca", "certificate", "key")
	a := &AgentConfig{Address: n.Want("address").Text(maxAddress), ServerName: n.Key("serverName").Text(maxAddress),
		CA: n.Want("ca").AbsPath(), Certificate: n.Want("certificate").AbsPath(), Key: n.Want("key").AbsPath()}
	if host, port, err := net.SplitHostPort(a.Address); err != nil || host == "" || port == "" {
		n.Key("address").Fail("%q: want host:port", strictyaml.Cut(a.Address))
	}
	return a
}

// parseNodes refuses names that are no names, or that two nodes would have: their
// writes could not be told apart (I9).
func parseNodes(n strictyaml.Node) map[string]NodeNames {
	all, taken := map[string]NodeNames{}, strictyaml.Seen{}
	for _, node := range n.Names(maxNodeNames) {
		e := n.Key(node)
		e.Object("iscsi", "nvme")
		if err := backend.CheckNode(node); err != nil {
			e.Fail("%v", err)
		}
		all[node] = NodeNames{ISCSI: parseInitiator(e.Key("iscsi"), backend.ISCSI, taken), NVMe: parseInitiator(e.Key("nvme"), backend.NVMe, taken)}
	}
	return all
}

func parseInitiator(n strictyaml.Node, t backend.Transport, taken strictyaml.Seen) string {
	if !n.Given() {
		return ""
	}
	name := n.Text(backend.MaxInitiator)
	if err := backend.CheckInitiator(t, name); err != nil {
		n.Fail("%v", err)
	}
	taken.Once(n, "a node with the name", name)
	return name
}
