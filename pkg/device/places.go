package device

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csi-mpath/csi-mpath/pkg/datapath"
	"github.com/csi-mpath/csi-mpath/pkg/durable"
)

// placesVersion is the format of the file of places. Version 1 is the first.
const placesVersion = 1

// place is where a path's latest session was.
//
// iSCSI: under which ISID. Until Settled, nanoseconds of the machine's clock
// since it booted, the tasks of earlier sessions elsewhere may be alive.
//
// NVMe: how long, nanoseconds, any controller so far may outlive its connections.
type place struct {
	ISID    string `json:"isid,omitempty"`
	Address string `json:"address"` // as connected, host:port
	TPGT    uint16 `json:"tpgt,omitempty"`
	Settled int64  `json:"settledBootNanoseconds,omitempty"`
	Fence   int64  `json:"fenceNanoseconds,omitempty"`
}

// placesFile is what the file holds, by portal. It counts for one boot.
type placesFile struct {
	Version int              `json:"version"`
	Boot    string           `json:"bootID"`
	Places  map[string]place `json:"places"`
}

// places keeps where a volume's sessions were, for the process after this one:
// only a login at the same place ends what a dead process left there (I3). One
// file per volume, so that a thousand of them do not write one.
//
// A place is written before its session carries the first command. A kill is
// what it must survive, not a power cut: after that nothing is in doubt.
type places struct {
	path string
	boot string

	mu   sync.Mutex
	was  map[string]place // as in the file
	lost bool             // the file could not be read: everything may have been anywhere
}

// openPlaces reads what the process before left.
func openPlaces(path string) *places {
	p := &places{path: path, boot: durable.BootID(), was: map[string]place{}}
	f, err := readPlaces(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		p.lost = true
	case f.Boot == p.boot:
		p.was = f.Places
	}
	return p
}

func readPlaces(path string) (f placesFile, err error) {
	b, err := durable.Read(path, maxStateFile)
	if err != nil {
		return f, err
	}
	if f, err = parsePlaces(b); err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return f, err
}

func parsePlaces(b []byte) (f placesFile, err error) {
	if err := json.Unmarshal(b, &f); err != nil {
		return f, err
	}
	if f.Version != placesVersion || len(f.Places) > datapath.MaxPaths || f.Places == nil {
		return f, fmt.Errorf("version %d with %d places", f.Version, len(f.Places))
	}
	for portal, at := range f.Places {
		if _, _, err := net.SplitHostPort(at.Address); err != nil || len(portal) > maxPortalName {
			return f, fmt.Errorf("%q is no place", at.Address)
		}
		if at.Fence < 0 || at.Fence > int64(maxFence) {
			return f, fmt.Errorf("%d ns are no fence of %q", at.Fence, at.Address)
		}
	}
	return f, nil
}

// get returns where the latest session of a path was that used isid, as far as
// it is known, and how long, up to bound, earlier ones may be alive elsewhere.
func (p *places) get(portal string, isid [6]byte, bound time.Duration) (g group, elsewhere time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, ok := p.was[portal]
	switch {
	case !ok && !p.lost:
		return g, 0
	case p.lost, at.ISID != hex.EncodeToString(isid[:]):
		return g, bound // a login under another ISID reinstates nothing
	}
	left := time.Duration(at.Settled) - sinceBoot()
	return group{known: true, address: at.Address, tpgt: at.TPGT}, min(max(left, 0), bound)
}

// fence is the longest that an NVMe controller of the volume may outlive its
// connections, as far as is known; 0: none was ever there. lost: there were some,
// and nothing is known of them.
func (p *places) fence() (longest time.Duration, lost bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, at := range p.was {
		longest = max(longest, time.Duration(at.Fence))
	}
	return longest, p.lost
}

// sinceBoot is a clock that all processes of one boot share.
func sinceBoot() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) // never fails with a clock that exists
	return time.Duration(ts.Nano())
}

// put writes down where a session is, unless that is known. Places of portals
// that the volume no longer has go.
func (p *places) put(portal string, at place, portals []string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if was, ok := p.was[portal]; ok && was == at && !p.lost {
		return nil
	}
	next := placesFile{Version: placesVersion, Boot: p.boot, Places: map[string]place{portal: at}}
	for _, o := range portals {
		if was, ok := p.was[o]; ok && o != portal {
			next.Places[o] = was
		} else if p.lost && o != portal {
			next.Places[o] = place{Address: o} // of no ISID: it may have been anywhere
		}
	}
	if err := replaceFile(p.path, next); err != nil {
		return fmt.Errorf("where the session is can not be written down: %w", err)
	}
	p.was, p.lost = next.Places, false
	return nil
}
