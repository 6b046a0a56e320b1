package driver

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// InitiatorName is a node's name at the storage: the same as long as node and
// cluster are, another for each, and short enough whatever they are called.
func InitiatorName(t backend.Transport, cluster, node string) string {
	sum := sha256.Sum256([]byte(cluster + "\x00" + node))
	name := ".2025-01.io.csi-mpath:node:" + hex.EncodeToString(sum[:16])
	if t == backend.NVMe {
		return "nqn" + name
	}
	return "iqn" + name
}

// initiator is the name a node has, or is given.
func (c *Config) initiator(t backend.Transport, node string) string {
	n := c.Nodes[node]
	switch {
	case t == backend.ISCSI && n.ISCSI != "":
		return n.ISCSI
	case t == backend.NVMe && n.NVMe != "":
		return n.NVMe
	}
	return InitiatorName(t, c.Cluster, node)
}
