package lab

import (
	"fmt"
	"os"
)

// The networks, all inside the sandbox's own: one for Kubernetes, two for storage. Each
// is a bridge, which is the machine's end of it, and nodes are plugged in.
const (
	machine = "10.200.0.254" // API server and the agent's management
	service = "10.96.0.1"    // the API server as pods know it
)

// Storage are the names of the networks to the storage; its address in each.
var Storage = []struct{ Name, Address string }{{"san-a", "10.201.0.254"}, {"san-b", "10.202.0.254"}}

// network makes the machine's ends.
func (l *Lab) network() {
	l.t.Helper()
	l.do("ip", "link", "set", "lo", "up")
	l.do("ip", "addr", "add", service+"/32", "dev", "lo")
	l.bridge("lan", machine)
	for _, s := range Storage {
		l.bridge(s.Name, s.Address)
	}
	l.must(os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644))
}

func (l *Lab) bridge(name, address string) {
	l.t.Helper()
	l.do("ip", "link", "add", name, "type", "bridge")
	l.do("ip", "addr", "add", address+"/24", "dev", name)
	l.do("ip", "link", "set", name, "up")
}

// plug gives a node its network: eth0 to Kubernetes, eth1 and eth2 to the storage.
func (n *Node) plug() {
	l := n.l
	l.t.Helper()
	l.do("ip", "netns", "add", n.Name)
	l.do("ip", "-n", n.Name, "link", "set", "lo", "up")
	for i, bridge := range []string{"lan", Storage[0].Name, Storage[1].Name} {
		port, dev := fmt.Sprintf("%s.%d", n.Name, i), fmt.Sprint("eth", i)
		l.do("ip", "link", "add", port, "type", "veth", "peer", "name", dev, "netns", n.Name)
		l.do("ip", "link", "set", port, "master", bridge, "up")
		l.do("ip", "-n", n.Name, "addr", "add", fmt.Sprintf("10.%d.0.%d/24", 200+i, n.number), "dev", dev)
		l.do("ip", "-n", n.Name, "link", "set", dev, "up")
	}
	l.do("ip", "-n", n.Name, "route", "add", "default", "via", machine)
	l.do("ip", "route", "add", n.pods(), "via", n.Address())
}

// pods is the network of a node's pods.
func (n *Node) pods() string { return fmt.Sprintf("10.244.%d.0/24", n.number) }

// Address is the node's, in Kubernetes' network.
func (n *Node) Address() string { return fmt.Sprintf("10.200.0.%d", n.number) }

// SwitchOff is the failure of one of the storage's networks: what is sent there is
// lost, and nobody is told.
func (l *Lab) SwitchOff(network string) {
	l.t.Helper()
	l.do("ip", "link", "set", network, "down")
}

// SwitchOn ends SwitchOff.
func (l *Lab) SwitchOn(network string) {
	l.t.Helper()
	l.do("ip", "link", "set", network, "up")
}

// Isolate cuts a node off Kubernetes, not off its storage: what runs there goes on
// writing.
func (n *Node) Isolate() {
	n.l.t.Helper()
	n.l.do("ip", "link", "set", n.Name+".0", "down")
}

// Rejoin ends Isolate.
func (n *Node) Rejoin() {
	n.l.t.Helper()
	n.l.do("ip", "link", "set", n.Name+".0", "up")
}
