// Package device assembles initiators, datapath and attachment into one block
// device, and keeps the little state that must outlive the process.
package device

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/csi-mpath/csi-mpath/pkg/datapath"
	"github.com/csi-mpath/csi-mpath/pkg/durable"
	"github.com/csi-mpath/csi-mpath/pkg/nbd"
	"github.com/csi-mpath/csi-mpath/pkg/pathsel"
)

// Device is one open volume.
type Device struct {
	cfg     Config
	dp      *datapath.Device
	info    atomic.Pointer[nbd.Info]
	lock    string // path
	unlock  func()
	ledger  *ledgerFile
	status  *statusServer
	paths   []path
	record  string                      // path of the record
	places  string                      // path of the file of places
	holds   string                      // path of the record of the reservation
	holder  *holder                     // nil: there is none
	learned string                      // path of what its traffic taught
	was     *places                     // what that file held, and holds
	keep    atomic.Bool                 // it stays after Close
	resize  atomic.Pointer[BlockDevice] // the kernel's device, told of growth
	once    sync.Once
	end     error
}

// Open brings a volume up: it returns once MinPaths paths are live, or when
// ctx ends, with an error that names each portal and its cause.
func Open(ctx context.Context, cfg Config) (*Device, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if cfg.StateDir == "" {
		return nil, fmt.Errorf("volume %s: no state directory given", cfg.Name)
	}
	if err := durable.Own(cfg.StateDir); err != nil {
		return nil, fmt.Errorf("volume %s: state directory: %w", cfg.Name, err)
	}
	d := &Device{cfg: cfg}
	base := filepath.Join(cfg.StateDir, durable.FileName(cfg.Name))
	d.lock = base + ".lock"
	if d.unlock, err = durable.Lock(d.lock, true); err != nil {
		if errors.Is(err, durable.ErrLocked) {
			return nil, fmt.Errorf("volume %s is attached already by a process that uses %s; see 'csi-mpath paths'", cfg.Name, cfg.StateDir)
		}
		return nil, err
	}
	if d.ledger, err = openLedger(base + ".ledger"); err == nil {
		d.record, d.places, d.learned, d.holds = base+".volume", base+".places", base+".learned", base+reservationSuffix
		if err = d.open(ctx, base+".ctl"); err != nil {
			err = errors.Join(err, d.ledger.close(false))
		}
	}
	if err != nil {
		err = errors.Join(err, removeIfThere(d.lock))
		d.unlock()
		return nil, err
	}
	return d, nil
}

func (d *Device) open(ctx context.Context, control string) error {
	transports, err := d.transports()
	if err != nil {
		return err
	}
	sel, err := pathsel.ByName(d.cfg.PathSelector)
	if err != nil {
		return err
	}
	was, err := readRecord(d.record)
	if err != nil {
		return err
	}
	cfg := datapath.Config{
		Name: d.cfg.Name, Selector: sel, MinPaths: d.cfg.MinPaths, NoPathTimeout: d.cfg.NoPathTimeout,
		CommandTimeout: d.cfg.CommandTimeout, ReadOnly: d.cfg.ReadOnly, WWID: d.cfg.WWID, Patient: d.cfg.Patient,
		Ledger: d.ledger.mem, Replays: d.cfg.Replays, Failback: d.cfg.Failback, MergeDeadline: d.cfg.MergeDeadline,
		MergeLearned: readLearned(d.learned), Learned: d.learn,
		LedgerKey: datapath.LedgerKey(durable.BootID() + " " + d.cfg.Protocol.nexus()),
		Events:    d.cfg.Events, Jitter: d.cfg.Jitter, Grown: d.grown, Turn: d.cfg.Logins.turn,
	}
	if was != nil {
		cfg.Reference, cfg.ReferenceSize = &was.Identity, was.Size
	}
	if err = d.reserve(&cfg); err != nil {
		return err
	}
	if d.dp, err = datapath.Open(ctx, cfg, transports); err != nil {
		return errors.Join(err, d.unreserved())
	}
	if d.holder != nil {
		d.holder.opened(d.dp)
	}
	d.refreshInfo()
	if err = d.remember(); err == nil && !d.cfg.NoControl {
		d.status, err = serveStatus(control, d)
	}
	if err != nil {
		_ = d.dp.Close(ctx)
	}
	return err
}

func (d *Device) transports() (out []datapath.Transport, err error) {
	d.was = openPlaces(d.places)
	if d.paths, err = d.cfg.Protocol.paths(d); err != nil {
		return nil, fmt.Errorf("volume %s: %w", d.cfg.Name, err)
	}
	for _, p := range d.paths {
		out = append(out, p)
	}
	return out, nil
}

func (d *Device) grown(size uint64) {
	if d.info.Load() == nil {
		return // while the device opens: Open reads the size itself
	}
	d.refreshInfo()
	_ = d.remember()    // an old size is a smaller one: it refuses nothing wrongly
	go d.resizeKernel() // netlink may take its time, events must not
	if d.cfg.Resized != nil {
		d.cfg.Resized(size)
	}
}

func (d *Device) refreshInfo() {
	d.info.Store(&nbd.Info{Name: d.cfg.Name, Description: "csi-mpath " + d.cfg.Name, Size: d.dp.Size(), Limits: d.dp.Limits()})
}

// Info implements nbd.Export.
func (d *Device) Info() nbd.Info { return *d.info.Load() }

// OpenLane implements nbd.Export.
func (d *Device) OpenLane(depth int) (nbd.Lane, error) { return d.dp.OpenLane(depth) }

// Status is the path table and the rest, now.
func (d *Device) Status() datapath.Status { return d.dp.Status() }

// Name is the volume's name.
func (d *Device) Name() string { return d.cfg.Name }

// Close waits until everything is answered and fenced or ctx ends, and ends
// the sessions. No lane may be submitted to any more. A second call returns
// what the first did.
func (d *Device) Close(ctx context.Context) error {
	d.once.Do(func() {
		d.giveBack(ctx)
		d.end = d.dp.Close(ctx)
		if d.status != nil {
			d.status.close()
		}
		d.end = errors.Join(d.end, d.ledger.close(d.end == nil))
		if d.end == nil {
			d.end = errors.Join(d.forget(), removeIfThere(d.places), removeIfThere(d.learned), removeIfThere(d.lock))
		}
		d.unlock()
	})
	return d.end
}
