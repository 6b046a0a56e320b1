package device

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/datapath"
)

// Order is what an operator asks of a volume's paths.
type Order string

// The orders. The first three name a path.
const (
	OrderDrain    Order = "drain"
	OrderEnable   Order = "enable"
	OrderPrefer   Order = "prefer"
	OrderFailback Order = "failback"
	OrderMerge    Order = "merge-deadline" // Value is as --merge-deadline takes it
	orderStatus   Order = "status"
)

// request is one line of JSON on a volume's control socket. A later version
// may add fields, and orders that an older server refuses by name.
type request struct {
	Version int    `json:"v"`
	Order   Order  `json:"order"`
	Path    string `json:"path,omitempty"`
	Value   string `json:"value,omitempty"`
}

// reply answers a request: the status after it, and what went wrong.
type reply struct {
	datapath.Status
	Error string `json:"error,omitempty"`
}

// serve answers one connection. One that asks nothing gets the status.
func (s *statusServer) serve(c net.Conn) {
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(statusTimeout))
	q := request{Version: 1, Order: orderStatus}
	line, err := bufio.NewReader(io.LimitReader(c, maxRequest)).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &q)
	} else if len(line) == 0 {
		err = nil
	}
	_ = c.SetDeadline(time.Now().Add(statusTimeout))
	if err == nil {
		err = carryOut(s.dp, q)
	}
	r := reply{Status: s.dp.Status()}
	if err != nil {
		r.Error = err.Error()
	}
	_ = json.NewEncoder(c).Encode(r)
}

func carryOut(dp *datapath.Device, q request) error {
	switch q.Order {
	case orderStatus:
		return nil
	case OrderDrain:
		return dp.Drain(q.Path)
	case OrderEnable:
		return dp.Enable(q.Path)
	case OrderPrefer:
		return dp.Prefer(q.Path)
	case OrderMerge:
		t, err := ParseMergeDeadline(q.Value)
		if err != nil {
			return err
		}
		return dp.SetMergeDeadline(t)
	case OrderFailback:
		dp.Failback()
		return nil
	}
	return fmt.Errorf("order %q is not known to the process that serves the volume: it may be older than this program", q.Order)
}

// ParseMergeDeadline reads a merge deadline: off, auto, 0 or a duration.
func ParseMergeDeadline(s string) (time.Duration, error) {
	switch s {
	case "off":
		return datapath.MergeOff, nil
	case "auto":
		return datapath.MergeAuto, nil
	}
	t, err := time.ParseDuration(s)
	if err != nil || t < 0 || t > datapath.MaxMergeDeadline {
		return 0, fmt.Errorf("merge deadline %q is neither 'off' nor 'auto' nor a duration of 0 to %v, like 20us", s, datapath.MaxMergeDeadline)
	}
	return t, nil
}

// Do gives an order to the process that has the volume attached, and returns
// the status after it.
func Do(dir, volume string, o Order, path string) (datapath.Status, error) {
	return order(dir, volume, request{Version: 1, Order: o, Path: path})
}

// SetMergeDeadline changes the merge deadline of a volume that another process
// has attached.
func SetMergeDeadline(dir, volume, value string) (datapath.Status, error) {
	return order(dir, volume, request{Version: 1, Order: OrderMerge, Value: value})
}

func order(dir, volume string, q request) (datapath.Status, error) {
	r, err := ask(filepath.Join(dir, fileName(volume)+".ctl"), q)
	if errors.Is(err, errStale) {
		err = fmt.Errorf("volume %s is not attached with state directory %s; see 'csi-mpath paths'", volume, dir)
	} else if err == nil && r.Error != "" {
		err = errors.New(r.Error)
	}
	return r.Status, err
}

// ask sends one request to a control socket.
func ask(path string, q request) (r reply, err error) {
	c, err := net.DialTimeout("unix", path, statusTimeout)
	if err != nil {
		if stale(err) {
			return r, errStale
		}
		return r, fmt.Errorf("status of %s: %w", path, err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(statusTimeout))
	line, err := json.Marshal(q)
	if err == nil {
		_, err = c.Write(append(line, '\n'))
	}
	if err == nil {
		err = json.NewDecoder(io.LimitReader(c, maxStatus)).Decode(&r)
	}
	if err != nil {
		err = fmt.Errorf("status of %s: %w", path, err)
	}
	return r, err
}
