package nvme

import (
	"errors"
	"fmt"
)

// Bits of Namespace fields.
const (
	FeatureThin    = 1 << 0 // NSFEAT: thin provisioning
	FeatureAtomics = 1 << 1 // NSFEAT: NAWUPF is the namespace's own
	FeatureOptimal = 1 << 4 // NSFEAT: NPWG .. NOWS are reported

	SharedNamespace = 1 << 0 // NMIC

	// DeallocatedZero is DLFEAT 2:0: deallocated blocks read as zeroes.
	DeallocatedZero = 1
	// DeallocateZeroes is DLFEAT bit 3: Write Zeroes takes Deallocate.
	DeallocateZeroes = 1 << 3

	// ReserveAll are all types of reservation in RESCAP; ReserveIgnore adds "ignore
	// existing key" of 1.3 and later; bit 0 is persistence through power loss.
	ReserveAll    = 0x7E
	ReserveIgnore = 1 << 7
)

// Namespace is Identify Namespace of the NVM command set (NVM 4.1.5.1).
type Namespace struct {
	Size, Capacity, Used uint64 // blocks
	Features             uint8  // NSFEAT
	BlockShift           uint8  // LBADS of the format in use
	Metadata             uint16 // bytes per block of the format in use
	Protection           uint8  // DPS
	Shared               bool
	Reservations         uint8  // RESCAP
	Deallocate           uint8  // DLFEAT
	AtomicPower          uint16 // NAWUPF, blocks, 0's based
	Boundary             uint16 // NOIOB, blocks; 0 none
	WriteGranule         uint16 // NPWG, blocks, 0's based
	DeallocateGranule    uint16 // NPDG, blocks, 0's based
	OptimalWrite         uint16 // NOWS, blocks, 0's based
	Group                uint32 // ANAGRPID; 0: none
	WriteProtected       bool   // NSATTR bit 0
	NGUID                [16]byte
	EUI64                [8]byte
}

var errNoNamespace = errors.New("nvme: the namespace is not active")

// ErrNoNamespace reports whether err says that a namespace number is not in use.
func ErrNoNamespace(err error) bool {
	return errors.Is(err, errNoNamespace) || errors.Is(err, InvalidNamespace)
}

// ParseNamespace reads the structure, IdentifyLen bytes. All zeroes is how a
// controller says that the namespace is not active: see ErrNoNamespace.
func ParseNamespace(b []byte) (n Namespace, err error) {
	if len(b) < IdentifyLen {
		return n, cut("Identify Namespace", len(b), IdentifyLen)
	}
	if le.Uint64(b) == 0 && le.Uint64(b[8:]) == 0 && b[25] == 0 && le.Uint32(b[128:]) == 0 {
		return n, errNoNamespace
	}
	n = Namespace{
		Size: le.Uint64(b), Capacity: le.Uint64(b[8:]), Used: le.Uint64(b[16:]), Features: b[24],
		Protection: b[29] & 7, Shared: b[30]&SharedNamespace != 0, Reservations: b[31], Deallocate: b[33],
		AtomicPower: le.Uint16(b[36:]), Boundary: le.Uint16(b[46:]), WriteGranule: le.Uint16(b[64:]),
		DeallocateGranule: le.Uint16(b[68:]), OptimalWrite: le.Uint16(b[72:]), Group: le.Uint32(b[92:]),
		WriteProtected: b[99]&1 != 0, NGUID: [16]byte(b[104:]), EUI64: [8]byte(b[120:]),
	}
	return n, n.format(b)
}

// format reads the LBA format in use and refuses what cannot be a disk.
func (n *Namespace) format(b []byte) error {
	i := int(b[26] & 0xF)
	if b[25] > 16 {
		i |= int(b[26]>>5&3) << 4
	}
	if i > int(b[25]) || i > 63 {
		return fmt.Errorf("nvme: LBA format %d of %d is in use", i, int(b[25])+1)
	}
	f := le.Uint32(b[128+4*i:])
	n.Metadata, n.BlockShift = uint16(f), uint8(f>>16)
	if n.BlockShift < minBlockShift || n.BlockShift > maxBlockShift {
		return fmt.Errorf("nvme: blocks of 2^%d bytes: want 2^%d..2^%d", n.BlockShift, minBlockShift, maxBlockShift)
	}
	if n.Size == 0 || n.Size >= 1<<(63-n.BlockShift) {
		return fmt.Errorf("nvme: a namespace of %d blocks of %d bytes is empty or beyond 2^63 bytes", n.Size, n.BlockSize())
	}
	return nil
}

// BlockSize in bytes.
func (n *Namespace) BlockSize() uint32 { return 1 << n.BlockShift }

// Bytes is the namespace's size. Parsers refuse what would not fit.
func (n *Namespace) Bytes() uint64 { return n.Size << n.BlockShift }

// Append appends the structure, IdentifyLen bytes, with one LBA format.
func (n *Namespace) Append(b []byte) []byte {
	at := len(b)
	b = append(b, make([]byte, IdentifyLen)...)
	f := b[at:]
	le.PutUint64(f, n.Size)
	le.PutUint64(f[8:], n.Capacity)
	le.PutUint64(f[16:], n.Used)
	f[24], f[29], f[31], f[33] = n.Features, n.Protection&7, n.Reservations, n.Deallocate
	if n.Shared {
		f[30] = SharedNamespace
	}
	le.PutUint16(f[36:], n.AtomicPower)
	le.PutUint16(f[46:], n.Boundary)
	le.PutUint16(f[64:], n.WriteGranule)
	le.PutUint16(f[68:], n.DeallocateGranule)
	le.PutUint16(f[72:], n.OptimalWrite)
	le.PutUint32(f[92:], n.Group)
	if n.WriteProtected {
		f[99] = 1
	}
	copy(f[104:], n.NGUID[:])
	copy(f[120:], n.EUI64[:])
	le.PutUint32(f[128:], uint32(n.Metadata)|uint32(n.BlockShift)<<16)
	return b
}

// ParseActive reads an active namespace list and appends it to dst. The
// numbers must rise; a full list means ask again behind its last.
func ParseActive(dst []uint32, b []byte) ([]uint32, error) {
	last := uint32(0)
	for i := 0; len(b) >= 4 && i < MaxListed; i, b = i+1, b[4:] {
		v := le.Uint32(b)
		if v == 0 {
			break
		}
		if v <= last || v >= 0xFFFFFFFE {
			return dst, fmt.Errorf("nvme: namespace %d follows %d in the active list", v, last)
		}
		dst, last = append(dst, v), v
	}
	return dst, nil
}

// AppendActive appends an active namespace list, IdentifyLen bytes; ids rise
// and are at most MaxListed.
func AppendActive(b []byte, ids ...uint32) []byte {
	return appendList(b, ids[:min(len(ids), MaxListed)])
}
