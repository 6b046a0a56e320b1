package device

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/datapath"
	"github.com/csi-mpath/csi-mpath/pkg/iscsi"
	"github.com/csi-mpath/csi-mpath/pkg/nvmetcp"
	"github.com/csi-mpath/csi-mpath/pkg/poll"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
)

// Protocol says which volume, and how it is reached: ISCSI or NVMe. All paths of
// a volume speak one.
type Protocol interface {
	// withDefaults fills what is empty, and says what cannot be.
	withDefaults() (Protocol, error)
	// volume is what the volume is called when it is given no name.
	volume() string
	// port is a portal's that names none.
	port() string
	// nexus names who asks whom for what: part of the in-flight table's key.
	nexus() string
	// paths makes a path for each of d's portals.
	paths(d *Device) ([]path, error)
}

// path is one portal of a volume.
type path interface {
	datapath.Transport
	setPolling(poll.Polling)
	// renew changes the secrets of logins to come.
	renew(Protocol) error
	// relogin changes what logins to come are made with; the session in use keeps
	// what it has.
	relogin(login)
}

// session is what a path brings up: an iSCSI session or an NVMe controller.
type session interface {
	Stats() (recvs, sends, stale uint64)
	SetPolling(poll.Polling)
	Err() error
	Abort(cause error)
}

// definite marks what no retry will cure.
func definite(err error) error {
	for _, e := range []error{iscsi.ErrAuth, iscsi.ErrForbidden, iscsi.ErrNotFound, scsi.ErrNoUnit,
		nvmetcp.ErrAuth, nvmetcp.ErrForbidden, nvmetcp.ErrNotFound, nvmetcp.ErrNoNamespace} {
		if errors.Is(err, e) {
			return fmt.Errorf("%w (%w)", err, datapath.ErrDefinite)
		}
	}
	return err
}

// way is what a path has whatever it speaks. cfg, portal and number are constant.
type way struct {
	cfg    *Config
	portal string
	number int     // of the portal, from 0
	places *places // nil: nowhere

	mu      sync.Mutex
	polling poll.Polling // of the session in use and of those to come
	cur     session      // the latest; nil before the first
}

// newWay is portal i of a volume.
func (d *Device) newWay(i int) way {
	return way{cfg: &d.cfg, portal: d.cfg.Portals[i], number: i, places: d.was, polling: d.cfg.Polling}
}

// source is what the path's sockets are bound to; empty: the kernel's choice.
func (d *Device) source(i int) string {
	if i < len(d.cfg.Sources) {
		return d.cfg.Sources[i]
	}
	return ""
}

// dialTime bounds one TCP connect, and one login.
func (c *Config) dialTime() time.Duration { return dialTime(c.PathTimeout) }

func dialTime(pathTimeout time.Duration) time.Duration { return max(pathTimeout, loginMin) }

// login are the tunables that a path takes from its login to its end.
type login struct {
	source                                 string
	pathTimeout, commandTimeout, keepAlive time.Duration
}

// Name implements datapath.Transport.
func (w *way) Name() string { return w.portal }

// took makes s the session in use.
func (w *way) took(s session) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cur = s
	s.SetPolling(w.polling) // it may have changed since the dial
}

// setPolling changes the session in use and those to come.
func (w *way) setPolling(v poll.Polling) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.polling = v
	if w.cur != nil {
		w.cur.SetPolling(v)
	}
}

func (w *way) alive() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cur != nil && w.cur.Err() == nil
}

// access is what a protocol's access state means; an unknown one takes no I/O.
func access[S comparable](known map[S]datapath.Access, state S) datapath.Access {
	if a, ok := known[state]; ok {
		return a
	}
	return datapath.Unavailable
}

// unit is a session's view of the volume: a LUN or a namespace.
type unit interface {
	Submit(c *blk.Command, lane int) bool
	Kick(lane int)
	Gate() uint32
	Resume(upTo uint32)
	Latency() time.Duration
	Samples() (n uint64, took, waiting time.Duration)
}

// view is the part of a datapath.Queue that is the same over both protocols.
// gate belongs to the path's control goroutine, the rest is constant.
type view struct {
	s     session
	u     unit
	facts datapath.Facts
	gate  uint32 // of the last Refresh, for Resume
}

// Facts implements datapath.Queue.
func (v *view) Facts() datapath.Facts { return v.facts }

// Submit implements datapath.Queue.
func (v *view) Submit(c *blk.Command, lane int) bool { return v.u.Submit(c, lane) }

// Kick implements datapath.Queue.
func (v *view) Kick(lane int) { v.u.Kick(lane) }

// Stats implements datapath.Queue.
func (v *view) Stats() datapath.QueueStats {
	recvs, sends, _ := v.s.Stats()
	st := datapath.QueueStats{Latency: v.u.Latency(), Recvs: recvs, Sends: sends}
	st.Answers, st.Busy, st.Waiting = v.u.Samples()
	return st
}

// Resume implements datapath.Queue.
func (v *view) Resume() { v.u.Resume(v.gate) }

// Abort implements datapath.Queue.
func (v *view) Abort(cause error) { v.s.Abort(cause) }
