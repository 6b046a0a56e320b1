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

// shown is one volume and its loads: the probe always, fio above tgt, a mounted
// file system where that is possible.
type shown struct {
	name      string // of its protocol
	own, nvme bool
	rig       *rig.Rig

	probe *probe.Probe
	from  time.Duration // of the probe's clock: since when the longest answer counts
	fio   *rig.Fio
	sums  []string // what each load did

	mount bool
	why   string // there is no mount
	fs    *fileSystem
}

// start brings the volume up, and its loads.
func (v *shown) start(ctx context.Context, bin string) (err error) {
	opt := rig.Options{Bin: bin, Size: volume, OneWay: oneWay, Own: v.own, NVMe: v.nvme}
	if v.own && !v.nvme {
		if v.mount, v.why = canMount(); v.mount {
			opt.Args = []string{"--device", "auto"}
		}
	}
	if v.rig, err = rig.Start(ctx, opt); err != nil {
		return err
	}
	switch {
	case v.mount:
		v.fs, err = mountFileSystem(ctx, v.rig)
	case !v.own:
		v.fio, err = rig.StartFio(rig.Load{Socket: v.rig.Socket, Dir: v.rig.Dir, Size: firstPart / fioJobs, Jobs: fioJobs,
			Depth: 8, Block: "4k", Runtime: fioTime})
	}
	if err != nil {
		return err
	}
	// The probe's writes never overlap what is in doubt within the demo's time.
	v.probe, err = probe.Start(ctx, v.rig.Socket, probe.Options{Off: firstPart, Size: volume - firstPart, Workers: 8,
		Reuse: limit})
	return err
}

// where says where everything is.
func (v *shown) where() string {
	out := fmt.Sprintf("  %-8s  controller A %s, controller B %s\n            device %s\n", v.name,
		v.rig.Paths[0].Portal(), v.rig.Paths[1].Portal(), v.rig.Socket)
	if v.fs != nil {
		out += fmt.Sprintf("            block device %s, ext4 on %s\n", v.fs.device, v.fs.dir)
	}
	return out
}

// loads says what the loads do.
func (v *shown) loads() string {
	what := "8 requests in flight, 4 KiB, each block stamped with its number and version"
	switch {
	case v.fs != nil:
		what += "; 4 writers on ext4"
	case v.fio != nil:
		what = "4 fio jobs, 4 KiB random reads and writes, crc32c on every block; and a probe"
	}
	return what
}

// failed is what went wrong so far.
func (v *shown) failed() error {
	errs := []error{v.probe.Err()}
	if v.fio != nil {
		errs = append(errs, v.fio.Err())
	}
	if v.fs != nil {
		errs = append(errs, v.fs.load.Err())
	}
	return errors.Join(errs...)
}

// end stops the loads, checks every block, and notes what each did.
func (v *shown) end(ctx context.Context) error {
	if v.fio != nil {
		res, err := v.fio.Wait(fioTime + fioMore)
		if err != nil {
			return err
		}
		v.sums = append(v.sums, fmt.Sprintf("  fio    %d reads and %d writes, every block checked (crc32c)\n", res.Reads, res.Writes))
	}
	if v.fs != nil {
		sum, err := v.fs.finish(ctx)
		if err != nil {
			return err
		}
		v.sums = append(v.sums, sum)
		v.fs = nil
	}
	if err := v.probe.Stop(); err != nil {
		return err
	}
	v.sums = append(v.sums, fmt.Sprintf("  probe  %d requests, every answer checked\n", v.probe.Requests()))
	return nil
}

// stop ends the volume, and after a failure what would keep it busy.
func (v *shown) stop() (err error) {
	if v.rig == nil {
		return nil
	}
	if v.fio != nil {
		v.fio.Kill()
	}
	if v.fs != nil {
		err = v.fs.unmount()
	}
	return errors.Join(err, v.rig.Stop())
}
