//go:build vm

package fabrics

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/csi-mpath/csi-mpath/test/vm/kmsg"
	"github.com/csi-mpath/csi-mpath/test/vm/rig"
)

const mib = 1 << 20

// The two ports of every array, and the name of every host.
var portals = [2]string{"127.0.0.1:4420", "127.0.0.2:4420"}

const (
	hostID  = "5b1e4c4a-6f0f-4c1c-9a65-3d1b6a1f0d01"
	hostNQN = "nqn.2014-08.org.nvmexpress:uuid:" + hostID
)

// array is a subsystem with one namespace of 64 MiB, NSID 1, behind two ports,
// which are one ANA group each way. Ports are counted from 0.
type array interface {
	nqn() string
	uuid() string // of the namespace
	// ana sets what the namespace's group is at a port: optimized,
	// non-optimized, inaccessible, change or persistent-loss.
	ana(port int, state string) error
	// remove closes a port with all its connections; restore opens it again.
	remove(port int) error
	restore(port int) error
	grow(size int64) error
	// demand lets in whoever has the host's secret; with one of its own it can
	// prove itself. "" is no authentication that way.
	demand(secret, ctrlSecret string) error
}

// options are a host's wishes.
type options struct {
	secret, ctrlSecret string // DHHC-1:…
	digests            bool
}

// host is a volume's other end.
type host interface {
	// attach connects both ports; the test's end disconnects them. An error is
	// what a user would see.
	attach(o options) error
	device() string
	wwid() (string, error) // "uuid.…"
	paths() ([2]path, error)
	detach() error
}

// path is what a host says of the way by one port.
type path struct {
	live  bool
	ana   string // as array.ana has it
	count int    // grows with what the path carries
}

// pair is who talks to whom.
type pair struct {
	name  string
	array func(t *testing.T) array
	host  func(t *testing.T, a array) host
}

var (
	ourHost    = pair{"our host", newNvmet, newOurs}
	ourTarget  = pair{"our target", newEstate, newKernel}
	kernelOnly = pair{"the kernel alone", newNvmet, newKernel}
)

func pairs() []pair {
	if os.Getenv("CSI_MPATH_LONG") != "" {
		return []pair{kernelOnly, ourHost, ourTarget}
	}
	return []pair{ourHost, ourTarget}
}

// subsystems are numbered: their names and namespaces are of one test only.
var subsystems int

func namespaceUUID(n int) string { return fmt.Sprintf("6e0c1b1e-3b55-4f4f-8d9b-%012d", n) }

// proving are the pairs of which both can do DH-HMAC-CHAP: none where the
// kernel cannot, as Debian's 6.1.
func proving() []pair {
	if !kernelProves() {
		return nil
	}
	return pairs()
}

// unable is our target under a kernel that cannot prove itself, if it is one.
func unable() []pair {
	if kernelProves() {
		return nil
	}
	return []pair{ourTarget}
}

func kernelProves() bool {
	probe := filepath.Join(configfs, "hosts", "nqn.2026-01.io.csi-mpath:probe")
	if err := os.Mkdir(probe, 0o755); err != nil {
		return false
	}
	defer func() { _ = os.Remove(probe) }()
	_, err := os.Stat(filepath.Join(probe, "dhchap_key"))
	return err == nil
}

// each tells a story for each of some pairs.
func each(t *testing.T, all []pair, story func(t *testing.T, a array, h host), allow ...*regexp.Regexp) {
	for _, p := range all {
		t.Run(p.name, func(t *testing.T) {
			kmsg.Watch(t, allow...)
			a := p.array(t)
			story(t, a, p.host(t, a))
		})
	}
}

// attached is attach with the paths up.
func attached(t *testing.T, h host, o options) {
	t.Helper()
	rig.Must(t, h.attach(o))
	states(t, h, "optimized", "optimized")
}

// states waits until both paths are in these ANA states; "" is a path that is
// not there.
func states(t *testing.T, h host, want ...string) {
	t.Helper()
	rig.Must(t, rig.Wait(fmt.Sprintf("the states %q", want), func() error {
		all, err := h.paths()
		if err != nil {
			return err
		}
		got := []string{"", ""}
		for i, p := range all {
			if p.live {
				got[i] = p.ana
			}
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("they are %+v", all)
		}
		return nil
	}))
}

// counts is for rig.Load.GoesBy.
func counts(h host) func() ([2]int, error) {
	return func() (n [2]int, _ error) {
		all, err := h.paths()
		for i, p := range all {
			n[i] = p.count
		}
		return n, err
	}
}
