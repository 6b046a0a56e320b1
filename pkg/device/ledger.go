package device

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/csi-mpath/csi-mpath/pkg/datapath"
)

// ledgerFile is a volume's in-flight table, mapped so that it outlives the
// process: what the next one needs for I3 and I8. It lies on a file system in
// memory (/run): a table that needs a disk would be a disk's wait per write.
type ledgerFile struct {
	path string
	mem  []byte
}

const unreadable = "unreadable"

func openLedger(path string) (*ledgerFile, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600) //nolint:gosec // a file of our own state directory
	if err != nil {
		return nil, fmt.Errorf("in-flight table: %w", err)
	}
	defer func() { _ = f.Close() }()
	st, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("in-flight table: %w", err)
	}
	if st.Size() != 0 && st.Size() != int64(datapath.LedgerSize) {
		// Another version's, or cut: its content can not be trusted. A first word
		// that is no magic makes the datapath treat everything as in doubt.
		// Never empty in between: an empty one is a new one.
		_, err := f.WriteAt([]byte(unreadable), 0)
		if err == nil {
			err = f.Truncate(int64(len(unreadable)))
		}
		if err != nil {
			return nil, fmt.Errorf("in-flight table %s: %w", path, err)
		}
	}
	if err := f.Truncate(int64(datapath.LedgerSize)); err != nil {
		return nil, fmt.Errorf("in-flight table %s: %w", path, err)
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, datapath.LedgerSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("in-flight table %s: map: %w", path, err)
	}
	return &ledgerFile{path: path, mem: mem}, nil
}

// close unmaps the table. Only after a clean end, with nothing in doubt, is
// the file removed: otherwise it is what the next process starts from.
func (l *ledgerFile) close(clean bool) error {
	err := unix.Munmap(l.mem)
	if clean {
		err = errors.Join(err, os.Remove(l.path))
	}
	return err
}
