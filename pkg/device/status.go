package device

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"time"

	"crypto/sha256"
	"encoding/hex"

	"github.com/csi-mpath/csi-mpath/pkg/datapath"
)

// statusServer answers every connection on a unix socket with the device's
// status as JSON, and closes it. Who may connect is decided by the mode of the
// state directory.
type statusServer struct {
	l    net.Listener
	wg   sync.WaitGroup
	path string
}

func serveStatus(path string, status func() datapath.Status) (*statusServer, error) {
	if len(path) > 107 {
		return nil, fmt.Errorf("the status socket %s has a path longer than the 107 bytes a unix socket may have: use a shorter --state-dir", path)
	}
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return nil, err // of a dead process: the lock says that nobody else is alive
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("status socket: %w", err)
	}
	s := &statusServer{l: l, path: path}
	s.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.SetDeadline(time.Now().Add(statusTimeout))
			_ = json.NewEncoder(c).Encode(status())
			_ = c.Close()
		}
	})
	return s, nil
}

func (s *statusServer) close() {
	_ = s.l.Close()
	s.wg.Wait()
}

// ReadStatus asks every volume attached with this state directory. A volume
// whose process does not answer is in the error; the others are returned.
func ReadStatus(dir string) ([]datapath.Status, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.ctl"))
	if err != nil {
		return nil, err
	}
	sort.Strings(names)
	var out []datapath.Status
	var errs []error
	for _, n := range names {
		st, err := readOne(n)
		switch {
		case errors.Is(err, errStale):
		case err != nil:
			errs = append(errs, err)
		default:
			out = append(out, st)
		}
	}
	return out, errors.Join(errs...)
}

// errStale: the socket of a process that is gone.
var errStale = errors.New("stale socket")

func readOne(path string) (st datapath.Status, err error) {
	c, err := net.DialTimeout("unix", path, statusTimeout)
	if err != nil {
		if strings.Contains(err.Error(), "connection refused") {
			return st, errStale
		}
		return st, fmt.Errorf("status of %s: %w", path, err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(statusTimeout))
	if err := json.NewDecoder(io.LimitReader(c, maxStatus)).Decode(&st); err != nil {
		return st, fmt.Errorf("status of %s: %w", path, err)
	}
	return st, nil
}

// fileName makes a volume's name a file name: readable, short, unique.
func fileName(name string) string {
	sum := sha256.Sum256([]byte(name))
	clean := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_':
			return r
		}
		return '-'
	}, name)
	if len(clean) > 32 {
		clean = clean[len(clean)-32:]
	}
	return clean + "-" + hex.EncodeToString(sum[:4])
}
