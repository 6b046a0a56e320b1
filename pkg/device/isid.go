package device

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/csi-mpath/csi-mpath/pkg/durable"
)

// isidVersion is the format of the ISID file. Version 1 is the first.
const isidVersion = 1

// isidFile is what isids.json holds: the ISID of each path, by a key made of
// initiator, target, portal and volume.
type isidFile struct {
	Version int               `json:"version"`
	ISIDs   map[string]string `json:"isids"`
}

// isids hands out ISIDs that are the same again after a restart: logging in
// with the old one is what ends the tasks of a dead predecessor (I3), and
// unique per path (RFC 7143 4.4.3.1, case A-41).
type isids struct{ dir string }

// get returns the ISIDs of a volume's paths, made and stored at their first use:
// all at once, since the file is that of all volumes.
func (s isids) get(keys ...string) ([][6]byte, error) {
	unlock, err := durable.Lock(filepath.Join(s.dir, "isids.lock"), false)
	if err != nil {
		return nil, err
	}
	defer unlock()
	path := filepath.Join(s.dir, "isids.json")
	f, err := readISIDs(path)
	if err != nil {
		return nil, err
	}
	known := len(f.ISIDs)
	out := make([][6]byte, 0, len(keys))
	group := f.group(keys)
	for _, key := range keys {
		isid, err := f.get(key, group)
		if err != nil {
			return nil, fmt.Errorf("%s: %w; move it away once no volume is attached", path, err)
		}
		out = append(out, isid)
	}
	if len(f.ISIDs) == known {
		return out, nil
	}
	return out, writeFile(path, f)
}

// group is what the ISIDs of a volume's paths have in common, the random number of a type
// 10b ISID (RFC 7143 11.12.5): that of one of them, or a new one. LIO takes sessions of
// one initiator for the same I_T nexus by these four bytes alone when it asks who holds a
// reservation: with others, only the path that reserved could write.
func (f *isidFile) group(keys []string) (g [4]byte) {
	for _, key := range keys {
		if b, err := hex.DecodeString(f.ISIDs[key]); err == nil && len(b) == 6 {
			return [4]byte(b)
		}
	}
	_, _ = rand.Read(g[1:]) // never fails (crypto/rand)
	g[0] = 0x80
	return g
}

// get finds the ISID of a path, or draws one of a group.
func (f *isidFile) get(key string, group [4]byte) (isid [6]byte, err error) {
	if text, ok := f.ISIDs[key]; ok {
		b, err := hex.DecodeString(text)
		if err != nil || len(b) != len(isid) {
			return isid, fmt.Errorf("the ISID of %q is damaged", key)
		}
		return [6]byte(b), nil
	}
	if len(f.ISIDs) >= maxISIDs {
		return isid, fmt.Errorf("it holds %d ISIDs", len(f.ISIDs))
	}
	isid = f.fresh(group)
	f.ISIDs[key] = hex.EncodeToString(isid[:])
	return isid, nil
}

// fresh draws an ISID's qualifier, so that no other path has it.
func (f *isidFile) fresh(group [4]byte) (isid [6]byte) {
	copy(isid[:], group[:])
	taken := make(map[string]bool, len(f.ISIDs))
	for _, v := range f.ISIDs {
		taken[v] = true
	}
	for {
		_, _ = rand.Read(isid[4:]) // never fails (crypto/rand)
		if !taken[hex.EncodeToString(isid[:])] {
			return isid
		}
	}
}

func readISIDs(path string) (f isidFile, err error) {
	b, err := durable.Read(path, maxStateFile)
	if errors.Is(err, fs.ErrNotExist) {
		return isidFile{Version: isidVersion, ISIDs: map[string]string{}}, nil
	}
	if err != nil {
		return f, err
	}
	if err := json.Unmarshal(b, &f); err != nil {
		return f, fmt.Errorf("%s is damaged (%w); move it away once no volume is attached", path, err)
	}
	if f.Version != isidVersion {
		return f, fmt.Errorf("%s has version %d, this program reads %d", path, f.Version, isidVersion)
	}
	if f.ISIDs == nil {
		f.ISIDs = map[string]string{}
	}
	return f, nil
}

// writeFile replaces path by v as JSON, on stable storage.
func writeFile(path string, v any) error {
	b, err := marshal(v)
	if err != nil {
		return err
	}
	return durable.Write(path, b)
}

// replaceFile is writeFile that need not survive more than a kill of this
// process.
func replaceFile(path string, v any) error {
	b, err := marshal(v)
	if err != nil {
		return err
	}
	return durable.Replace(path, b)
}

func marshal(v any) ([]byte, error) {
	b, err := json.MarshalIndent(v, "", " ")
	return append(b, '\n'), err
}
