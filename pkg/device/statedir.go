package device

import (
	"fmt"
	"os"
	"syscall"
)

// stateDir makes the state directory, and refuses one in which somebody else
// could plant or change files: what lies there decides what is written where.
func stateDir(path string) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	st, err := os.Lstat(path)
	if err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	switch {
	case !st.IsDir():
		return fmt.Errorf("state directory %s is no directory: choose another", path)
	case ok && int(sys.Uid) != os.Geteuid():
		return fmt.Errorf("state directory %s belongs to user %d: choose another", path, sys.Uid)
	case st.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("state directory %s may be written by others (mode %#o): chmod go-w it, or choose another", path, st.Mode().Perm())
	}
	return nil
}
