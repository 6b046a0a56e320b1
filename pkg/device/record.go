package device

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/csi-mpath/csi-mpath/pkg/datapath"
	"github.com/csi-mpath/csi-mpath/pkg/durable"
)

// recordVersion is the format of a volume's record. Version 1 is the first.
const recordVersion = 1

// record is what a volume was when it was last served: the process that takes
// it over after a kill, or finds its block device, accepts nothing else behind
// its portals (I1, I8). It counts for one boot.
type record struct {
	Version  int               `json:"version"`
	Boot     string            `json:"bootID"`
	Volume   string            `json:"volume"`
	Identity datapath.Identity `json:"identity"`
	Size     uint64            `json:"sizeBytes"`
}

// readRecord returns nil when there is none, or one of another boot.
func readRecord(path string) (*record, error) {
	b, err := durable.Read(path, maxStateFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r := &record{}
	if err := json.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("record %s is damaged (%w): remove it if the volume is not in use", path, err)
	}
	if r.Version != recordVersion {
		return nil, fmt.Errorf("record %s has version %d, this program reads %d", path, r.Version, recordVersion)
	}
	if r.Boot != durable.BootID() {
		return nil, nil
	}
	return r, nil
}

// remember writes the record of the volume as it is.
func (d *Device) remember() error {
	st := d.dp.Status()
	return writeFile(d.record, &record{Version: recordVersion, Boot: durable.BootID(), Volume: d.cfg.Name, Identity: st.Identity, Size: st.Size})
}

// Keep says that something of the volume stays after Close, its block device:
// the record stays, so that the next process serves the same volume or none.
func (d *Device) Keep() { d.keep.Store(true) }

// forgetRecord removes the record of a volume that no process holds.
func forgetRecord(stateDir, volume string) error {
	base := filepath.Join(stateDir, durable.FileName(volume))
	unlock, err := durable.Lock(base+".lock", true)
	if errors.Is(err, durable.ErrLocked) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unlock()
	return errors.Join(removeIfThere(base+".volume"), removeIfThere(base+reservationSuffix), removeIfThere(base+".lock"))
}

func (d *Device) forget() error {
	if d.keep.Load() {
		return nil
	}
	return errors.Join(removeIfThere(d.record), removeIfThere(d.holds))
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
