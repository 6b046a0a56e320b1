package rig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// PathStatus is what csi-mpath says of one path, as far as the rig needs it.
type PathStatus struct {
	Portal string `json:"portal"`
	State  string `json:"state"`
}

// stateUp is the state of a path that carries I/O.
const stateUp = "active"

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

// Table is the output of csi-mpath paths.
func (r *Rig) Table(ctx context.Context) (string, error) {
	return r.Run(ctx, "paths", "--state-dir", r.state)
}

// Status asks the product for its paths.
func (r *Rig) Status(ctx context.Context) ([]PathStatus, error) {
	out, err := r.Run(ctx, "paths", "--state-dir", r.state, "-o", "json")
	if err != nil {
		return nil, err
	}
	var doc []struct {
		Paths []PathStatus `json:"paths"`
	}
	if err := json.Unmarshal([]byte(out), &doc); err != nil {
		return nil, fmt.Errorf("csi-mpath paths -o json: %w in %.200q", err, out)
	}
	var all []PathStatus
	for _, v := range doc {
		all = append(all, v.Paths...)
	}
	return all, nil
}

// WaitUp waits until n paths carry I/O.
func (r *Rig) WaitUp(ctx context.Context, n int) error {
	return r.wait(ctx, upWithin, fmt.Sprintf("%d paths", n), func(all []PathStatus) bool {
		up := 0
		for _, p := range all {
			if p.State == stateUp {
				up++
			}
		}
		return up == n
	})
}

// WaitDown waits until the product has noticed that a path is lost.
func (r *Rig) WaitDown(ctx context.Context, lost *Path) error {
	return r.wait(ctx, downWithin, "the loss of path "+lost.Name, func(all []PathStatus) bool {
		for _, p := range all {
			if p.Portal == lost.Portal() {
				return p.State != stateUp
			}
		}
		return false
	})
}

// wait polls the product's own word. Its last answer is part of the error.
func (r *Rig) wait(ctx context.Context, limit time.Duration, what string, ok func([]PathStatus) bool) error {
	var all []PathStatus
	var err error
	late := until(ctx, limit, askEvery, what, func() bool {
		if r.Err() != nil {
			return true
		}
		all, err = r.Status(ctx)
		return err == nil && ok(all)
	})
	if gone := r.Err(); gone != nil {
		return gone
	}
	if late != nil {
		return errors.Join(fmt.Errorf("%w; paths are %v", late, all), err)
	}
	return nil
}
