package datapath

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"sync/atomic"
	"unsafe"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
)

// The ledger is what a restart needs for I3: which write-class requests are on
// which path and not answered, and which are in doubt. It may lie in a mapped
// file, so that it outlives the process; every word of it is written by one
// atomic store, so that a process killed at any instruction leaves a state
// that is true or errs to the side of "in doubt".
//
//	header   magic, version, key, geometry, a hash of each path's name
//	entries  MaxLanes × ledgerDepth, see entry
//	records  one per in-doubt range, see record
//
// Version 1 is the first. A ledger of an unknown version, or with a damaged
// header, is unreadable: then every write waits for the fences of all paths.
const (
	ledgerMagic   = 0x6d70_6c65_6467_6572 // "mpledger"
	ledgerVersion = 1
	ledgerDepth   = MaxDepth

	headerWords  = 512
	entriesAt    = headerWords * 8
	recordsAt    = entriesAt + MaxLanes*ledgerDepth*int(unsafe.Sizeof(entry{}))
	maxRecords   = 16384
	LedgerSize   = recordsAt + maxRecords*int(unsafe.Sizeof(record{})) // bytes
	wordMagic    = 0
	wordVersion  = 1
	wordKey      = 2
	wordOverflow = 3  // records ran out: what is in doubt is not all written down
	wordRecords  = 4  // records ever used: those beyond were never touched
	wordCache    = 5  // see cacheMark
	wordPaths    = 8  // MaxPaths hashes of path names
	wordDepths   = 64 // MaxLanes: slots ever used of each lane
)

// record is one in-doubt range. Written under the doubt registry's lock; use
// is stored last.
type record struct {
	off  atomic.Uint64
	meta atomic.Uint64 // length in the low 32 bits (see toTheEnd), operation above
	from atomic.Uint64 // lane<<32 | slot of the request, to tell requests apart
	use  atomic.Uint64 // 0 free; else path index | state<<16 | 1<<32
}

// toTheEnd is the length of a range that has none: everything is in doubt. No
// request is as long, for lengths are whole blocks.
const toTheEnd = 0xffffffff

func (r *record) set(e *doubt, path int) {
	r.off.Store(e.off)
	r.meta.Store(uint64(e.op)<<32 | min(e.end-e.off, toTheEnd))
	r.from.Store(e.from)
	r.use.Store(1<<32 | uint64(e.state)<<16 | uint64(path))
}

func (r *record) setState(s doubtState) {
	r.use.Store(r.use.Load()&^(0xff<<16) | uint64(s)<<16)
}

// ledger is the mapped or heap memory behind all that.
type ledger struct {
	words   []atomic.Uint64
	entries []entry
	records []record
	free    []uint32 // records given back; under the doubt registry's lock
}

// newLedger lays a ledger over mem (LedgerSize bytes, 8-byte aligned), or over
// fresh memory when mem is nil.
func newLedger(mem []byte) (*ledger, error) {
	if mem == nil {
		// Words, for the alignment.
		w := make([]uint64, LedgerSize/8)
		mem = unsafe.Slice((*byte)(unsafe.Pointer(&w[0])), LedgerSize)
	}
	base := unsafe.Pointer(unsafe.SliceData(mem))
	if len(mem) != LedgerSize || uintptr(base)%8 != 0 {
		return nil, fmt.Errorf("the in-flight table has %d bytes, want %d", len(mem), LedgerSize)
	}
	g := &ledger{
		words:   unsafe.Slice((*atomic.Uint64)(base), headerWords),
		entries: unsafe.Slice((*entry)(unsafe.Add(base, entriesAt)), MaxLanes*ledgerDepth),
		records: unsafe.Slice((*record)(unsafe.Add(base, recordsAt)), maxRecords),
	}
	return g, nil
}

// lane is the part of the entries that belongs to one lane.
// Opening a lane is under the device's control lock.
func (g *ledger) lane(id uint32, depth int) []entry {
	w := &g.words[wordDepths+int(id)]
	w.Store(max(w.Load(), uint64(depth))) // before the first entry is used
	at := int(id) * ledgerDepth
	return g.entries[at : at+depth]
}

func nameHash(name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return h.Sum64()
}

// inherited is one thing a dead process left in doubt.
type inherited struct {
	op       blk.Op
	off, end uint64
	from     uint64
	path     int // index among the paths now, -1 when it is none of them
	state    doubtState
}

// inherit reads what a predecessor left, and makes the ledger ours. ok is false
// when it can not be read. replays says that requests not answered come again.
func (g *ledger) inherit(key uint64, names []string, replays bool) (left []inherited, ok bool) {
	defer func() { g.reset(key, names, !ok) }()
	magic := g.words[wordMagic].Load()
	if magic == 0 && g.blank() {
		return nil, true
	}
	if magic != ledgerMagic || g.words[wordVersion].Load() != ledgerVersion || g.words[wordOverflow].Load() != 0 {
		g.words[wordCache].Store(1) // something may be unflushed
		return nil, false
	}
	if g.words[wordKey].Load() != key {
		g.words[wordCache].Store(0)
		return nil, true // another boot or another volume: nothing of ours
	}
	open := unsettled
	if replays {
		open = pending
	}
	g.eachEntry(func(i int) {
		if in, used := g.readEntry(i, names, open); used {
			left = append(left, in)
		}
	})
	for i := range g.usedRecords() {
		if in, used := g.readRecord(i, names, open); used {
			left = append(left, in)
		}
	}
	return left, true
}

