package main

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/csi-mpath/csi-mpath/pkg/device"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
)

// protocolFlags say which volume, and over which protocol: the flags of one only.
type protocolFlags struct {
	iscsi iscsiFlags
}

// register adds the flags of every protocol.
func (f *protocolFlags) register(fl *pflag.FlagSet) {
	f.iscsi.register(fl)
}

// protocol is what was asked for, and the portals.
func (f *protocolFlags) protocol() (device.Protocol, []string, error) {
	if len(f.iscsi.portals) == 0 {
		return nil, nil, errors.New("no portals given: use --iscsi PORTAL[,PORTAL…]")
	}
	p, err := f.iscsi.protocol()
	return p, f.iscsi.portals, err
}

type iscsiFlags struct {
	portals         []string
	volume          device.ISCSI
	lun, secretFile string
}

func (f *iscsiFlags) register(fl *pflag.FlagSet) {
	fl.StringSliceVar(&f.portals, "iscsi", nil, "iSCSI portals, host[:port] or [IPv6]:port, comma-separated")
	fl.StringVar(&f.volume.Target, "target", "", "iSCSI target name")
	fl.StringVar(&f.lun, "lun", "0", "logical unit number")
	fl.StringVar(&f.volume.Initiator, "initiator", "", "iSCSI initiator name (default: made of this host's name)")
	fl.StringVar(&f.secretFile, "chap-secret-file", "", "file with username=, password= and for mutual CHAP username_in=, password_in=; mode 600")
	fl.DurationVar(&f.volume.FenceTimeout, "fence-timeout", device.DefaultFenceTimeout, "without proof, a lost session's writes are taken for dead after this")
}

func (f *iscsiFlags) protocol() (device.Protocol, error) {
	if f.volume.Target == "" {
		return nil, fmt.Errorf("--iscsi needs --target, the iSCSI target name; 'csi-mpath discover %s' lists them", f.portals[0])
	}
	var err error
	if f.volume.LUN, err = scsi.ParseLUN(f.lun); err != nil {
		return nil, err
	}
	if f.secretFile != "" {
		if f.volume.Auth, err = device.ReadSecretFile(f.secretFile); err != nil {
			return nil, err
		}
	}
	return f.volume, nil
}
