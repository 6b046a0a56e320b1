package device

import (
	"errors"
	"fmt"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/iscsi"
	"github.com/csi-mpath/csi-mpath/pkg/iscsi/auth"
	"github.com/csi-mpath/csi-mpath/pkg/portal"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
)

// ISCSI is a Protocol: one logical unit of an iSCSI target.
type ISCSI struct {
	Target    string // iSCSI target name
	LUN       scsi.LUN
	Initiator string // iSCSI initiator name; empty means DefaultInitiator
	Auth      auth.Credentials
	// FenceTimeout is how long a lost session's tasks may live when nothing proves
	// that the target ended them (I3); 0 means DefaultFenceTimeout.
	FenceTimeout time.Duration
}

func (c ISCSI) withDefaults() (Protocol, error) {
	if c.Target == "" {
		return nil, errors.New("no target name given")
	}
	if c.Initiator == "" {
		c.Initiator = DefaultInitiator()
	}
	for _, n := range []string{c.Target, c.Initiator} {
		if !iscsi.ValidName(n) {
			return nil, fmt.Errorf("%q is no iSCSI name: it begins with iqn., eui. or naa. and has no blanks", n)
		}
	}
	return c, positive(timeout{&c.FenceTimeout, DefaultFenceTimeout})
}

func (c ISCSI) volume() string { return c.Target + ",lun" + c.LUN.String() }

func (c ISCSI) port() string { return portal.ISCSIPort }

func (c ISCSI) nexus() string { return c.Initiator + " " + c.Target + " " + c.LUN.String() }

func (c ISCSI) paths(d *Device) ([]path, error) {
	store, keys := isids{dir: d.cfg.StateDir}, make([]string, 0, len(d.cfg.Portals))
	for _, portal := range d.cfg.Portals {
		keys = append(keys, c.Initiator+" "+c.Target+" "+portal+" "+d.cfg.Name)
	}
	ids, err := store.get(keys...)
	if err != nil {
		return nil, err
	}
	all, out := make([]*iscsiPath, 0, len(ids)), make([]path, 0, len(ids))
	for i, portal := range d.cfg.Portals {
		p := &iscsiPath{way: d.newWay(i), volume: c, login: iscsi.Config{
			Portal: portal, InitiatorName: c.Initiator, TargetName: c.Target, ISID: ids[i], Auth: c.Auth,
			Source: d.source(i), Dial: d.cfg.Dial, ConnectTimeout: d.cfg.dialTime(), LoginTimeout: d.cfg.dialTime(),
			PathTimeout: d.cfg.PathTimeout, CommandTimeout: d.cfg.CommandTimeout, QueueDepth: d.cfg.QueueDepth,
		}}
		p.inherit()
		all, out = append(all, p), append(out, p)
	}
	for _, p := range all {
		p.siblings = all
	}
	return out, nil
}
