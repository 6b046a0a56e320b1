package attach

import (
	"encoding/hex"
	"fmt"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/datapath"
	"github.com/csi-mpath/csi-mpath/pkg/device"
	"github.com/csi-mpath/csi-mpath/pkg/iscsi/auth"
	nvmeauth "github.com/csi-mpath/csi-mpath/pkg/nvmetcp/auth"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
	"github.com/csi-mpath/csi-mpath/pkg/tunable"
	"github.com/csi-mpath/csi-mpath/pkg/volume"
	"github.com/csi-mpath/csi-mpath/pkg/volume/attrs"
)

// undoWithin is how long an Open that fails clears up.
const undoWithin = 5 * time.Second

// config is a volume as pkg/device wants it.
func (o *Opener) config(c volume.DeviceConfig) (device.Config, error) {
	if err := possible(c); err != nil {
		return device.Config{}, err
	}
	p, err := o.protocol(c)
	if err != nil {
		return device.Config{}, err
	}
	as := o.cfg.Face.attachment()
	cfg := device.Config{Name: c.Volume, Protocol: p, WWID: c.Attached.WWID, ReadOnly: c.ReadOnly, Attach: as, Replays: as == device.AttachNBD,
		Patient: c.Again, StateDir: o.cfg.State, Reserve: c.Exclusive && !c.ReadOnly && c.Attached.Fencing == attrs.FencingReservation}
	for _, portal := range c.Attached.Portals {
		cfg.Portals = append(cfg.Portals, portal.Address)
	}
	cfg.Use(c.Settings)
	if f := o.cfg.Events; f != nil {
		cfg.Events = func(e datapath.Event) { f(c.Volume, e) }
	}
	if err := cfg.Check(); err != nil {
		return device.Config{}, fmt.Errorf("%w: %w", volume.ErrInvalid, err)
	}
	return cfg, nil
}

// possible refuses what is asked for and not there: nobody gets less protection
// than he believes.
func possible(c volume.DeviceConfig) error {
	s := c.Settings
	switch {
	case s.Lanes > 1 || s.SessionsPerPath > 1:
		return fmt.Errorf("%w: lanes %d and sessionsPerPath %d: use 1", volume.ErrUnsupported, s.Lanes, s.SessionsPerPath)
	case c.Attached.Transport == backend.ISCSI && (s.HeaderDigest || s.DataDigest):
		return fmt.Errorf("%w: headerDigest and dataDigest over iSCSI: use none", volume.ErrUnsupported)
	case c.Attached.CHAP && unproven(c):
		return fmt.Errorf("%w: its storage wants secrets, and %s", volume.ErrInvalid, noSecrets(c))
	}
	return nil
}

// unproven: the call has nothing that the storage could be told.
func unproven(c volume.DeviceConfig) bool {
	a, err := attrs.Auth(c.Attached.Transport, c.Secrets)
	return err == nil && a == backend.Auth{}
}

// noSecrets says what is missing, and where it goes.
func noSecrets(c volume.DeviceConfig) string {
	return fmt.Sprintf("the call has none: name a Secret with %s in nodeStageSecretRef, or in the StorageClass", attrs.Keys(c.Attached.Transport))
}

// protocol is which volume, and as whom.
func (o *Opener) protocol(c volume.DeviceConfig) (device.Protocol, error) {
	a := c.Attached
	name := a.Initiator
	if name == "" && o.cfg.Initiator != nil {
		name = o.cfg.Initiator(a.Transport)
	}
	if a.Transport == backend.NVMe {
		return nvme(a, name, c.Settings, c.Secrets)
	}
	lun, err := scsi.LUNFromNumber(a.LUN)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", volume.ErrInvalid, err)
	}
	p := device.ISCSI{Target: a.Target, LUN: lun, Initiator: name, FenceTimeout: c.Settings.FenceTimeout}
	p.Auth, err = chap(c.Secrets)
	return p, err
}

func nvme(a attrs.Attachment, name string, s tunable.Settings, secrets volume.Secrets) (device.Protocol, error) {
	p := device.NVMe{Subsystem: a.Target, NSID: a.NSID, HostNQN: name, KeepAlive: s.KeepAliveTimeout,
		HeaderDigest: s.HeaderDigest, DataDigest: s.DataDigest}
	if a.HostID != "" {
		id, err := hex.DecodeString(a.HostID)
		if err != nil || len(id) != len(p.HostID) {
			return nil, fmt.Errorf("%w: host ID %q", volume.ErrInvalid, a.HostID)
		}
		copy(p.HostID[:], id)
	}
	var err error
	p.Auth, err = dhchap(secrets)
	return p, err
}

// chap are the secrets of iSCSI, dhchap those of NVMe.
func chap(s volume.Secrets) (c auth.Credentials, err error) {
	a, err := attrs.Auth(backend.ISCSI, s)
	if err == nil {
		c = auth.Credentials{User: a.CHAP.User, Secret: a.CHAP.Secret, MutualUser: a.CHAP.MutualUser, MutualSecret: a.CHAP.MutualSecret}
		err = c.Check()
	}
	return c, invalid(err)
}

func dhchap(s volume.Secrets) (c nvmeauth.Credentials, err error) {
	a, err := attrs.Auth(backend.NVMe, s)
	if err == nil {
		c = nvmeauth.Credentials{Secret: a.DHCHAP.Host, ControllerSecret: a.DHCHAP.Controller}
		err = c.Check()
	}
	return c, invalid(err)
}

func invalid(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", volume.ErrInvalid, err)
}

// Tune implements volume.Device.
func (d *opened) Tune(s tunable.Settings) error { return d.dev.Apply(s) }

// Renew implements volume.Device.
func (d *opened) Renew(s volume.Secrets) error {
	if d.transport == backend.NVMe {
		c, err := dhchap(s)
		if err != nil {
			return err
		}
		return invalid(d.dev.Renew(device.NVMe{Auth: c}))
	}
	c, err := chap(s)
	if err != nil {
		return err
	}
	return invalid(d.dev.Renew(device.ISCSI{Auth: c}))
}
