package device

import (
	"context"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/datapath"
)

// reservationSuffix ends the name of a volume's reservation record.
const reservationSuffix = ".reservation"

// reserve makes the device hold its volume, if it is to.
func (d *Device) reserve(cfg *datapath.Config) (err error) {
	if !d.cfg.Reserve {
		return nil
	}
	if d.holder, err = newHolder(d.holds, d.cfg.Name, d.cfg.Patient, d.emit); err == nil {
		cfg.Claim = d.holder.claim
	}
	return err
}

// unreserved forgets an opening that came to nothing. One that a dead process began
// is kept: the block device it served may be there yet.
func (d *Device) unreserved() error {
	if d.holder == nil || d.holder.careful {
		return nil
	}
	return removeIfThere(d.holds)
}

// giveBack ends the reservation once no write can come any more. It stays while
// the device does, and while writes are in doubt.
func (d *Device) giveBack(ctx context.Context) {
	if d.holder == nil || d.keep.Load() {
		return
	}
	if err := d.dp.Settle(ctx); err != nil {
		d.holder.left(err)
		return
	}
	d.holder.release(ctx)
}

// Lost is why the volume is lost to this node for good, so that all its I/O fails:
// another has its reservation. Empty: it is not.
func (d *Device) Lost() string {
	if d.holder == nil {
		return ""
	}
	return d.holder.lostWhy()
}

func (d *Device) emit(e datapath.Event) {
	if d.cfg.Events != nil {
		e.Time = time.Now()
		d.cfg.Events(e)
	}
}
