package main

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/csi-mpath/csi-mpath/pkg/device"
	"github.com/csi-mpath/csi-mpath/pkg/nvmetcp/auth"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
)

// protocolFlags say which volume, and over which protocol: the flags of one only.
type protocolFlags struct {
	iscsi iscsiFlags
	nvme  nvmeFlags
	// ofISCSI and ofNVMe are the flags that belong to one protocol.
	ofISCSI, ofNVMe *pflag.FlagSet
}

// register adds the flags of every protocol.
func (f *protocolFlags) register(fl *pflag.FlagSet) {
	f.ofISCSI, f.ofNVMe = pflag.NewFlagSet("", pflag.ContinueOnError), pflag.NewFlagSet("", pflag.ContinueOnError)
	f.iscsi.register(f.ofISCSI)
	f.nvme.register(f.ofNVMe)
	fl.AddFlagSet(f.ofISCSI)
	fl.AddFlagSet(f.ofNVMe)
}

// protocol is what was asked for, and the portals.
func (f *protocolFlags) protocol() (p device.Protocol, portals []string, err error) {
	overISCSI, overNVMe := len(f.iscsi.portals) > 0, len(f.nvme.portals) > 0
	switch {
	case overISCSI && overNVMe:
		err = errors.New("--iscsi and --nvme-tcp: all paths of a volume speak one protocol; give the portals of one")
	case overISCSI:
		if err = foreign(f.ofNVMe, "--nvme-tcp", "--iscsi"); err == nil {
			p, err = f.iscsi.protocol()
		}
	case overNVMe:
		if err = foreign(f.ofISCSI, "--iscsi", "--nvme-tcp"); err == nil {
			p, err = f.nvme.protocol()
		}
	default:
		err = errors.New("no portals given: use --iscsi PORTAL[,PORTAL…] or --nvme-tcp PORTAL[,PORTAL…]")
	}
	return p, append(f.iscsi.portals, f.nvme.portals...), err
}

// foreign refuses flags of the protocol that is not spoken.
func foreign(flags *pflag.FlagSet, theirs, ours string) (err error) {
	flags.VisitAll(func(fl *pflag.Flag) {
		if fl.Changed && err == nil {
			err = fmt.Errorf("--%s goes with %s, and this volume is reached by %s: leave it out", fl.Name, theirs, ours)
		}
	})
	return err
}

type iscsiFlags struct {
	portals         []string
	volume          device.ISCSI
	lun, secretFile string
}

func (f *iscsiFlags) register(fl *pflag.FlagSet) {
	fl.StringSliceVar(&f.portals, "iscsi", nil, "iSCSI portals, host[:port] or [IPv6]:port, comma-separated")
	fl.StringVar(&f.volume.Target, "target", "", "iSCSI: name of the target")
	fl.StringVar(&f.lun, "lun", "0", "iSCSI: logical unit number")
	fl.StringVar(&f.volume.Initiator, "initiator", "", "iSCSI: name of the initiator (default: made of this host's name)")
	fl.StringVar(&f.secretFile, "chap-secret-file", "", "iSCSI: file with username=, password= and for mutual CHAP username_in=, password_in=; mode 600")
	fl.DurationVar(&f.volume.FenceTimeout, "fence-timeout", device.DefaultFenceTimeout, "iSCSI: without proof, a lost session's writes are taken for dead after this")
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

// nvmeHostFlags say who this host is to a subsystem or a discovery controller.
type nvmeHostFlags struct {
	nqn, id                          string
	secretFile, controllerSecretFile string
	tlsKeyFile                       string
}

func (f *nvmeHostFlags) register(fl *pflag.FlagSet) {
	fl.StringVar(&f.nqn, "host-nqn", "", "NVMe/TCP: NQN of this host (default: a UUID made of the machine id)")
	fl.StringVar(&f.id, "host-id", "", "NVMe/TCP: host identifier, a UUID (default: the one of the host NQN)")
	fl.StringVar(&f.secretFile, "dhchap-secret-file", "", "NVMe/TCP: file with this host's DH-HMAC-CHAP secret, DHHC-1:…:; mode 600")
	fl.StringVar(&f.controllerSecretFile, "dhchap-ctrl-secret-file", "", "NVMe/TCP: file with the secret by which the controller must prove itself; mode 600")
	// For the answer that no TLS is better than a flag unknown (B-25).
	fl.StringVar(&f.tlsKeyFile, "tls-key-file", "", "NVMe/TCP: refused, TLS is not offered")
	_ = fl.MarkHidden("tls-key-file")
}

// read is what the flags say; zero values are left to the defaults.
func (f *nvmeHostFlags) read() (nqn string, id [16]byte, c auth.Credentials, err error) {
	if f.tlsKeyFile != "" {
		return "", id, c, fmt.Errorf("--tls-key-file: %w", auth.ErrTLS)
	}
	if f.id != "" {
		if id, err = device.ParseUUID(f.id); err != nil {
			return "", id, c, fmt.Errorf("--host-id: %w", err)
		}
	}
	c, err = device.ReadDHChapFiles(f.secretFile, f.controllerSecretFile)
	return f.nqn, id, c, err
}

type nvmeFlags struct {
	portals []string
	volume  device.NVMe
	host    nvmeHostFlags
}

func (f *nvmeFlags) register(fl *pflag.FlagSet) {
	fl.StringSliceVar(&f.portals, "nvme-tcp", nil, "NVMe/TCP portals, host[:port] or [IPv6]:port, comma-separated")
	fl.StringVar(&f.volume.Subsystem, "subsystem", "", "NVMe/TCP: NQN of the subsystem")
	fl.Uint32Var(&f.volume.NSID, "nsid", 1, "NVMe/TCP: namespace ID")
	f.host.register(fl)
	fl.DurationVar(&f.volume.KeepAlive, "keep-alive", device.DefaultKeepAlive, "NVMe/TCP: keep alive timeout (KATO): a lost controller's writes are taken for dead after two or three of it")
	fl.IntVar(&f.volume.Queues, "io-queues", 0, "NVMe/TCP: I/O queues per controller; fewer may be granted; more than one pays with several NBD connections (default 1)")
	fl.BoolVar(&f.volume.HeaderDigest, "header-digest", false, "NVMe/TCP: demand CRC32C on every header")
	fl.BoolVar(&f.volume.DataDigest, "data-digest", false, "NVMe/TCP: demand CRC32C on all data")
}

func (f *nvmeFlags) protocol() (_ device.Protocol, err error) {
	if f.volume.Subsystem == "" {
		return nil, fmt.Errorf("--nvme-tcp needs --subsystem, the NQN of the subsystem; 'csi-mpath discover --nvme-tcp %s' lists them", f.portals[0])
	}
	if f.volume.HostNQN, f.volume.HostID, f.volume.Auth, err = f.host.read(); err != nil {
		return nil, err
	}
	return f.volume, nil
}
