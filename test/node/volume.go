package node

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/datapath"
	"github.com/csi-mpath/csi-mpath/pkg/device"
	iscsiauth "github.com/csi-mpath/csi-mpath/pkg/iscsi/auth"
	"github.com/csi-mpath/csi-mpath/pkg/nbd"
	nvmeauth "github.com/csi-mpath/csi-mpath/pkg/nvmetcp/auth"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
)

// Volume is a volume as the product has it on a node: one device of all paths,
// served over NBD on a socket.
type Volume struct {
	Socket string

	dev  *device.Device
	srv  *nbd.Server
	dir  string
	done chan error
}

const (
	// closeTime bounds the end of a Volume.
	closeTime = time.Minute
	// keepAlive is short: a controller that was lost with writes on it is fenced by
	// time, three of these, and Close waits for that.
	keepAlive = time.Second
)

// Open stages a volume. While no path is usable its requests are held for up to
// noPath.
func Open(ctx context.Context, c backend.Connection, a backend.Auth, noPath time.Duration) (*Volume, error) {
	dir, err := os.MkdirTemp("", "node") // short: socket paths are bounded
	if err != nil {
		return nil, err
	}
	v := &Volume{Socket: filepath.Join(dir, "nbd"), dir: dir, done: make(chan error, 1)}
	cfg := device.Config{Name: "v", WWID: c.WWID, NoPathTimeout: noPath, StateDir: dir}
	for _, p := range c.Portals {
		cfg.Portals = append(cfg.Portals, p.Address)
	}
	if cfg.Protocol, err = protocol(&c, a); err == nil {
		v.dev, err = device.Open(ctx, cfg)
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	l, err := net.Listen("unix", v.Socket)
	if err != nil {
		return nil, errors.Join(err, v.dev.Close(ctx), os.RemoveAll(dir))
	}
	v.srv = nbd.NewServer(map[string]nbd.Export{v.dev.Name(): v.dev}, nbd.Config{}, nil)
	go func() { v.done <- v.srv.Serve(context.Background(), l) }()
	return v, nil
}

func protocol(c *backend.Connection, a backend.Auth) (device.Protocol, error) {
	if c.Transport == backend.NVMe {
		host, err := hostID(c)
		if err != nil {
			return nil, err
		}
		return device.NVMe{Subsystem: c.Target, NSID: c.NSID, HostNQN: c.Initiator, HostID: host, KeepAlive: keepAlive,
			Auth: nvmeauth.Credentials{Secret: a.DHCHAP.Host, ControllerSecret: a.DHCHAP.Controller}}, nil
	}
	lun, err := scsi.LUNFromNumber(c.LUN)
	return device.ISCSI{Target: c.Target, LUN: lun, Initiator: c.Initiator, Auth: iscsiauth.Credentials{User: a.CHAP.User,
		Secret: a.CHAP.Secret, MutualUser: a.CHAP.MutualUser, MutualSecret: a.CHAP.MutualSecret}}, err
}

// Status is the device's.
func (v *Volume) Status() datapath.Status { return v.dev.Status() }

// Close unstages it.
func (v *Volume) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	err := v.srv.Drain(ctx)
	if served := <-v.done; !errors.Is(served, nbd.ErrDraining) {
		err = errors.Join(err, served)
	}
	return errors.Join(err, v.dev.Close(ctx), os.RemoveAll(v.dir))
}
