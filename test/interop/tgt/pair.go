package tgt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// PairTarget is the name both daemons of a pair give their target.
const PairTarget = "iqn.2026-01.io.csi-mpath:pair"

// Pair is two daemons over one backing file with one identity.
type Pair struct {
	A, B *Daemon
	File string
	dir  string
}

// StartPair makes a backing file of size bytes, in memory where the machine has
// room for that, and two daemons over it. mod may change each daemon's
// configuration; nil leaves it.
func StartPair(ctx context.Context, size int64, mod func(*Config)) (_ *Pair, err error) {
	dir, err := scratch(size)
	if err != nil {
		return nil, err
	}
	p := &Pair{dir: dir, File: filepath.Join(dir, "lun")}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Stop())
		}
	}()
	if err := os.WriteFile(p.File, nil, 0o600); err != nil {
		return nil, err
	}
	if err := os.Truncate(p.File, size); err != nil {
		return nil, err
	}
	start := func(name string) (*Daemon, error) {
		cfg := Config{Dir: dir, Name: name, Target: PairTarget, File: p.File, ID: "MPATH0001", Serial: "SN0001"}
		if mod != nil {
			mod(&cfg)
		}
		return Start(ctx, cfg)
	}
	if p.A, err = start("a"); err != nil {
		return nil, fmt.Errorf("first daemon: %w", err)
	}
	if p.B, err = start("b"); err != nil {
		return nil, fmt.Errorf("second daemon: %w", err)
	}
	return p, nil
}

// memory is a file system in memory, where the machine has one.
const memory = "/dev/shm"

// scratch prefers memory to a disk, where size bytes fit: a test is about paths,
// not about disks. (A container often has 64 MiB there.)
func scratch(size int64) (string, error) {
	var st unix.Statfs_t
	if unix.Statfs(memory, &st) == nil && int64(st.Bavail)*st.Bsize > size {
		if dir, err := os.MkdirTemp(memory, "mpath"); err == nil {
			return dir, nil
		}
	}
	return os.MkdirTemp("", "mpath")
}

// Dir is the pair's directory, removed by Stop; short enough for sockets.
func (p *Pair) Dir() string { return p.dir }

// Stop kills both daemons and removes their files.
func (p *Pair) Stop() error {
	var errs []error
	for _, d := range []*Daemon{p.A, p.B} {
		if d != nil {
			errs = append(errs, d.Close())
		}
	}
	return errors.Join(append(errs, os.RemoveAll(p.dir))...)
}
