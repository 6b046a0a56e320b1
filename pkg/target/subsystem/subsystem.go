// Package subsystem is the embedded target over NVMe/TCP: one NVMe subsystem
// with several portals over one or more stores, with every fault a multipath
// host must survive on demand.
//
//	s, err := subsystem.New(subsystem.Config{Namespaces: []subsystem.Namespace{{ID: 1, Store: target.NewRAM(1 << 30)}}})
//	p, err := s.Listen("127.0.0.1:0")
//
// Machine is the protocol (NVM Express Base 2.1, NVM Command Set 1.1, TCP
// Transport 1.1): bytes and the time in, bytes out; no socket, clock or
// goroutine. Server is the thin shell around it; package serve has what the
// target's protocols share.
package subsystem

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	"github.com/csi-mpath/csi-mpath/pkg/nvmetcp/auth"
	"github.com/csi-mpath/csi-mpath/pkg/nvmetcp/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/target"
	"github.com/csi-mpath/csi-mpath/pkg/target/serve"
)

// DefaultName is the NQN of a subsystem that was given none.
const DefaultName = "nqn.2025-01.io.csi-mpath:target"

// Config describes a subsystem. Its zero value plus one namespace works.
type Config struct {
	Name       string // NQN
	Namespaces []Namespace
	// Hosts are the NQNs let in; empty means all.
	Hosts []string
	// Auth is what hosts must know before a queue of theirs does anything else,
	// HostAuth the same for single hosts, by NQN. Discovery controllers ask for it
	// too.
	Auth     auth.Credentials
	HostAuth map[string]auth.Credentials
	// Grants, if not nil, are instead of Hosts, Auth and HostAuth: who is let in,
	// by name, and nobody else. An empty map lets nobody in.
	Grants map[string]Grant
	// Depth is the most entries of an I/O queue, 2..1024; 0 is DefaultDepth.
	Depth int
	// Queues is the most I/O queues of a controller, 1..64; 0 is DefaultQueues.
	Queues int
	// MaxH2CData is the most data of one H2CData, and MaxC2HData of one C2HData,
	// bytes; 0 is 256 KiB. R2TSize is the most that one R2T asks for; 0 is all.
	MaxH2CData, MaxC2HData, R2TSize uint32
	// InCapsule is the most data of an I/O command in its capsule, bytes, a
	// multiple of 16 up to MaxInCapsule; 0 is DefaultInCapsule, NoInCapsule none.
	InCapsule int
	// TransferShift is MDTS: a Read or Write moves at most 4096 << TransferShift
	// bytes, 1..10; 0 is 10, and nothing longer is accepted.
	TransferShift uint8
	// Align is CPDA: data for the controller begins at a multiple of (Align+1)*4.
	Align uint8
	// NoDigests refuses CRC32C, NoSuccess ends each read with a response capsule.
	NoDigests, NoSuccess bool
	// NoTBKAS has only Keep Alive commands keep a controller alive.
	NoTBKAS bool
	// Quiesce is CQT, what commands may outlive their controller by, 0..65 s.
	Quiesce time.Duration
	// NoCache makes all namespaces WriteThrough, and says that there is no volatile
	// write cache: hosts ask once per controller.
	NoCache bool
	// TransitionTime is ANATT, 1..255 s; 0 is 10 s.
	TransitionTime time.Duration
	// RetryDelay is CRDT1: what hosts wait before they retry what the target has
	// no room for; 0 is 100 ms.
	RetryDelay time.Duration
	// Serial and Model are for people; empty ones are made up.
	Serial, Model string
}

// Namespace is one namespace.
type Namespace struct {
	ID    uint32 // NSID, 1..MaxNamespace
	Store target.Store
	Device
	// ANAGroup is the namespace's ANA group, 1..MaxANAGroup; 0 is 1.
	ANAGroup uint32
	ReadOnly bool
	// WriteThrough makes each write durable before it is answered.
	WriteThrough bool
	// Thick refuses to deallocate.
	Thick bool
}

// Device is what a namespace says of itself. Portals may each be given another
// one, to play an NSID that was given to another namespace.
type Device struct {
	// Identity in hex. If all are empty, UUID and NGUID are derived from the
	// subsystem's name and the NSID.
	nvme.Identity
	BlockSize uint32 // bytes, 512 (if 0) or 4096
	Size      uint64 // bytes; 0 is the store's
}

var errNoNamespace = errors.New("target: a namespace needs a store")

