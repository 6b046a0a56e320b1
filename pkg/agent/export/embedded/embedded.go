// Package embedded serves volumes with the target in this process (pkg/target):
// no kernel target, no root. Each volume is a target of its own; all of them
// share the exporter's portals.
//
//	x, err := embedded.New(embedded.Config{Transport: backend.ISCSI,
//		Portals: []embedded.Portal{{Listen: "192.0.2.1:3260"}}})
//	changed, err := x.Ensure(ctx, e)
//
// What is served ends with the process: its sockets are reset, and the next
// process serves what it is told to, under the same names. Reservations,
// registrations and sessions begin anew then.
//
// Ensure (ensure.go) makes or changes a volume's target; iscsi.go and nvme.go
// are what differs between the transports; list.go tells what there is.
package embedded

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/agent/export"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/target"
	"github.com/csi-mpath/csi-mpath/pkg/target/serve"
)

// Config describes an exporter.
type Config struct {
	Transport backend.Transport
	Portals   []Portal // 1..16
}

// Portal is a listening address for all volumes; port 0 is any. Group 0 is 1, or
// over NVMe the portal's place, from 1. Sessions are reinstated within a portal
// group, so that one for all portals is best.
type Portal = export.Portal

var _ export.Exporter = (*Exporter)(nil)

// Exporter implements export.Exporter.
type Exporter struct {
	transport backend.Transport
	proto     protocol
	doors     []*door
	open      func(e *export.Export) (target.Store, error)

	mu      sync.Mutex
	volumes map[string]*volume // by identity
	closed  bool
}

// door is a portal that is open.
type door struct {
	*serve.Door
	portal backend.Portal
}

// protocol is what differs between the transports.
type protocol interface {
	Listen(addr string) (*serve.Door, error)
	Add(t serve.Served) error
	Remove(t serve.Served)
	Close() error
	// build makes a volume's target, which lets nobody in.
	build(e *export.Export, st target.Store) (server, error)
	// check refuses access that cannot be given.
	check(a []export.Access) error
	// changed tells those who asked which targets there are.
	changed()
}

// server is a volume's target.
type server interface {
	serve.Served
	Close() error
	// grant lets in exactly those named; over is closed when nothing of the others
	// runs any more.
	grant(a []export.Access) (changed bool, over <-chan struct{}, err error)
	// grow makes the volume as large as its backing is now, and tells initiators.
	grow(size uint64) error
	Granted() []string
	Attached() []serve.Attached
	Pause() (*serve.Pause, error)
}

// New listens on all portals. An address that is taken is waited for, up to 15 s.
func New(c Config) (*Exporter, error) {
	if len(c.Portals) == 0 || len(c.Portals) > maxPortals {
		return nil, fmt.Errorf("%w: %d portals: want 1..%d", backend.ErrInvalid, len(c.Portals), maxPortals)
	}
	var err error
	x := &Exporter{transport: c.Transport, volumes: map[string]*volume{}, open: openStore}
	switch c.Transport {
	case backend.ISCSI:
		x.proto, err = newISCSI()
	case backend.NVMe:
		x.proto, err = newNVMe()
	default:
		err = fmt.Errorf("%w: transport %q", backend.ErrInvalid, c.Transport)
	}
	if err != nil {
		return nil, err
	}
	for i, p := range c.Portals {
		if p.Group == 0 {
			p.Group = 1
			if c.Transport == backend.NVMe {
				p.Group = uint16(i + 1)
			}
		}
		if err := x.listen(p); err != nil {
			return nil, errors.Join(err, x.proto.Close())
		}
	}
	return x, nil
}

// listen opens a portal.
func (x *Exporter) listen(p Portal) error {
	if _, _, err := p.Check(); err != nil {
		return err
	}
	d, err := x.take(p.Listen)
	if err != nil {
		return err
	}
	if p.Advertise == "" {
		p.Advertise = d.Addr()
	}
	x.doors = append(x.doors, &door{d, backend.Portal{Address: p.Advertise, Group: p.Group}})
	return nil
}

// take listens, when the address becomes free.
func (x *Exporter) take(addr string) (*serve.Door, error) {
	for end := time.Now().Add(listenTime); ; time.Sleep(listenPause) {
		d, err := x.proto.Listen(addr)
		if err == nil || !errors.Is(err, syscall.EADDRINUSE) || time.Now().After(end) {
			return d, err
		}
	}
}

// Kind is "embedded".
func (x *Exporter) Kind() string { return "embedded" }

// Transport is that of the configuration.
func (x *Exporter) Transport() backend.Transport { return x.transport }

// Portals are where nodes find what is exported.
func (x *Exporter) Portals() (out []backend.Portal) {
	for _, d := range x.doors {
		out = append(out, d.portal)
	}
	return out
}

// Target is the same for all initiators.
func (x *Exporter) Target(identity, _ string) string { return export.Target(x.transport, identity) }

// Close resets all connections, and makes the stores durable. A store that hangs
// is left behind after 20 s, with an error.
func (x *Exporter) Close() error {
	x.mu.Lock()
	x.closed = true
	all := make([]*volume, 0, len(x.volumes))
	for _, v := range x.volumes {
		all = append(all, v)
	}
	x.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	errs := []error{x.proto.Close()}
	for _, v := range all {
		v.end(x)
	}
	for _, v := range all {
		errs = append(errs, v.ended(ctx))
	}
	return errors.Join(errs...)
}

var errClosed = fmt.Errorf("embedded target: %w", net.ErrClosed)
