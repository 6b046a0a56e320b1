package attach

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"github.com/csi-mpath/csi-mpath/pkg/device"
	"github.com/csi-mpath/csi-mpath/pkg/durable"
	"github.com/csi-mpath/csi-mpath/pkg/nbd"
)

// Sockets makes devices NBD exports, each on a unix socket in a directory of the
// node's own: for clients in user space, and for machines without the nbd module.
func Sockets(dir string) Face { return socketFace{dir} }

type socketFace struct{ dir string }

func (socketFace) attachment() device.Attachment { return "" }

// file is the socket of a volume.
func (f socketFace) file(volume string) string {
	return filepath.Join(f.dir, durable.FileName(volume)+".nbd")
}

func (f socketFace) attach(_ context.Context, d *device.Device, srv *nbd.Server) (shown, error) {
	s := &socket{file: f.file(d.Name()), d: d}
	if err := f.discard(context.Background(), d.Name(), ""); err != nil { // of a dead process: the device's lock says that nobody serves it
		return nil, err
	}
	l, err := net.Listen("unix", s.file)
	if err != nil {
		return nil, fmt.Errorf("volume %s: %w", d.Name(), err)
	}
	go func() { _ = srv.Serve(context.Background(), l) }() // until Drain
	return s, nil
}

func (f socketFace) discard(_ context.Context, volume, _ string) error {
	if err := os.Remove(f.file(volume)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// socket is a device on a socket. Clients flush by themselves.
type socket struct {
	file string
	d    *device.Device
}

func (s *socket) path() string { return s.file }

func (s *socket) flush(context.Context) error { return nil }

func (s *socket) leave(context.Context) error { return nil }

func (s *socket) detach(context.Context) error {
	if err := os.Remove(s.file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
