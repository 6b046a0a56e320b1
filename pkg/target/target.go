// Package target is an embedded iSCSI target: several portals over one or more
// stores, with every fault a multipath initiator must survive on demand.
//
//	s, err := target.New(target.Config{LUNs: []target.LUN{{Store: target.NewRAM(1 << 30)}}})
//	p, err := s.Listen("127.0.0.1:0")
//
// Machine is the protocol (RFC 7143, SPC-4, SBC-3): bytes and the time in,
// bytes out; no socket, clock or goroutine. Server is the thin shell around it.
// It offers one connection per session, ErrorRecoveryLevel 0.
package target

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/csi-mpath/csi-mpath/pkg/iscsi/auth"
	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
	"github.com/csi-mpath/csi-mpath/pkg/target/serve"
)

// DefaultName is the iSCSI name of a target that was given none.
const DefaultName = "iqn.2025-01.io.csi-mpath:target"

// Config describes a target. Its zero value plus one LUN works.
type Config struct {
	Name string // iSCSI name
	LUNs []LUN
	// Auth, if enabled, is demanded of every session, discovery too.
	Auth auth.Credentials
	// Initiators are the names let in; empty means all.
	Initiators []string
	// Grants, if not nil, are instead of Auth and Initiators: who is let in, by
	// name, and nobody else. An empty map lets nobody in.
	Grants map[string]Grant
	// Depth is the command window of each session, 1..4096; 0 is DefaultDepth.
	Depth int
	// MaxRecv, MaxBurst and FirstBurst are offered in a login, bytes; 0 is the default.
	MaxRecv, MaxBurst, FirstBurst uint32
	// MaxR2T is how many R2Ts of one command are outstanding at most, 1..8; 0 is 8.
	MaxR2T int
	// InitialR2T and NoImmediate forbid unsolicited data.
	InitialR2T, NoImmediate bool
	// NoDigests refuses CRC32C.
	NoDigests bool
	// PowerOn makes each new session see 29h/00 on its first command.
	PowerOn bool
}

// LUN is one logical unit.
type LUN struct {
	Number uint32 // 0..16383
	Store  Store
	Device
	ReadOnly bool
	// WriteThrough reports no volatile write cache.
	WriteThrough bool
	// Thick refuses UNMAP and WRITE SAME with UNMAP.
	Thick bool
}

// Device is what a logical unit says of itself. Portals may each be given
// another one, to play a LUN number that was reused.
type Device struct {
	// Identity: NAA, EUI and T10 in hex, SCSI name and serial as text. If all
	// are empty, NAA and serial are derived from target name and LUN.
	scsi.Identity
	Vendor, Product, Revision string
	BlockSize                 uint32 // bytes, 512 (if 0) or 4096
	PhysicalExp               uint8  // physical block is 2^PhysicalExp logical ones
	Size                      uint64 // bytes; 0 is the store's
	MaxTransfer               uint32 // bytes of one READ or WRITE, as VPD B0h tells; 0 is 4 MiB
}

var errNoLUN = errors.New("target: a target needs at least one LUN with a store")

// normalize fills in defaults and refuses what cannot work.
func (c *Config) normalize() error {
	if c.Name == "" {
		c.Name = DefaultName
	}
	if len(c.Name) > pdu.MaxNameLen {
		return fmt.Errorf("target: name is longer than %d bytes", pdu.MaxNameLen)
	}
	if c.Depth == 0 {
		c.Depth = DefaultDepth
	}
	if c.Depth < 1 || c.Depth > maxDepth {
		return fmt.Errorf("target %s: depth %d is out of 1..%d", c.Name, c.Depth, maxDepth)
	}
	if c.MaxR2T == 0 {
		c.MaxR2T = maxOutstandingR2T
	}
	if c.MaxR2T < 1 || c.MaxR2T > maxOutstandingR2T {
		return fmt.Errorf("target %s: %d outstanding R2Ts are out of 1..%d", c.Name, c.MaxR2T, maxOutstandingR2T)
	}
	for _, v := range []struct {
		p   *uint32
		def uint32
	}{{&c.MaxRecv, offerRecv}, {&c.MaxBurst, offerBurst}, {&c.FirstBurst, offerFirst}} {
		if *v.p == 0 {
			*v.p = v.def
		}
		if *v.p < pdu.MinRecvDataSegment || *v.p > pdu.MaxDataSegment {
			return fmt.Errorf("target %s: length %d is out of %d..%d", c.Name, *v.p, pdu.MinRecvDataSegment, pdu.MaxDataSegment)
		}
	}
	if err := c.Auth.Check(); err != nil {
		return fmt.Errorf("target %s: %w", c.Name, err)
	}
	if err := checkGrants(c.Name, c.Grants); err != nil {
		return err
	}
	if len(c.LUNs) == 0 || len(c.LUNs) > maxLUNs {
		return errNoLUN
	}
	return nil
}

// fill completes the description of LUN number n over a store.
func (d *Device) fill(target string, n uint32, st Store) error {
	if d.BlockSize == 0 {
		d.BlockSize = 512
	}
	if d.BlockSize != 512 && d.BlockSize != 4096 {
		return fmt.Errorf("target %s LUN %d: block size %d is neither 512 nor 4096", target, n, d.BlockSize)
	}
	if d.Size == 0 {
		d.Size = st.Size()
	}
	if d.Size > st.Size() || d.Size < uint64(d.BlockSize) || d.Size%uint64(d.BlockSize) != 0 {
		return fmt.Errorf("target %s LUN %d: size %d is not a multiple of %d up to the store's %d",
			target, n, d.Size, d.BlockSize, st.Size())
	}
	if d.MaxTransfer == 0 {
		d.MaxTransfer = serve.MaxTransfer
	}
	if d.MaxTransfer < d.BlockSize || d.MaxTransfer > serve.MaxTransfer {
		return fmt.Errorf("target %s LUN %d: a transfer limit of %d bytes is not in %d..%d", target, n, d.MaxTransfer, d.BlockSize, serve.MaxTransfer)
	}
	if d.Identity == (scsi.Identity{}) {
		sum := sha256.Sum256(fmt.Appendf(nil, "%s/%d", target, n))
		d.NAA = "6" + hex.EncodeToString(sum[:16])[:31]
		d.Serial = hex.EncodeToString(sum[16:24])
	}
	if d.Vendor == "" {
		d.Vendor, d.Product, d.Revision = "CSIMPATH", "embedded target", "1"
	}
	for _, h := range []string{d.NAA, d.EUI, d.T10} {
		if _, err := hex.DecodeString(h); err != nil || len(h) > 64 {
			return fmt.Errorf("target %s LUN %d: designator %q is not up to 64 hex digits", target, n, h)
		}
	}
	return nil
}
