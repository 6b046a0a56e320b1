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
	"github.com/csi-mpath/csi-mpath/pkg/durable"
	"github.com/csi-mpath/csi-mpath/pkg/portal"
)

// Order is what an operator asks of a volume's paths.
type Order string

// The orders. The first three name a path.
const (
	OrderDrain    Order = "drain"
	OrderEnable   Order = "enable"
	OrderPrefer   Order = "prefer"
	OrderFailback Order = "failback"
	orderTune     Order = "tune" // Key and Value
	orderStatus   Order = "status"
)

// request is one line of JSON on a volume's control socket. A later version
// may add fields, and orders that an older server refuses by name.
type request struct {
	Version int    `json:"v"`
	Order   Order  `json:"order"`
	Path    string `json:"path,omitempty"`
	Key     string `json:"key,omitempty"`
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
		err = carryOut(s.dev, q)
	}
	r := reply{Status: s.dev.Status()}
	if err != nil {
		r.Error = err.Error()
	}
	_ = json.NewEncoder(c).Encode(r)
}

func carryOut(d *Device, q request) error {
	switch q.Order {
	case orderStatus:
		return nil
	case orderTune:
		return d.Tune(q.Key, q.Value)
	}
	return d.Order(q.Order, q.Path)
}

// Order does what an operator asks of a path, or with OrderFailback of all. It
// takes effect at once.
func (d *Device) Order(o Order, path string) error {
	if path != "" { // a portal without a port has its protocol's
		p, err := portal.Normalize(path, d.cfg.Protocol.port())
		if err != nil {
			return err
		}
		path = p
	}
	switch o {
	case OrderDrain:
		return d.dp.Drain(path)
	case OrderEnable:
		return d.dp.Enable(path)
	case OrderPrefer:
		return d.dp.Prefer(path)
	case OrderFailback:
		d.dp.Failback()
		return nil
	}
	return fmt.Errorf("order %q is not known to the process that serves the volume: it may be older than this program", o)
}

// Do gives an order to the process that has the volume attached, and returns
// the status after it.
func Do(dir, volume string, o Order, path string) (datapath.Status, error) {
	return order(dir, volume, request{Version: 1, Order: o, Path: path})
}

// Tune changes a tunable of a volume that another process has attached; see
// Device.Tune.
func Tune(dir, volume, key, value string) (datapath.Status, error) {
	return order(dir, volume, request{Version: 1, Order: orderTune, Key: key, Value: value})
}

func order(dir, volume string, q request) (datapath.Status, error) {
	r, err := ask(filepath.Join(dir, durable.FileName(volume)+".ctl"), q)
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
