package directory

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/durable"
)

// A directory whose file system is not mounted looks like a new pool: all volumes
// would be "not found", so that deleting them succeeds, and new ones would be made
// below the mount point. So the directory has a mark, and somebody else knows it.
const (
	markName = ".pool"
	// markPrefix is the format of marks, version 1; 32 hexadecimal digits follow.
	markPrefix = "csi-mpath pool 1 "
)

// recognize refuses a directory that is not the one which the file known is about.
// One that nobody knows yet is from then on.
func (s *Store) recognize(known string) error {
	if known == "" {
		return nil
	}
	path := filepath.Join(s.dir, markName)
	mark, err := readMark(path)
	last, err2 := readMark(known)
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	if last != "" && last != mark {
		return fmt.Errorf("%w: it is not the directory that this pool had: is its file system mounted? If the pool is to begin anew here, remove %s", backend.ErrUnavailable, known)
	}
	if mark == "" {
		mark = newMark()
		err := space(durable.Write(path, []byte(mark)))
		if errors.Is(err, backend.ErrNoSpace) {
			return nil // a full disk must not keep an agent from serving what is there
		}
		if err != nil {
			return err
		}
	}
	if last != "" {
		return nil
	}
	return errors.Join(durable.Own(filepath.Dir(known)), durable.Write(known, []byte(mark)))
}

func newMark() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return markPrefix + hex.EncodeToString(b[:]) + "\n"
}

// readMark is "" if there is none.
func readMark(path string) (string, error) {
	b, err := durable.Read(path, maxRecord)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	digits, ok := strings.CutPrefix(strings.TrimSuffix(string(b), "\n"), markPrefix)
	if raw, err := hex.DecodeString(digits); !ok || err != nil || len(raw) != 16 {
		return "", fmt.Errorf("%s is no mark of a pool that this program reads", path)
	}
	return string(b), nil
}
