package rig

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/csi-mpath/csi-mpath/test/vm/writers"
)

// Load is a few writers at work on a block device, for tests of what happens
// below it.
type Load struct {
	*writers.Load
	t testing.TB
}

// loadWriters of loadRange bytes each: the beginning of the device.
const (
	loadWriters = 4
	loadRange   = 1 << 20
)

// StartLoad starts the writers and waits until each has done something. The
// device's first 4 MiB are theirs.
func StartLoad(t testing.TB, device string) *Load {
	t.Helper()
	l, err := writers.Start(writers.Config{Path: device, Size: loadRange, Max: loadWriters}, loadWriters)
	Must(t, err)
	x := &Load{l, t}
	x.Moves()
	return x
}

// Moves waits until every writer has finished what it begins from now on.
func (l *Load) Moves() {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), Patience)
	defer cancel()
	Must(l.t, l.Progress(ctx))
}

// GoesBy waits until the load's I/O goes by one of two paths, mostly: who checks
// paths reads on both. count is what each path has carried.
func (l *Load) GoesBy(path int, count func() ([2]int, error)) {
	l.t.Helper()
	Must(l.t, Wait("the I/O to move", func() error {
		from, err := count()
		if err != nil {
			return err
		}
		l.Moves()
		to, err := count()
		if by, rest := to[path]-from[path], to[1-path]-from[1-path]; err == nil && by <= 2*rest {
			err = fmt.Errorf("path %d carried %d, the other %d", path, by, rest)
		}
		return err
	}))
}

// Finish ends the load and reads everything back.
func (l *Load) Finish() {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), Patience)
	defer cancel()
	stall := l.TakeStall()
	r, err := l.Stop(ctx)
	Must(l.t, errors.Join(err, l.Verify(ctx, "")))
	l.t.Logf("%d writes, %d reads; longest operation %v", r.Writes, r.Reads, stall.For)
}

// Requests counts the reads and writes that each of two disks has completed.
func Requests(disks [2]string) (n [2]int, _ error) {
	for i, disk := range disks {
		text, err := Attribute(disk, "stat")
		f := strings.Fields(text)
		if err != nil || len(f) < 5 {
			return n, fmt.Errorf("no counters of %s: %q (%w)", disk, text, err)
		}
		reads, err1 := strconv.Atoi(f[0])
		writes, err2 := strconv.Atoi(f[4])
		if err := errors.Join(err1, err2); err != nil {
			return n, fmt.Errorf("counters of %s: %w", disk, err)
		}
		n[i] = reads + writes
	}
	return n, nil
}
