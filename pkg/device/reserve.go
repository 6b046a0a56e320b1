package device

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/csi-mpath/csi-mpath/pkg/durable"
)

// Who may write to a volume that is fenced by reservation (I9), as decisions over
// what its storage says: pure.
//
// Every path (over NVMe: the host) registers a key of its own, and one of them
// holds a reservation that shuts out whoever is not registered. All keys of one
// opening are of one family, drawn at random, so that an opening knows its own.
//
// Two orders make this safe against another node that does the same at any moment:
//   - a taker becomes the holder first, and then reads the keys and removes those
//     of others, until it reads none;
//   - a path that comes later registers first, then reads the holder, and carries
//     nothing unless that is its own.
//
// A key registered before the other took the reservation is removed by the other;
// one registered after it finds that it is not the holder.

// key is a registration's key: the family, and in the low 16 bits which of it.
type key uint64

// memberBits are the bits of a key that tell the members of a family apart.
const memberBits = 16

func (k key) family() key { return k >> memberBits << memberBits }

// member is one key of k's family, 1 and up.
func (k key) member(n uint16) key { return k.family() | key(n) }

// registry is what the storage says: who holds the volume, and then, who is
// registered with it.
type registry struct {
	held bool
	// shared: every registrant holds it; holder is 0 then.
	shared bool
	holder key
	// fits: the reservation is of the type that we take.
	fits bool
	keys []key
}

// foreign is the first key that is not of the family; 0: none.
func (r *registry) foreign(family key) key {
	if i := slices.IndexFunc(r.keys, func(k key) bool { return k.family() != family }); i >= 0 {
		return r.keys[i]
	}
	return 0
}

// count is how many are registered with a key.
func (r *registry) count(k key) (n int) {
	for _, o := range r.keys {
		if o == k {
			n++
		}
	}
	return n
}

// ours reports whether the family holds the volume.
func (r *registry) ours(family key) bool {
	return r.held && !r.shared && r.fits && r.holder.family() == family
}

// theirs reports whether somebody else holds it.
func (r *registry) theirs(family key) bool { return r.held && !r.ours(family) }

// action is what a path does next.
type action uint8

const (
	actDone       action = iota
	actRegister          // its key, whatever was registered by it before
	actReserve           // become the holder; conflicts when somebody is
	actPreempt           // remove a key; take the reservation if that held it; end what it sent
	actRelease           // end the reservation
	actUnregister        // its key
	actLost              // the volume is another's
)

// step is an action, the key it is about, and for actLost why.
type step struct {
	do  action
	key key
	why string
}

func lost(format string, args ...any) step {
	return step{do: actLost, why: fmt.Sprintf(format, args...)}
}

// claim is what one path has done so far.
type claim struct {
	mine       key
	registered bool
	released   bool
}

// take is the next step of an opening that keeps everybody else out. careful: a
// process before may have got far, so that whoever holds it came later.
func (c *claim) take(r *registry, careful bool) step {
	family := c.mine.family()
	switch {
	case careful && r.theirs(family):
		return lost("%s", heldBy(r))
	case !c.registered:
		return step{do: actRegister, key: c.mine}
	case !slices.Contains(r.keys, c.mine):
		return lost("another node took the volume at the same time")
	case r.theirs(family):
		return step{do: actPreempt, key: r.holder}
	case !r.held:
		return step{do: actReserve}
	}
	if k := r.foreign(family); k != 0 {
		return step{do: actPreempt, key: k}
	}
	return step{}
}

// keep is the next step of a path that comes to a volume that is taken, or looks
// whether it still is. joins: the path is new, and registers in any case. proven
// says of a key of ours whether it has been there all the time: while one is, nobody
// took the volume in between, since whoever takes it removes them all.
func (c *claim) keep(r *registry, joins bool, proven func(key) bool) step {
	family := c.mine.family()
	switch {
	case r.theirs(family):
		return lost("%s", heldBy(r))
	case !r.held && !slices.ContainsFunc(r.keys, func(k key) bool { return k.family() == family && proven(k) }):
		return lost("the storage knows nothing of this node's reservation any more: it has forgotten it, or another node has had the volume since")
	case !c.registered && (joins || !slices.Contains(r.keys, c.mine)):
		return step{do: actRegister, key: c.mine}
	case !slices.Contains(r.keys, c.mine):
		return lost("another node removed this node's registration")
	case !r.held:
		return step{do: actReserve}
	}
	return step{}
}

// leave is the next step of a path that ends the family's part, that of dead paths
// included.
func (c *claim) leave(r *registry) step {
	family := c.mine.family()
	own := func(k key) bool { return k.family() == family }
	here := slices.Contains(r.keys, c.mine)
	switch {
	case !slices.ContainsFunc(r.keys, own):
		return step{}
	case r.theirs(family) && here:
		return step{do: actUnregister, key: c.mine}
	case r.theirs(family):
		return step{}
	case !here:
		return step{do: actRegister, key: c.mine}
	}
	if i := slices.IndexFunc(r.keys, func(k key) bool { return own(k) && k != c.mine }); i >= 0 {
		return step{do: actPreempt, key: r.keys[i]}
	}
	switch {
	case r.held && c.released: // a lost session of the same path holds it (tgt)
		c.released = false
		return step{do: actPreempt, key: c.mine}
	case r.held:
		c.released = true
		return step{do: actRelease}
	case r.count(c.mine) > 1: // so is one registered
		return step{do: actPreempt, key: c.mine}
	}
	return step{do: actUnregister, key: c.mine}
}

// heldBy says who holds the volume.
func heldBy(r *registry) string {
	if r.shared {
		return "others hold it by a shared reservation"
	}
	return fmt.Sprintf("another node holds it, with the reservation key %#x", uint64(r.holder))
}

// hold is how far an opening is.
type hold string

const (
	holdTaking hold = "taking" // nothing was written yet
	holdHeld   hold = "held"
	holdLost   hold = "lost"
)

// reservationVersion is the format of the file of a volume's reservation. Version
// 1 is the first.
const reservationVersion = 1

// reservationFile is what the process after this one must know: as whom the
// volume is held. It counts for one boot.
type reservationFile struct {
	Version int    `json:"version"`
	Boot    string `json:"bootID"`
	Family  string `json:"family"` // 16 hexadecimal digits, the last 4 of them 0
	Hold    hold   `json:"hold"`
	Why     string `json:"why,omitempty"` // it is lost
	// Owes: others were removed, and the storage has not said that what they had
	// sent is over.
	Owes bool `json:"owes,omitempty"`
}

// parseReservation reads such a file. ok false: it is of another boot.
func parseReservation(b []byte) (f reservationFile, family key, ok bool, err error) {
	if err := json.Unmarshal(b, &f); err != nil {
		return f, 0, false, err
	}
	if f.Version != reservationVersion {
		return f, 0, false, fmt.Errorf("version %d, this program reads %d", f.Version, reservationVersion)
	}
	if family, err = parseFamily(f.Family); err != nil {
		return f, 0, false, err
	}
	switch f.Hold {
	case holdTaking, holdHeld, holdLost:
		return f, family, f.Boot == durable.BootID(), nil
	}
	return f, 0, false, fmt.Errorf("%q is not how a volume is held", f.Hold)
}

// parseFamily reads 16 hexadecimal digits.
func parseFamily(s string) (key, error) {
	v, err := strconv.ParseUint(s, 16, 64)
	k := key(v)
	if err != nil || len(s) != 16 || k == 0 || k != k.family() {
		return 0, fmt.Errorf("%q is no family of keys", s)
	}
	return k, nil
}
