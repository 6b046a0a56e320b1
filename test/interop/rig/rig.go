// Package rig puts the product between an array and NBD clients: below it two
// target daemons over one file, each behind a fault proxy. The daemons are
// Debian's tgt, which we did not write, or our own, which need no package.
package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/csi-mpath/csi-mpath/test/child"
	"github.com/csi-mpath/csi-mpath/test/interop/tgt"
)

// Bounds of what the rig waits for: several times what the product promises,
// for machines short of CPU.
const (
	attachWithin = time.Minute      // from start until every path is up
	upWithin     = time.Minute      // from the end of a fault until every path is up
	downWithin   = 30 * time.Second // from a fault until its path is out
	stopWithin   = time.Minute      // from SIGTERM until attach has ended
	pathsWithin  = 20 * time.Second // one call of csi-mpath paths
	pollEvery    = 20 * time.Millisecond
)

// Options describe a rig.
type Options struct {
	Bin  string   // the csi-mpath binary
	Size int64    // bytes of the volume
	Args []string // more flags for attach
	// OneWay is the latency of each path in each direction, as a network has it:
	// without it, most requests wait in the product's queue or in ours, and few
	// are on a path when it breaks.
	OneWay time.Duration
	// Up is how many paths must be up to begin with; 0 is all.
	Up int
	// Own takes csi-mpath target for the daemons, else it is tgt. NVMe has it serve,
	// and the product attach, over NVMe/TCP.
	Own, NVMe bool
	// Target changes each tgt daemon's configuration (Name is a, b); nil leaves it.
	Target func(*tgt.Config)
}

// Rig is a volume over two paths, served by a csi-mpath attach process.
type Rig struct {
	Paths  []*Path
	Socket string // of the NBD server
	Dir    string // scratch, removed by Stop

	opt    Options
	array  *array
	attach *child.Child
	state  string
}

// Start runs the daemons, the proxies and the product, and waits until its
// paths are up.
func Start(ctx context.Context, opt Options) (_ *Rig, err error) {
	bin, err := filepath.Abs(opt.Bin)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(bin); err != nil {
		return nil, fmt.Errorf("the csi-mpath binary is missing (make build): %w", err)
	}
	opt.Bin = bin
	x, err := startArray(ctx, opt)
	if err != nil {
		return nil, err
	}
	r := &Rig{opt: opt, array: x, Dir: x.dir, Socket: filepath.Join(x.dir, "nbd.sock"),
		state: filepath.Join(x.dir, "state")}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Stop())
		}
	}()
	for i, d := range []daemon{x.a, x.b} {
		p, err := newPath(string(rune('A'+i)), d, opt.OneWay)
		if err != nil {
			return nil, err
		}
		r.Paths = append(r.Paths, p)
	}
	if err := r.Attach(ctx); err != nil {
		return nil, err
	}
	return r, nil
}

// Attach starts the product and waits until its paths are up.
func (r *Rig) Attach(ctx context.Context) (err error) {
	var portals []string
	for _, p := range r.Paths {
		portals = append(portals, p.Portal())
	}
	which := []string{"--iscsi", "--target", "--lun"}
	if r.opt.NVMe {
		which = []string{"--nvme-tcp", "--subsystem", "--nsid"}
	}
	args := append([]string{"attach", which[0], strings.Join(portals, ","), which[1], r.array.target,
		which[2], r.array.unit, "--socket", r.Socket, "--state-dir", r.state}, r.opt.Args...)
	if r.attach, err = child.Start(child.Options{}, r.opt.Bin, args...); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, attachWithin)
	defer cancel()
	if r.opt.Up == 0 {
		return r.WaitUp(ctx, len(r.Paths))
	}
	return r.WaitUp(ctx, r.opt.Up)
}

// Detach ends the product with SIGTERM, which drains; an exit code other than
// 0 is an error.
func (r *Rig) Detach() error {
	if r.attach == nil {
		return nil
	}
	return r.attach.Stop(stopWithin)
}

// KillProduct is kill -9 of the product. Attach starts it again.
func (r *Rig) KillProduct() { r.attach.Kill() }

// Err is why the product has ended, nil while it runs.
func (r *Rig) Err() error {
	if r.attach.Alive() {
		return nil
	}
	return fmt.Errorf("csi-mpath attach ended by itself (%w): %s", r.attach.Wait(), r.attach.Output())
}

// Output is the end of what the product printed.
func (r *Rig) Output() string { return r.attach.Output() }

// PID is the product's process id.
func (r *Rig) PID() int { return r.attach.PID() }

// File is the backing file of the volume.
func (r *Rig) File() string { return r.array.file }

// Stop ends everything the rig started, and removes its files.
func (r *Rig) Stop() error {
	var err error
	if r.attach != nil && r.attach.Alive() {
		err = r.Detach()
	}
	for _, p := range r.Paths {
		p.close()
	}
	return errors.Join(err, r.array.stop())
}

// Until waits for a condition, polling it, bounded by limit.
func Until(ctx context.Context, limit time.Duration, what string, done func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited %v for %s: %w", limit, what, ctx.Err())
		case <-tick.C:
		}
	}
	return nil
}

// Pause lets d pass, or less when ctx ends.
func Pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
