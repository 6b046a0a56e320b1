package volume

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"

	"github.com/csi-mpath/csi-mpath/pkg/durable"
	"github.com/csi-mpath/csi-mpath/pkg/tunable"
	"github.com/csi-mpath/csi-mpath/pkg/volume/attrs"
)

// recordVersion is the format of a volume's record. Version 1 is the first; a
// program reads its own and the one before.
const recordVersion = 1

// oldestRecord is the oldest version that is read.
const oldestRecord = 1

// phase is how far a volume is.
type phase string

// The phases. Each step of staging can be repeated in phaseStaging, each of
// unstaging in phaseUnstaging.
const (
	phaseStaging   phase = "staging"
	phaseStaged    phase = "staged"
	phaseUnstaging phase = "unstaging"
	// phaseDetached: no block device is left, and nobody's data.
	phaseDetached phase = "detached"
)

// use is how a volume is used: what a second Stage must not change.
type use struct {
	Staging string `json:"stagingPath"`
	Block   bool   `json:"block,omitempty"`
	// FSType, Options and Mkfs are empty for Block.
	FSType    string   `json:"fsType,omitempty"`
	Options   []string `json:"mountOptions,omitempty"`
	Mkfs      []string `json:"mkfsOptions,omitempty"`
	ReadOnly  bool     `json:"readOnly,omitempty"`
	Exclusive bool     `json:"exclusive,omitempty"`
}

// publication is one target path.
type publication struct {
	ReadOnly bool `json:"readOnly,omitempty"`
}

// record is what is kept of a volume until it is unstaged. It counts for one
// boot. Secrets are not in it (I10).
type record struct {
	Version int    `json:"version"`
	Boot    string `json:"bootID"`
	Volume  string `json:"volume"`
	Phase   phase  `json:"phase"`
	Use     use    `json:"use"`
	// Context is the attachment as publish_context has it.
	Context map[string]string `json:"publishContext"`
	// Generation and Tunables are the latest.
	Generation int64                  `json:"generation"`
	Tunables   map[string]string      `json:"tunables,omitempty"`
	Published  map[string]publication `json:"published,omitempty"`
	// Revoked says why its I/O fails; empty: it does not.
	Revoked string `json:"revoked,omitempty"`
}

// attached is the attachment in a record.
func (r *record) attached() (attrs.Attachment, error) { return attrs.ParsePublishContext(r.Context) }

// settings are the tunables in a record.
func (r *record) settings() (tunable.Settings, error) { return tunable.Parse(r.Tunables) }

// clone is a copy that may be changed.
func (r *record) clone() *record {
	c := *r
	c.Published, c.Tunables = maps.Clone(r.Published), maps.Clone(r.Tunables)
	return &c
}

// recordPath is the file of a volume's record, secretsPath that of its secrets.
func recordPath(dir, volume string) string {
	return filepath.Join(dir, durable.FileName(volume)+recordSuffix)
}

func secretsPath(dir, volume string) string {
	return filepath.Join(dir, durable.FileName(volume)+secretsSuffix)
}

const (
	recordSuffix  = ".staged"
	secretsSuffix = ".secrets"
)

func (r *record) write(dir string) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if len(b) > maxRecord {
		return fmt.Errorf("%w: its record would be %d bytes, at most %d", ErrInvalid, len(b), maxRecord)
	}
	return durable.Write(recordPath(dir, r.Volume), append(b, '\n'))
}

// readRecord is nil for one of another boot.
func readRecord(path, boot string) (*record, error) {
	b, err := durable.Read(path, maxRecord)
	if err != nil {
		return nil, err
	}
	r, err := parseRecord(b)
	if err != nil {
		return nil, fmt.Errorf("record %s is damaged: %w: NodeUnstageVolume of its volume removes it", path, err)
	}
	if r.Boot != boot {
		return nil, nil
	}
	if filepath.Base(path) != durable.FileName(r.Volume)+recordSuffix {
		return nil, fmt.Errorf("record %s is that of another volume, %s: remove the copy", path, clip(r.Volume))
	}
	return r, nil
}

// parseRecord reads a record, strictly: what it says decides what is mounted.
func parseRecord(b []byte) (*record, error) {
	r := &record{}
	if err := json.Unmarshal(b, r); err != nil {
		return nil, err
	}
	if r.Version < oldestRecord || r.Version > recordVersion {
		return nil, fmt.Errorf("version %d: this program reads %d to %d", r.Version, oldestRecord, recordVersion)
	}
	if err := checkVolume(r.Volume); err != nil {
		return nil, err
	}
	if !slices.Contains([]phase{phaseStaging, phaseStaged, phaseUnstaging, phaseDetached}, r.Phase) {
		return nil, fmt.Errorf("phase %q", clip(string(r.Phase)))
	}
	if len(r.Published) > maxTargets {
		return nil, fmt.Errorf("%d publications, at most %d", len(r.Published), maxTargets)
	}
	for target := range r.Published {
		if err := checkPath("target path", target); err != nil {
			return nil, err
		}
	}
	if err := r.Use.check(); err != nil {
		return nil, err
	}
	if _, err := r.attached(); err != nil {
		return nil, err
	}
	_, err := r.settings()
	return r, err
}

// differs says what two uses do not have in common, "" for nothing.
func (u use) differs(o use) string {
	a, b := reflect.ValueOf(u), reflect.ValueOf(o)
	for i := range a.NumField() {
		x, y := fmt.Sprint(a.Field(i).Interface()), fmt.Sprint(b.Field(i).Interface())
		if x != y {
			return fmt.Sprintf("%s %q instead of %q", a.Type().Field(i).Name, clip(y), clip(x))
		}
	}
	return ""
}
