// Package config reads the configuration of `csi-mpath target`: bytes in, a
// checked structure out. It opens no file and resolves no name.
//
// It is strict: a key that it does not know, a key given twice, a value of the
// wrong kind or out of range is an error that names the key's path, such as
// targets[0].luns[1].blockSize.
package config

import (
	_ "embed"

	"github.com/csi-mpath/csi-mpath/pkg/scsi"
)

// Example is a configuration with comments that works as it is.
//
//go:embed example.yaml
var Example string

// Config is all of a configuration. Defaults are filled in.
type Config struct {
	// Discovery is demanded of discovery sessions.
	Discovery Auth
	Targets   []Target
}

// Auth says where CHAP credentials are. Secrets are never in the configuration
// itself (I10).
type Auth struct {
	// SecretFile is a file of user names and secrets; "" is no authentication.
	SecretFile string
}

// Target is one iSCSI target.
type Target struct {
	Name       string   // iSCSI name
	Initiators []string // names let in; empty is all
	Auth       Auth
	// Unauthenticated lets a target without Auth be reached from elsewhere.
	Unauthenticated bool
	Portals         []Portal
	Groups          []Group // those with another state than optimized
	Depth           int     // commands in flight per session, 0 is the target's default
	LUNs            []LUN
}

// Portal is one address of a target. Several targets may share one.
type Portal struct {
	Address   string // IP:port to listen on; port 0 is any free one
	Advertise string // IP:port that discovery tells, "" is the address
	TPGT      uint16 // target portal group tag (RFC 7143), from 1
	Group     uint16 // ALUA target port group, from 1
}

// Group is an ALUA target port group.
type Group struct {
	ID    uint16
	State scsi.AccessState
}

// LUN is one logical unit.
type LUN struct {
	Number                        uint32 // 0..16383
	Store                         Store
	BlockSize                     uint32 // bytes, 512 or 4096
	ReadOnly, WriteThrough, Thick bool
	// Identity is empty unless it is given; the target makes one then.
	Identity scsi.Identity
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

// State is the access state of a group: optimized unless told otherwise.
func (t *Target) State(group uint16) scsi.AccessState {
	for _, g := range t.Groups {
		if g.ID == group {
			return g.State
		}
	}
	return scsi.Optimized
}
