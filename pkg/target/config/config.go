// Package config reads the configuration of `csi-mpath target`: bytes in, a
// checked structure out. It opens no file and resolves no name.
//
// It is strict: a key that it does not know, a key given twice, a value of the
// wrong kind or out of range is an error that names the key's path, such as
// targets[0].luns[1].blockSize.
package config

import (
	_ "embed"
	"slices"

	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
)

// Example is a configuration with comments that works as it is.
//
//go:embed example.yaml
var Example string

// Config is all of a configuration. Defaults are filled in.
type Config struct {
	// Discovery is demanded of iSCSI's discovery sessions, DiscoveryDHChap of
	// discovery controllers.
	Discovery, DiscoveryDHChap Auth
	Targets                    []Target
}

// Auth says where credentials are. Secrets are never in the configuration
// itself (I10).
type Auth struct {
	// SecretFile is a file of user names and secrets (CHAP), or of a host's secret
	// (DH-HMAC-CHAP); "" is no authentication.
	SecretFile string
	// ControllerSecretFile has what the target proves to know, "" nothing.
	// DH-HMAC-CHAP only.
	ControllerSecretFile string
}

// Target is one iSCSI target, or one NVMe subsystem.
type Target struct {
	Name       string   // iSCSI name, or NQN
	NVMe       bool     // it is a subsystem, served over NVMe/TCP
	Initiators []string // names, or hosts' NQNs, let in; empty is all
	Auth       Auth
	HostAuth   map[string]Auth // of single hosts, NVMe only
	// Unauthenticated lets a target without Auth be reached from elsewhere.
	Unauthenticated bool
	Portals         []Portal
	Groups          []Group // those with another state than optimized
	Depth           int     // commands in flight per session or queue, 0 is the target's default
	Queues          int     // I/O queues of a controller, 0 is the target's default
	LUNs            []LUN   // or namespaces
}

// Portal is one address of a target. Several targets may share one.
type Portal struct {
	Address   string // IP:port to listen on; port 0 is any free one
	Advertise string // IP:port that discovery tells, "" is the address
	// TPGT is the target portal group tag (RFC 7143), from 1; over NVMe/TCP the
	// port identifier, 0 is one that the target gives.
	TPGT  uint16
	Group uint16 // ALUA target port group, or the portals whose ANA states are one, from 1
}

// Group is the access state of a group of portals.
type Group struct {
	ID uint16
	// ANAGroup is the ANA group that the state is of, 0 all. NVMe only.
	ANAGroup uint32
	State    scsi.AccessState // of a target
	ANA      nvme.AccessState // of a subsystem
}

// LUN is one logical unit, or one namespace.
type LUN struct {
	Number                        uint32 // 0..16383; NSID 1..1024
	Store                         Store
	BlockSize                     uint32 // bytes, 512 or 4096
	ReadOnly, WriteThrough, Thick bool
	// Identity is empty unless it is given; the target makes one then.
	Identity scsi.Identity
	NVMe     nvme.Identity // of a namespace
	ANAGroup uint32        // of a namespace, from 1
}

// Store is where a logical unit's bytes are: in memory, or in a file or block
// device.
type Store struct {
	RAM  uint64 // bytes; 0 is a file
	File string
	// Size is the file's, bytes: a file that is missing is made with it, a
	// shorter one grows to it. 0 is the size it has.
	Size uint64
	// Direct goes past the page cache (O_DIRECT).
	Direct bool
}

// Access is the access state of an ANA group (0 for a target's LUNs) in a group
// of portals: optimized unless told otherwise.
func (t *Target) Access(group uint16, ana uint32) Group {
	for _, of := range []uint32{ana, 0} { // what is about one ANA group comes first
		for _, g := range t.Groups {
			if g.ID == group && g.ANAGroup == of {
				g.ANAGroup = ana
				return g
			}
		}
	}
	return Group{ID: group, ANAGroup: ana, State: scsi.Optimized, ANA: nvme.Optimized}
}

// ANAGroups are the ANA groups of the target's namespaces; 0 alone stands for
// all LUNs.
func (t *Target) ANAGroups() (all []uint32) {
	if !t.NVMe {
		return []uint32{0}
	}
	for _, l := range t.LUNs {
		if !slices.Contains(all, l.ANAGroup) {
			all = append(all, l.ANAGroup)
		}
	}
	return all
}
