// Package volume is the node side of a volume's life: it stages, publishes,
// expands, unstages and recovers one volume at a time, whatever happened before.
//
// Every verb is convergent: called again with the same arguments, five times at
// once, or after it was killed half way, it ends in the same state. What is known
// of a volume is written down before the first step that leaves something
// behind, and removed after the last.
//
// It owns the interface of what opens devices (DeviceOpener) and knows neither
// protocols nor CSI.
package volume

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/csi-mpath/csi-mpath/pkg/durable"
	"github.com/csi-mpath/csi-mpath/pkg/mount"
	"github.com/csi-mpath/csi-mpath/pkg/tunable"
	"github.com/csi-mpath/csi-mpath/pkg/volume/attrs"
)

// Points are the fault points of this package, in the order of a volume's life.
var Points = []string{"volume.stage.recorded", "volume.stage.opened", "volume.stage.mounted", "volume.stage.staged",
	"volume.publish.recorded", "volume.publish.bound", "volume.unpublish.unmounted", "volume.unpublish.recorded",
	"volume.unstage.marked", "volume.unstage.unmounted", "volume.unstage.flushed", "volume.unstage.settled",
	"volume.unstage.detached", "volume.unstage.closed", "volume.unstage.forgotten"}

// Config is what a node works with.
type Config struct {
	// State is a directory of this node's own, on a file system in memory; what is
	// in it counts for one boot.
	State string
	// Boot is this boot of the machine; empty means durable.BootID.
	Boot    string
	Devices DeviceOpener
	Mounts  *mount.Host
	// Events is told what happened to volumes; it must not block. It may be nil.
	Events func(Event)
}

// Event is something that happened to a volume.
type Event struct {
	Volume  string
	Kind    EventKind
	Message string // for people
}

// EventKind says what happened.
type EventKind string

// What may happen.
const (
	FilesystemRepaired EventKind = "FilesystemRepaired"
	FilesystemMade     EventKind = "FilesystemMade"
	Revoked            EventKind = "Fenced"
	Damaged            EventKind = "RecordDamaged"
	NotRecovered       EventKind = "RecoveryDelayed"
	Unfenced           EventKind = "FencingOff"
	NotTuned           EventKind = "NotTuned"
	Full               EventKind = "VolumeFull"
)

// Node is the volumes of one node. Its methods may be called from any goroutine.
type Node struct {
	cfg   Config
	vault *vault

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup // of recoveries, and of stages that go on alone

	mu sync.Mutex // guards what follows; never held across a wait
	// vols are the volumes; states are immutable, and replaced by who holds the
	// volume's operation. A stale one is one step behind.
	vols map[string]*state
	// broken are files that could not be read, by name.
	broken map[string]error
	ops    map[string]*op  // what is in progress, by volume
	asking map[string]bool // whose file systems are asked for their numbers
	closed bool
	// shutdown: the machine goes down.
	shutdown bool
}

// state is a volume at one moment. Never changed once it is in Node.vols.
type state struct {
	rec      *record
	attached attrs.Attachment
	settings tunable.Settings
	secrets  Secrets
	dev      Device // nil: not open
	problem  error  // why
	fresh    bool   // it was never opened
	usage    *mount.Stats
}

// Open reads what an earlier process left. Recover brings it back.
func Open(cfg Config) (*Node, error) {
	if cfg.Boot == "" {
		cfg.Boot = durable.BootID()
	}
	if cfg.Boot == "" || cfg.State == "" || cfg.Devices == nil || cfg.Mounts == nil {
		return nil, errors.New("a node needs a boot ID, a state directory, devices and mounts")
	}
	if cfg.Events == nil {
		cfg.Events = func(Event) {}
	}
	if err := durable.Own(cfg.State); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	if err := durable.Sweep(cfg.State); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	v, err := openVault(cfg.State)
	if err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	n := &Node{cfg: cfg, vault: v, vols: map[string]*state{}, broken: map[string]error{}, ops: map[string]*op{}, asking: map[string]bool{}}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	return n, n.readRecords()
}

// Close ends this process's part: block devices and mounts stay, for the next
// process to take over (I8).
func (n *Node) Close(ctx context.Context) error {
	n.mu.Lock()
	n.closed = true
	left := make([]Device, 0, len(n.vols))
	for _, st := range n.vols {
		if st.dev != nil {
			left = append(left, st.dev)
		}
	}
	n.mu.Unlock()
	n.cancel()
	n.wg.Wait()
	var errs []error
	for _, d := range left {
		errs = append(errs, d.Leave(ctx))
	}
	return errors.Join(errs...)
}

// Volumes lists what is known, in no order.
func (n *Node) Volumes() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := make([]string, 0, len(n.vols))
	for id := range n.vols {
		out = append(out, id)
	}
	return out
}

// find is nil if a volume is unknown, and an error if its file was not readable.
func (n *Node) find(volume string) (*state, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.broken[durable.FileName(volume)]; err != nil {
		return nil, fmt.Errorf("%w: %w", ErrState, err)
	}
	return n.vols[volume], nil
}

// known is find for who needs no record: nil, too, if it was not readable.
func (n *Node) known(volume string) *state {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.vols[volume]
}

// keep makes st what is known of its volume; drop forgets one.
func (n *Node) keep(st *state) *state {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.vols[st.rec.Volume] = st
	return st
}

func (n *Node) drop(volume string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.vols, volume)
	delete(n.broken, durable.FileName(volume))
}

// record writes what change makes of a volume's record, and keeps it.
func (n *Node) record(st *state, change func(*record)) (*state, error) {
	next := *st
	next.rec = st.rec.clone()
	change(next.rec)
	if err := next.rec.write(n.cfg.State); err != nil {
		return st, err
	}
	return n.keep(&next), nil
}

// with is st with what change says, kept.
func (n *Node) with(st *state, change func(*state)) *state {
	next := *st
	change(&next)
	return n.keep(&next)
}

func (n *Node) event(volume string, kind EventKind, format string, args ...any) {
	n.cfg.Events(Event{Volume: volume, Kind: kind, Message: fmt.Sprintf(format, args...)})
}