// normalize fills in defaults and refuses what cannot work.
func (c *Config) normalize() error {
	if c.Name == "" {
		c.Name = DefaultName
	}
	if err := nvme.CheckNQN(c.Name); err != nil {
		return fmt.Errorf("target: %w", err)
	}
	if c.InCapsule == 0 {
		c.InCapsule = DefaultInCapsule
	}
	if c.InCapsule == NoInCapsule {
		c.InCapsule = 0
	}
	for _, v := range []struct {
		what        string
		p           *int
		def, lo, hi int
	}{{"depth", &c.Depth, DefaultDepth, 2, maxDepth}, {"number of queues", &c.Queues, DefaultQueues, 1, maxQueues},
		{"in-capsule size", &c.InCapsule, 0, 0, MaxInCapsule}} {
		if *v.p == 0 {
			*v.p = v.def
		}
		if *v.p < v.lo || *v.p > v.hi {
			return fmt.Errorf("target %s: %s %d is out of %d..%d", c.Name, v.what, *v.p, v.lo, v.hi)
		}
	}
	if c.R2TSize == 0 {
		c.R2TSize = serve.MaxTransfer // all at once: hosts have one open per command
	}
	for _, p := range []*uint32{&c.MaxH2CData, &c.MaxC2HData, &c.R2TSize} {
		if *p == 0 {
			*p = defaultData
		}
		if *p < pdu.MinH2CData || *p > serve.MaxTransfer || *p%4 != 0 {
			return fmt.Errorf("target %s: length %d is no multiple of 4 in %d..%d", c.Name, *p, pdu.MinH2CData, serve.MaxTransfer)
		}
	}
	return c.normalizeRest()
}

func (c *Config) normalizeRest() error {
	if c.TransferShift == 0 {
		c.TransferShift = maxTransferShift
	}
	if c.TransitionTime == 0 {
		c.TransitionTime = defaultTransition
	}
	if c.RetryDelay == 0 {
		c.RetryDelay = defaultRetryDelay
	}
	switch {
	case c.InCapsule%16 != 0:
		return fmt.Errorf("target %s: in-capsule size %d is no multiple of 16", c.Name, c.InCapsule)
	case c.TransferShift > maxTransferShift:
		return fmt.Errorf("target %s: transfer shift %d is more than %d", c.Name, c.TransferShift, maxTransferShift)
	case c.Align > pdu.MaxAlign:
		return fmt.Errorf("target %s: alignment %d is more than %d", c.Name, c.Align, pdu.MaxAlign)
	case c.Quiesce < 0 || c.Quiesce > maxQuiesce, c.TransitionTime < time.Second || c.TransitionTime > 255*time.Second,
		c.RetryDelay < 0 || c.RetryDelay > maxRetryDelay:
		return fmt.Errorf("target %s: a time is out of range", c.Name)
	case len(c.Namespaces) > MaxNamespace:
		return fmt.Errorf("target %s: more than %d namespaces", c.Name, MaxNamespace)
	}
	if err := errors.Join(checkAuth(c.Name, c.Auth, c.HostAuth), checkGrants(c.Name, c.Grants)); err != nil {
		return err
	}
	sum := sha256.Sum256([]byte(c.Name))
	if c.Serial == "" {
		c.Serial = hex.EncodeToString(sum[:10])
	}
	if c.Model == "" {
		c.Model = "csi-mpath embedded target"
	}
	return nil
}

// fill completes the description of namespace n over a store.
func (d *Device) fill(subsystem string, n uint32, st target.Store) error {
	if d.BlockSize == 0 {
		d.BlockSize = 512
	}
	if d.BlockSize != 512 && d.BlockSize != 4096 {
		return fmt.Errorf("target %s namespace %d: block size %d is neither 512 nor 4096", subsystem, n, d.BlockSize)
	}
	if d.Size == 0 {
		d.Size = st.Size()
	}
	if d.Size > st.Size() || d.Size < uint64(d.BlockSize) || d.Size%uint64(d.BlockSize) != 0 {
		return fmt.Errorf("target %s namespace %d: size %d is not a multiple of %d up to the store's %d",
			subsystem, n, d.Size, d.BlockSize, st.Size())
	}
	if d.None() {
		d.Identity = Derive(subsystem, n)
	}
	return checkIdentity(d.Identity)
}

// Derive is the identity of a namespace that was given none.
func Derive(subsystem string, n uint32) nvme.Identity {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%d", subsystem, n))
	sum[6], sum[8] = sum[6]&0x0f|0x80, sum[8]&0x3f|0x80 // UUID version 8, RFC 9562
	u := hex.EncodeToString(sum[:16])
	return nvme.Identity{UUID: u[:8] + "-" + u[8:12] + "-" + u[12:16] + "-" + u[16:20] + "-" + u[20:],
		NGUID: hex.EncodeToString(sum[16:])}
}

// checkIdentity refuses what would be lost on the wire.
func checkIdentity(i nvme.Identity) error {
	d := nvme.Descriptors{Identity: i}
	back, err := nvme.ParseDescriptors(d.Append(nil))
	if err == nil && back.Identity != i {
		err = fmt.Errorf("target: %v: want a UUID with dashes, 32 digits of NGUID, 16 of EUI-64, in lower-case hex", i)
	}
	return err
}
