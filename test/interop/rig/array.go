package rig

import (
	"context"
	"errors"
	"os"

	"github.com/csi-mpath/csi-mpath/test/interop/tgt"
	"github.com/csi-mpath/csi-mpath/test/port"
)

// daemon is one controller of the array: a tgtd, or a target of our own.
type daemon interface {
	Portal() string
	Kill() // kill -9
	// Close kills it and gives up its port.
	Close() error
	// Restart starts it again on its old port, and waits until it serves.
	Restart(ctx context.Context) error
}

// array is two daemons over one file, which say that they are one target.
type array struct {
	a, b   daemon
	dir    string // scratch, removed by stop
	file   string
	target string
	unit   string    // LUN or namespace ID
	pair   *tgt.Pair // nil when the daemons are ours
}

func startArray(ctx context.Context, opt Options) (*array, error) {
	if opt.Own {
		return startOwn(ctx, opt)
	}
	p, err := tgt.StartPair(ctx, opt.Size, opt.Target)
	if err != nil {
		return nil, err
	}
	return &array{a: p.A, b: p.B, dir: p.Dir(), file: p.File, target: tgt.PairTarget, unit: "1", pair: p}, nil
}

func (x *array) stop() error {
	if x.pair != nil {
		return x.pair.Stop()
	}
	var errs []error
	for _, d := range []daemon{x.a, x.b} {
		if d != nil {
			errs = append(errs, d.Close())
		}
	}
	return errors.Join(append(errs, os.RemoveAll(x.dir))...)
}

// startOwn makes the file and two csi-mpath target processes over it.
func startOwn(ctx context.Context, opt Options) (_ *array, err error) {
	dir, err := scratch(uint64(opt.Size))
	if err != nil {
		return nil, err
	}
	x := &array{dir: dir, file: dir + "/lun", target: ownTarget, unit: "0"}
	config := ownConfig
	if opt.NVMe {
		x.target, x.unit, config = ownSubsystem, "1", ownNVMeConfig
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, x.stop())
		}
	}()
	if err := os.WriteFile(x.file, nil, 0o600); err != nil {
		return nil, err
	}
	if err := os.Truncate(x.file, opt.Size); err != nil {
		return nil, err
	}
	for i, d := range []*daemon{&x.a, &x.b} {
		held, err := port.Hold()
		if err != nil {
			return nil, err
		}
		*d = &ownDaemon{bin: opt.Bin, dir: dir, file: x.file, group: i + 1, portal: held, config: config, name: x.target}
		if err := (*d).Restart(ctx); err != nil {
			return nil, err
		}
	}
	return x, nil
}
