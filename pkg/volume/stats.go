package volume

import (
	"context"
	"fmt"

	"github.com/csi-mpath/csi-mpath/pkg/mount"
)

// Stats are a volume's numbers.
type Stats struct {
	// Size of the device, bytes.
	Size  int64
	Block bool
	// Usage of the file system; nil if it cannot be asked, and never was.
	Usage *mount.Stats
	Condition
}

// Condition is how a volume is, from the path table.
type Condition struct {
	// Abnormal: less than it should be; Inaccessible: no I/O gets through.
	Abnormal, Inaccessible bool
	Message                string
}

// Condition is Stats without any question to the file system. path may be empty.
func (n *Node) Condition(volume, path string) (Condition, error) {
	st, err := n.look(volume, path)
	if err != nil {
		return Condition{}, of(volume, "condition", err)
	}
	if st.dev == nil {
		return st.away(), nil
	}
	return st.condition(st.dev.Status()), nil
}

// Status is what a volume's device says of itself; false: nobody serves it now.
func (n *Node) Status(volume string) (Status, bool) {
	st := n.known(volume)
	if st == nil || st.dev == nil {
		return Status{}, false
	}
	return st.dev.Status(), true
}

// Generation is that of the tunables that a volume has; 0: nobody knows it.
func (n *Node) Generation(volume string) int64 {
	st := n.known(volume)
	if st == nil {
		return 0
	}
	return st.rec.Generation
}

// look finds a volume for who only reads.
func (n *Node) look(volume, path string) (*state, error) {
	if err := checkVolume(volume); err != nil {
		return nil, err
	}
	st, err := n.find(volume)
	if err == nil && (st == nil || path != "" && !st.at(path)) {
		err = fmt.Errorf("%w: it is not at %s", ErrNotFound, clip(path))
	}
	return st, err
}

// away is the condition of a volume that was served before. One that is being staged
// has nothing wrong with it (kubernetes#119293).
func (st *state) away() Condition {
	if st.fresh {
		return Condition{Message: "it is being staged"}
	}
	c := Condition{Abnormal: true, Inaccessible: true, Message: "it is being brought back"}
	if st.problem != nil {
		c.Message = st.problem.Error()
	}
	return c
}

// Stats reads a volume's numbers, and its condition from the path table. While no
// path works, no system call goes near the data: the usage is what it was last.
func (n *Node) Stats(ctx context.Context, volume, path string) (Stats, error) {
	st, err := n.look(volume, path)
	if err != nil {
		return Stats{}, of(volume, "stats", err)
	}
	out := Stats{Block: st.rec.Use.Block, Usage: st.usage}
	if st.dev == nil {
		out.Condition = st.away()
		return out, nil
	}
	s := st.dev.Status()
	out.Size = s.Size
	out.Condition = st.condition(s)
	if out.Block || out.Inaccessible {
		return out, nil
	}
	if !n.ask(volume) {
		return out, nil // another call does, and what it learns is enough
	}
	u, err := n.cfg.Mounts.Stats(ctx, st.rec.Use.Staging)
	n.asked(volume)
	if err != nil {
		out.Abnormal, out.Message = true, fmt.Sprintf("its file system cannot be asked: %v; %s", err, out.Message)
		return out, nil
	}
	out.Usage = &u
	if full(&u) && !full(st.usage) {
		n.event(volume, Full, "its file system has %d of %d bytes left", u.BytesFree, u.Bytes)
	}
	n.remember(volume, st.rec, &u)
	return out, nil
}

// full reports that less than a hundredth of a file system is left.
func full(u *mount.Stats) bool { return u != nil && u.Bytes > 0 && u.BytesFree < u.Bytes/100 }

// ask reports whether nobody asks a volume's file system now; asked ends that.
func (n *Node) ask(volume string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.asking[volume] {
		return false
	}
	n.asking[volume] = true
	return true
}

func (n *Node) asked(volume string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.asking, volume)
}

// at reports whether the volume is staged or published at a path.
func (st *state) at(path string) bool {
	_, published := st.rec.Published[path]
	return published || st.rec.Use.Staging == path && st.rec.Phase == phaseStaged
}

// remember keeps the usage for when it cannot be asked. It has no turn, so it
// changes only what is there as it was.
func (n *Node) remember(volume string, rec *record, u *mount.Stats) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if now := n.vols[volume]; now != nil && now.rec == rec {
		next := *now
		next.usage = u
		n.vols[volume] = &next
	}
}

// condition is what is wrong with a volume, in one line.
func (st *state) condition(s Status) Condition {
	switch {
	case st.rec.Revoked != "":
		return Condition{true, true, st.rec.Revoked}
	case s.Lost != "":
		return Condition{true, true, s.Lost}
	case s.Usable == 0:
		return Condition{true, true, fmt.Sprintf("none of %s; %d requests wait", describePaths(s), s.Held)}
	}
	down := 0
	for _, p := range s.Paths {
		if !p.Up {
			down++
		}
	}
	if down > 0 {
		return Condition{true, false, fmt.Sprintf("%d of %d paths work: %s", len(s.Paths)-down, len(s.Paths), describeDown(s))}
	}
	if s.InDoubt > 0 {
		return Condition{Message: fmt.Sprintf("%d paths work; %d writes of a lost one are being settled", len(s.Paths), s.InDoubt)}
	}
	return Condition{Message: fmt.Sprintf("%d paths work", len(s.Paths))}
}
