package device

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sort"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csi-mpath/csi-mpath/pkg/datapath"
)

// statusServer answers one request per connection on a unix socket (order.go).
// Who may connect is decided by the mode of the state directory.
type statusServer struct {
	dev  *Device
	l    net.Listener
	wg   sync.WaitGroup
	path string
}

func serveStatus(path string, dev *Device) (*statusServer, error) {
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
	s := &statusServer{dev: dev, l: l, path: path}
	s.wg.Go(s.accept)
	return s, nil
}

func (s *statusServer) accept() {
	slots := make(chan struct{}, maxRequests)
	for {
		slots <- struct{}{}
		c, err := s.l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of file descriptors, most likely: that passes
			<-slots
			time.Sleep(acceptPause)
			continue
		}
		s.wg.Go(func() { s.serve(c); <-slots })
	}
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
		r, err := ask(n, request{Version: 1, Order: orderStatus})
		switch {
		case errors.Is(err, errStale):
		case err != nil:
			errs = append(errs, err)
		default:
			out = append(out, r.Status)
		}
	}
	return out, errors.Join(errs...)
}

// errStale: the socket of a process that is gone.
var errStale = errors.New("stale socket")

// stale reports that nobody listens on a unix socket any more.
func stale(err error) bool {
	return errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.ENOENT)
}
