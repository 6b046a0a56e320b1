package device

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/csi-mpath/csi-mpath/pkg/durable"
	"github.com/csi-mpath/csi-mpath/pkg/fuseblk"
)

// fuseAttachment is a loop device over FUSE.
type fuseAttachment struct {
	*fuseblk.Device
}

func (a fuseAttachment) path() string { return a.Path() }
func (a fuseAttachment) stays() bool  { return false }

func (a fuseAttachment) warnings() []string {
	return []string{"attached over FUSE, for development only: when this process ends, what uses the device gets I/O errors"}
}

func (a fuseAttachment) resize(ctx context.Context, _ uint64) error { return a.Resize(ctx) }
func (a fuseAttachment) detach(ctx context.Context) error           { return a.Detach(ctx) }
func (a fuseAttachment) leave(ctx context.Context) error            { return a.Close(ctx) }

// fuseDir is where a volume is mounted. Who holds the volume's lock owns it.
func fuseDir(stateDir, volume string) string {
	return filepath.Join(stateDir, durable.FileName(volume)+".fuse")
}

// attachFUSE makes the volume a block device; what a killed process left of it is
// taken away.
func (d *Device) attachFUSE(ctx context.Context) (*BlockDevice, error) {
	f, err := fuseblk.Attach(ctx, fuseDir(d.cfg.StateDir, d.cfg.Name), d)
	if err != nil {
		return nil, fmt.Errorf("volume %s: %w", d.cfg.Name, err)
	}
	b := &BlockDevice{at: fuseAttachment{f}, gone: make(chan struct{})}
	go func() {
		<-f.Gone()
		b.once.Do(func() { close(b.gone) })
	}()
	d.onGrowth(b)
	return b, nil
}

// detachFUSE removes what a killed process left of a volume attached over FUSE.
// No path means that there is nothing.
func detachFUSE(stateDir, volume string) (path string, err error) {
	dir := fuseDir(stateDir, volume)
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	unlock, err := durable.Lock(filepath.Join(stateDir, durable.FileName(volume)+".lock"), true)
	if errors.Is(err, durable.ErrLocked) {
		return dir, fmt.Errorf("volume %s is served over FUSE by a process: end that, and its block device goes, too", volume)
	}
	if err != nil {
		return dir, err
	}
	err = fuseblk.Sweep(dir)
	unlock()
	return dir, errors.Join(err, forgetRecord(stateDir, volume))
}
