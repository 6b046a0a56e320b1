// Package config reads the configuration of `csi-mpath agent`: bytes in, a checked
// structure out. It opens no file and resolves no name. It is strict: see package
// strictyaml.
package config

import (
	_ "embed"
	"net/netip"

	"github.com/csi-mpath/csi-mpath/pkg/agent/export"
	"github.com/csi-mpath/csi-mpath/pkg/agent/store"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// Example is a configuration with comments.
//
//go:embed example.yaml
var Example string

// Config is all of a configuration. Defaults are filled in.
type Config struct {
	Listen  netip.AddrPort
	Metrics netip.AddrPort // invalid: none
	TLS     TLS
	State   string // directory
	Admin   string // unix socket of 'csi-mpath agent status' and 'orphans'
	Pools   []Pool // 1..32, by name unique
	Exports []Export
}

// TLS are files in PEM form.
type TLS struct{ Cert, Key, ClientCA string }

// Pool is a place for volumes: one of LVMThin and Directory is not nil.
type Pool struct {
	Name      string
	LVMThin   *LVMThin
	Directory *Directory
	// Transports that its volumes are published through: each has an Export.
	Transports []backend.Transport
}

// LVMThin is a thin pool of LVM. Zero marks are the store's own.
type LVMThin struct {
	VolumeGroup, ThinPool string
	// QueueWhenFull makes writes to a full pool wait, for a minute, before they fail.
	QueueWhenFull bool
	// Devices are the group's physical volumes; empty: LVM looks for them.
	Devices []string
	Marks   store.Marks
}

// Directory is a directory of files. Zero marks are the store's own.
type Directory struct {
	Path        string
	Preallocate bool
	Marks       store.Marks
}

// Kind is what serves volumes.
type Kind string

// The kinds of exporters.
const (
	Embedded Kind = "embedded" // our own target, in the agent's process
	LIO      Kind = "lio"      // the kernel's, iSCSI
	NVMet    Kind = "nvmet"    // the kernel's, NVMe/TCP
)

// String is the word in the configuration.
func (k Kind) String() string { return string(k) }

// Export is how volumes are reached through one transport.
type Export struct {
	Transport backend.Transport
	Kind      Kind
	Portals   []export.Portal // 1..export.MaxPortals
}
