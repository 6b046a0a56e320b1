package device

import (
	"encoding/json"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/datapath"
	"github.com/csi-mpath/csi-mpath/pkg/durable"
)

// learnedVersion is the format of what was learned. Version 1 is the first.
const learnedVersion = 1

// learned is what a volume's traffic taught, for the process after this one. It
// is advice: what can not be read costs a few seconds of trying again.
type learned struct {
	Version       int           `json:"version"`
	MergeDeadline time.Duration `json:"mergeDeadlineNanoseconds"`
}

// readLearned returns the merge deadline that was found, 0 if none was.
func readLearned(path string) time.Duration {
	b, err := durable.Read(path, maxStateFile)
	if err != nil {
		return 0
	}
	var l learned
	if json.Unmarshal(b, &l) != nil || l.Version != learnedVersion || l.MergeDeadline < 0 || l.MergeDeadline > datapath.MaxMergeDeadline {
		return 0
	}
	return l.MergeDeadline
}

// learn keeps what was found. A failure is no reason to disturb the volume.
func (d *Device) learn(t time.Duration) {
	_ = replaceFile(d.learned, learned{Version: learnedVersion, MergeDeadline: t})
}
