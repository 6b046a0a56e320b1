package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/csi-mpath/csi-mpath/test/interop/rig"
	"github.com/csi-mpath/csi-mpath/test/probe"
)

const (
	fioJobs = 4
	// fioTime is how long fio runs; the events fit into it with room to spare.
	fioTime = 26 * time.Second
	fioMore = 20 * time.Second
)

// show is the running demonstration and its loads: the probe always, fio above
// tgt, a mounted file system where that is possible.
type show struct {
	rig   *rig.Rig
	own   bool
	begin time.Time

	probe *probe.Probe
	fio   *rig.Fio

	mount bool
	why   string // there is no mount
	fs    *fileSystem
}

// load starts what there is to start.
func (s *show) load(ctx context.Context) (err error) {
	what := "8 requests in flight, 4 KiB, each block stamped with its number and version"
	switch {
	case s.mount:
		if s.fs, err = mountFileSystem(ctx, s.rig); err != nil {
			return err
		}
		fmt.Printf("  block device   %s, ext4 on %s\n", s.fs.device, s.fs.dir)
		what += "; 4 writers on ext4"
	case !s.own:
		if s.fio, err = rig.StartFio(rig.Load{Socket: s.rig.Socket, Dir: s.rig.Dir, Size: firstPart / fioJobs, Jobs: fioJobs,
			Depth: 8, Block: "4k", Runtime: fioTime}); err != nil {
			return err
		}
		what = "4 fio jobs, 4 KiB random reads and writes, crc32c on every block; and a probe"
	}
	// The probe's writes never overlap what is in doubt within the demo's time.
	if s.probe, err = probe.Start(ctx, s.rig.Socket, probe.Options{Off: firstPart, Size: volume - firstPart, Workers: 8,
		Reuse: limit}); err != nil {
		return err
	}
	fmt.Println()
	s.begin = time.Now()
	s.say("the load starts: "+what, "")
	return nil
}

// failed is what went wrong so far.
func (s *show) failed(ctx context.Context) error {
	errs := []error{ctx.Err(), s.probe.Err()}
	if s.fio != nil {
		errs = append(errs, s.fio.Err())
	}
	if s.fs != nil {
		errs = append(errs, s.fs.load.Err())
	}
	return errors.Join(errs...)
}

// end stops the loads, checks every block, and says what each did.
func (s *show) end(ctx context.Context) (sums []string, err error) {
	if s.fio != nil {
		res, err := s.fio.Wait(fioTime + fioMore)
		if err != nil {
			return nil, err
		}
		sums = append(sums, fmt.Sprintf("  fio    %d reads and %d writes, every block checked (crc32c)\n", res.Reads, res.Writes))
	}
	if s.fs != nil {
		sum, err := s.fs.finish(ctx)
		if err != nil {
			return nil, err
		}
		sums = append(sums, sum)
		s.fs = nil
	}
	if err := s.probe.Stop(); err != nil {
		return nil, err
	}
	return append(sums, fmt.Sprintf("  probe  %d requests, every answer checked\n", s.probe.Requests())), nil
}

// giveUp ends what would keep the device busy after a failure.
func (s *show) giveUp() error {
	if s.fio != nil {
		s.fio.Kill()
	}
	if s.fs != nil {
		return s.fs.unmount()
	}
	return nil
}