// eachEntry visits the entries ever used; the others are not even read, so
// that a sparse file stays sparse.
func (g *ledger) eachEntry(visit func(i int)) {
	for lane := range MaxLanes {
		depth := min(g.words[wordDepths+lane].Load(), ledgerDepth)
		for k := range int(depth) {
			visit(lane*ledgerDepth + k)
		}
	}
}

func (g *ledger) usedRecords() []record {
	return g.records[:min(g.words[wordRecords].Load(), maxRecords)]
}

// blank reports that the header was never written.
func (g *ledger) blank() bool {
	for i := range g.words {
		if g.words[i].Load() != 0 {
			return false
		}
	}
	return true
}

func (g *ledger) readEntry(i int, names []string, open doubtState) (in inherited, used bool) {
	e := &g.entries[i]
	st := e.state.Load()
	if st == 0 {
		return in, false
	}
	off, meta := e.off.Load(), e.meta.Load()
	return inherited{op: blk.Op(meta >> 32), off: off, end: off + meta&0xffffffff, state: open,
		from: uint64(i/ledgerDepth)<<32 | uint64(i%ledgerDepth), path: g.pathIndex(int(st>>32), names)}, true
}

func (g *ledger) readRecord(i int, names []string, open doubtState) (in inherited, used bool) {
	r := &g.records[i]
	use := r.use.Load()
	if use == 0 {
		return in, false
	}
	state := doubtState(use >> 16)
	if state == pending {
		state = open
	}
	off, meta := r.off.Load(), r.meta.Load()
	end := off + meta&0xffffffff
	if meta&0xffffffff == toTheEnd {
		end = ^uint64(0)
	}
	return inherited{op: blk.Op(meta >> 32), off: off, end: end, state: state,
		from: r.from.Load(), path: g.pathIndex(int(use&0xffff), names)}, true
}

// pathIndex finds the path that had the given index in the dead process.
func (g *ledger) pathIndex(was int, names []string) int {
	if was >= MaxPaths {
		return -1
	}
	h := g.words[wordPaths+was].Load()
	for i, n := range names {
		if nameHash(n) == h {
			return i
		}
	}
	return -1
}

// reset makes the ledger empty and ours. The order keeps a process killed in
// the middle on the safe side: without magic the ledger is unreadable, not empty.
// all: what was ever used is not known, so every word is cleared: a stale entry
// would be a write in flight for ever.
func (g *ledger) reset(key uint64, names []string, all bool) {
	g.words[wordVersion].Store(ledgerVersion)
	g.words[wordMagic].Store(^uint64(0))
	if all {
		for lane := range MaxLanes {
			g.words[wordDepths+lane].Store(ledgerDepth)
		}
		g.words[wordRecords].Store(maxRecords)
	}
	g.eachEntry(func(i int) { g.entries[i].state.Store(0) })
	used := g.usedRecords()
	for i := range used {
		used[i].use.Store(0)
	}
	for lane := range MaxLanes {
		g.words[wordDepths+lane].Store(0)
	}
	g.words[wordRecords].Store(0)
	g.free = nil
	for i := range MaxPaths {
		h := uint64(0)
		if i < len(names) {
			h = nameHash(names[i])
		}
		g.words[wordPaths+i].Store(h)
	}
	g.words[wordOverflow].Store(0)
	g.words[wordKey].Store(key)
}

// commit makes the ledger valid, once what was inherited is written down again.
func (g *ledger) commit() { g.words[wordMagic].Store(ledgerMagic) }

// note writes a doubt down. Under the registry's lock.
func (g *ledger) note(e *doubt, path int) {
	i := uint32(g.words[wordRecords].Load())
	switch n := len(g.free); {
	case n > 0:
		i = g.free[n-1]
		g.free = g.free[:n-1]
	case i < maxRecords:
		g.words[wordRecords].Store(uint64(i) + 1)
	default:
		g.words[wordOverflow].Store(1)
		return
	}
	e.rec, e.recIndex = &g.records[i], i
	e.rec.set(e, path)
}

// forget takes a doubt off the ledger. Under the registry's lock.
func (g *ledger) forget(e *doubt) {
	if e.rec == nil {
		return
	}
	e.rec.use.Store(0)
	g.free = append(g.free, e.recIndex)
	e.rec = nil
}

// LedgerKey binds a ledger to a volume and a boot: any text that names both.
func LedgerKey(text string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, ledgerVersion))
	_, _ = h.Write([]byte(text))
	return h.Sum64()
}
