package device

import (
	"context"
	"fmt"
)

// Settle waits until everything is answered, and every write in doubt is fenced
// (I3).
func (d *Device) Settle(ctx context.Context) error { return d.dp.Settle(ctx) }

// Fail ends all I/O with errors, for good: what is not on a wire is never sent
// (I5).
func (d *Device) Fail() { d.dp.Fail() }

// Rescan has every path read the size again, and returns it; paths that disagree
// are an error.
func (d *Device) Rescan(ctx context.Context) (uint64, error) { return d.dp.Rescan(ctx) }

// Renew changes the secrets of logins to come to those of p, which is of the
// protocol that the volume has; sessions stay.
func (d *Device) Renew(p Protocol) error {
	for _, path := range d.paths {
		if err := path.renew(p); err != nil {
			return fmt.Errorf("volume %s: %w", d.cfg.Name, err)
		}
	}
	return nil
}

func (p *iscsiPath) renew(to Protocol) error {
	v, ok := to.(ISCSI)
	if !ok {
		return fmt.Errorf("secrets of %T for a volume over iSCSI", to)
	}
	if err := v.Auth.Check(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.login.Auth = v.Auth
	return nil
}

func (p *nvmePath) renew(to Protocol) error {
	v, ok := to.(NVMe)
	if !ok {
		return fmt.Errorf("secrets of %T for a volume over NVMe/TCP", to)
	}
	if err := v.Auth.Check(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.controller.Auth = v.Auth
	return nil
}
