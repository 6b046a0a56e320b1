package rig

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/datapath"
	"github.com/csi-mpath/csi-mpath/pkg/device"
)

// stateUp is the state of a path that carries I/O.
const stateUp = "live"

// Run runs a csi-mpath command and returns its standard output.
func (r *Rig) Run(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, pathsWithin)
	defer cancel()
	cmd := exec.CommandContext(ctx, r.opt.Bin, args...)
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err == nil {
		return string(out), nil
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	}
	return string(out), fmt.Errorf("csi-mpath %s: %w", args[0], err)
}

// Table is the output of csi-mpath paths, with more flags.
func (r *Rig) Table(ctx context.Context, more ...string) (string, error) {
	return r.Run(ctx, append([]string{"paths", "--state-dir", r.state}, more...)...)
}

// Status asks the product for its paths, the way csi-mpath paths does, but
// without a process each time: the load must not feel it.
func (r *Rig) Status() ([]datapath.PathStatus, error) {
	all, err := device.ReadStatus(r.state)
	if err != nil {
		return nil, err
	}
	if len(all) != 1 {
		return nil, fmt.Errorf("%d volumes answer in %s, want 1", len(all), r.state)
	}
	return all[0].Paths, nil
}

// WaitUp waits until n paths carry I/O.
func (r *Rig) WaitUp(ctx context.Context, n int) error {
	return r.wait(ctx, upWithin, fmt.Sprintf("%d paths", n), func(all []datapath.PathStatus) bool {
		up := 0
		for _, p := range all {
			if p.State == stateUp {
				up++
			}
		}
		return up == n
	})
}

// Connects is how often the product has connected a path so far.
func (r *Rig) Connects(ctx context.Context, path *Path) (uint64, error) {
	var n uint64
	err := r.wait(ctx, pathsWithin, "the status of path "+path.Name, func(all []datapath.PathStatus) bool {
		for _, p := range all {
			if p.Name == path.Portal() {
				n = p.Connects
				return true
			}
		}
		return false
	})
	return n, err
}

// WaitStates waits until the paths' states, sorted, are those.
func (r *Rig) WaitStates(ctx context.Context, want ...string) error {
	return r.wait(ctx, upWithin, "paths "+strings.Join(want, ", "), func(all []datapath.PathStatus) bool {
		var got []string
		for _, p := range all {
			got = append(got, p.State)
		}
		slices.Sort(got)
		return slices.Equal(got, want)
	})
}

// WaitBack waits until a path carries I/O on a connection after number before.
func (r *Rig) WaitBack(ctx context.Context, path *Path, before uint64) error {
	return r.wait(ctx, upWithin, "the return of path "+path.Name, func(all []datapath.PathStatus) bool {
		for _, p := range all {
			if p.Name == path.Portal() {
				return p.State == stateUp && p.Connects > before
			}
		}
		return false
	})
}

// WaitDown waits until the product has noticed that a path is lost.
func (r *Rig) WaitDown(ctx context.Context, lost *Path) error {
	return r.wait(ctx, downWithin, "the loss of path "+lost.Name, func(all []datapath.PathStatus) bool {
		for _, p := range all {
			if p.Name == lost.Portal() {
				return p.State != stateUp
			}
		}
		return false
	})
}

// wait polls the product's own word. Its last answer is part of the error.
func (r *Rig) wait(ctx context.Context, limit time.Duration, what string, ok func([]datapath.PathStatus) bool) error {
	var all []datapath.PathStatus
	var err error
	late := Until(ctx, limit, what, func() bool {
		if r.Err() != nil {
			return true
		}
		all, err = r.Status()
		return err == nil && ok(all)
	})
	if gone := r.Err(); gone != nil {
		return gone
	}
	if late != nil {
		return errors.Join(fmt.Errorf("%w; paths are %s", late, states(all)), err)
	}
	return nil
}

func states(all []datapath.PathStatus) string {
	var out []string
	for _, p := range all {
		out = append(out, strings.TrimSpace(p.Name+" "+p.State+" "+p.LastError))
	}
	return strings.Join(out, "; ")
}
