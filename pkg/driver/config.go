package driver

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/volume/attrs"
)

// Config is the controller's configuration.
type Config struct {
	// Cluster names the cluster: the UID of its namespace kube-system. Nodes' names
	// at the storage are made of it.
	Cluster  string          `json:"cluster"`
	Backends []BackendConfig `json:"backends"`
	// Nodes that do not have the names that are made for them.
	Nodes map[string]NodeNames `json:"nodes,omitempty"`
}

// BackendConfig is one backend.
type BackendConfig struct {
	Name string `json:"name"`
	// Agent is how a storage host's agent is reached.
	Agent *AgentConfig `json:"agent"`
	// Topology are the labels of nodes that reach it; empty: all nodes do.
	Topology map[string]string `json:"topology,omitempty"`
}

// AgentConfig is how an agent is reached: an address, and files of certificates.
type AgentConfig struct {
	Address     string `json:"address"`              // host:port
	ServerName  string `json:"serverName,omitempty"` // in its certificate; empty: Address's host
	CA          string `json:"ca"`
	Certificate string `json:"certificate"`
	Key         string `json:"key"`
}

// NodeNames are a node's names at the storage; empty ones are made.
type NodeNames struct {
	ISCSI string `json:"iscsi,omitempty"`
	NVMe  string `json:"nvme,omitempty"`
}

// ParseConfig reads a configuration: unknown and doubled keys are errors.
func ParseConfig(b []byte) (Config, error) {
	var c Config
	if len(b) > maxConfig {
		return c, fmt.Errorf("%d bytes, at most %d", len(b), maxConfig)
	}
	if err := yaml.UnmarshalStrict(b, &c); err != nil {
		return Config{}, err
	}
	return c, c.check()
}

// check refuses what could not work.
func (c *Config) check() error {
	if c.Cluster == "" || len(c.Cluster) > maxCluster {
		return fmt.Errorf("cluster: want 1..%d bytes: the UID of the namespace kube-system", maxCluster)
	}
	if len(c.Backends) > maxBackends || len(c.Nodes) > maxNodeNames {
		return fmt.Errorf("%d backends and %d nodes, at most %d and %d", len(c.Backends), len(c.Nodes), maxBackends, maxNodeNames)
	}
	seen := map[string]bool{}
	for i, b := range c.Backends {
		if err := b.check(); err != nil {
			return fmt.Errorf("backends[%d] %q: %w", i, b.Name, err)
		}
		if seen[b.Name] {
			return fmt.Errorf("backends[%d]: there are two called %q", i, b.Name)
		}
		seen[b.Name] = true
	}
	return c.checkNodes()
}

func (b *BackendConfig) check() error {
	if !backend.ValidName(b.Name, attrs.MaxBackend) {
		return fmt.Errorf("name: want 1..%d of a-z, 0-9 and inner hyphens", attrs.MaxBackend)
	}
	if len(b.Topology) > maxTopology {
		return fmt.Errorf("topology: %d segments, at most %d", len(b.Topology), maxTopology)
	}
	for k, v := range b.Topology {
		if k == "" || v == "" {
			return fmt.Errorf("topology: %q: %q: want a label and its value", k, v)
		}
	}
	if b.Agent == nil {
		return fmt.Errorf("agent is missing: the address and certificates of its storage host")
	}
	return b.Agent.check()
}

func (a *AgentConfig) check() error {
	if host, port, err := net.SplitHostPort(a.Address); err != nil || host == "" || port == "" {
		return fmt.Errorf("agent.address %q: want host:port", a.Address)
	}
	for key, file := range map[string]string{"ca": a.CA, "certificate": a.Certificate, "key": a.Key} {
		if !filepath.IsAbs(file) || len(file) > maxPath || strings.ContainsRune(file, 0) {
			return fmt.Errorf("agent.%s %q: want the absolute name of a file", key, file)
		}
	}
	return nil
}

// checkNodes refuses names that are no names, or that two nodes would have: their
// writes could not be told apart (I9).
func (c *Config) checkNodes() error {
	owner := map[string]string{}
	for node, n := range c.Nodes {
		if err := backend.CheckNode(node); err != nil {
			return err
		}
		for transport, name := range map[backend.Transport]string{backend.ISCSI: n.ISCSI, backend.NVMe: n.NVMe} {
			if name == "" {
				continue
			}
			if err := backend.CheckInitiator(transport, name); err != nil {
				return fmt.Errorf("node %s: %w", node, err)
			}
			if other, taken := owner[name]; taken {
				return fmt.Errorf("nodes %s and %s both have the name %s at the storage: give each its own", node, other, name)
			}
			owner[name] = node
		}
	}
	return nil
}
