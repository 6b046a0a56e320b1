// Package node plays a node for tests: what a backend's Connection says, logged
// in to with the product's initiators, without the datapath above them. Nothing
// is retried: what the target does is what the test sees.
package node

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/iscsi"
	iscsiauth "github.com/csi-mpath/csi-mpath/pkg/iscsi/auth"
	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	"github.com/csi-mpath/csi-mpath/pkg/nvmetcp"
	nvmeauth "github.com/csi-mpath/csi-mpath/pkg/nvmetcp/auth"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
)

// depth is how many commands of a Path are in flight at most.
const depth = 64

// Path is one session at one portal, and its volume there.
type Path struct {
	// WWID is the volume's identity, as Connection has it.
	WWID   string
	Limits blk.Limits
	Size   int64 // bytes

	queue queue
	drop  func(error)
	done  <-chan struct{}
	slots chan struct{}
	turn  chan struct{} // something was answered

	mu       sync.Mutex
	waiting  map[*blk.Command]chan error
	evidence chan blk.Evidence
	lost     bool
}

// queue is a LUN or a Namespace.
type queue interface {
	Submit(c *blk.Command, lane int) bool
	Kick(lane int)
}

// ErrLost is a command whose session ended: whether it was done is not known.
var ErrLost = errors.New("the session is lost")

// Dial logs in at one of the connection's portals. With auth it knows the secrets.
func Dial(ctx context.Context, c backend.Connection, portal int, auth backend.Auth) (*Path, error) {
	p := &Path{waiting: map[*blk.Command]chan error{}, slots: make(chan struct{}, depth), turn: make(chan struct{}, 1),
		evidence: make(chan blk.Evidence, depth)}
	if c.Transport == backend.NVMe {
		return p, p.nvme(ctx, &c, portal, auth)
	}
	return p, p.iscsi(ctx, &c, portal, auth)
}

func (p *Path) iscsi(ctx context.Context, c *backend.Connection, portal int, a backend.Auth) error {
	s, err := iscsi.Dial(ctx, iscsi.Config{Portal: c.Portals[portal].Address, InitiatorName: c.Initiator, TargetName: c.Target,
		ISID: [6]byte{0x80, 0, 0, 0, 0, byte(portal)}, Auth: iscsiauth.Credentials{User: a.CHAP.User, Secret: a.CHAP.Secret,
			MutualUser: a.CHAP.MutualUser, MutualSecret: a.CHAP.MutualSecret}})
	if err != nil {
		return err
	}
	p.drop, p.done = s.Abort, s.Done()
	lun, err := scsi.LUNFromNumber(c.LUN)
	if err != nil {
		return err
	}
	id, err := s.Identify(ctx, lun)
	if err != nil {
		p.Close()
		return err
	}
	p.WWID, p.Limits, p.Size = "3"+id.Identity().NAA, id.Profile.Limits(), int64(id.LastLBA+1)*int64(id.BlockSize)
	l := s.LUN(lun, depth, p)
	l.SetProfile(&id.Profile)
	p.queue = l
	return nil
}

func (p *Path) nvme(ctx context.Context, c *backend.Connection, portal int, a backend.Auth) error {
	host, err := hostID(c)
	if err != nil {
		return err
	}
	x, err := nvmetcp.Dial(ctx, nvmetcp.Config{Portal: c.Portals[portal].Address, Subsystem: c.Target, HostNQN: c.Initiator, HostID: host,
		Queues: 1, Auth: nvmeauth.Credentials{Secret: a.DHCHAP.Host, ControllerSecret: a.DHCHAP.Controller}})
	if err != nil {
		return err
	}
	p.drop, p.done = x.Abort, x.Done()
	id, err := x.Identify(ctx, c.NSID)
	if err != nil {
		p.Close()
		return err
	}
	p.WWID, p.Limits, p.Size = wwid(id), id.Limits(), int64(id.Namespace.Size)<<id.Namespace.BlockShift
	n := x.Namespace(c.NSID, depth, p)
	n.SetProfile(id)
	p.queue = n
	return nil
}

func wwid(p *nvme.Profile) string { return "uuid." + p.ID.UUID }

// hostID is the connection's host identifier.
func hostID(c *backend.Connection) (id [16]byte, err error) {
	if n, err := hex.Decode(id[:], []byte(c.HostID)); err != nil || n != len(id) {
		return id, fmt.Errorf("host identifier %q is not 32 hexadecimal digits", c.HostID)
	}
	return id, nil
}

// Done is closed when the session is over.
func (p *Path) Done() <-chan struct{} { return p.done }

// Close drops the session, and returns when nothing of it runs.
func (p *Path) Close() {
	p.drop(errors.New("the test has ended it"))
	<-p.done
}

// Begin sends a command. The channel gives its outcome: nil, ErrLost, or what the
// target says.
func (p *Path) Begin(c *blk.Command) <-chan error {
	out := make(chan error, 1)
	p.slots <- struct{}{}
	p.mu.Lock()
	if p.lost {
		p.mu.Unlock()
		<-p.slots
		out <- ErrLost
		return out
	}
	p.waiting[c] = out
	p.mu.Unlock()
	for !p.queue.Submit(c, 0) { // the place of one that is answered may not be free yet
		select {
		case <-p.turn:
		case <-p.done:
			p.finish(c, ErrLost)
			return out
		}
	}
	p.queue.Kick(0)
	return out
}

// Do sends commands and waits for all of them; the first error counts.
func (p *Path) Do(cmds ...*blk.Command) (err error) {
	outs := make([]<-chan error, 0, len(cmds))
	for _, c := range cmds {
		outs = append(outs, p.Begin(c))
	}
	for _, o := range outs {
		if e := <-o; err == nil {
			err = e
		}
	}
	return err
}

// Write writes b at off, bytes.
func (p *Path) Write(b []byte, off int64) error {
	return p.Do(&blk.Command{Op: blk.Write, Off: uint64(off), Len: uint32(len(b)), Buf: b})
}

// Read reads at off.
func (p *Path) Read(b []byte, off int64) error {
	return p.Do(&blk.Command{Op: blk.Read, Off: uint64(off), Len: uint32(len(b)), Buf: b})
}

// Flush makes what was written durable.
func (p *Path) Flush() error { return p.Do(&blk.Command{Op: blk.Flush}) }

// Told gives what the volume says of itself beside answers. Once it said that it
// changed it takes no commands: dial anew.
func (p *Path) Told() <-chan blk.Evidence { return p.evidence }

func (p *Path) finish(c *blk.Command, err error) {
	p.mu.Lock()
	out := p.waiting[c]
	delete(p.waiting, c)
	p.mu.Unlock()
	if out != nil {
		<-p.slots
		out <- err
	}
}

// Complete implements blk.Sink.
func (p *Path) Complete(c *blk.Command) {
	var err error
	if c.Verdict.Class != blk.Good {
		err = &StatusError{Verdict: c.Verdict}
	}
	p.finish(c, err)
}

// BatchEnd implements blk.Sink.
func (p *Path) BatchEnd(uint64) {
	select {
	case p.turn <- struct{}{}:
	default:
	}
}

// Evidence implements blk.Sink.
func (p *Path) Evidence(e blk.Evidence) {
	select {
	case p.evidence <- e:
	default: // nobody listens
	}
}

// Lost implements blk.Sink.
func (p *Path) Lost(*blk.Command, error) {
	p.mu.Lock()
	p.lost = true
	all := p.waiting
	p.waiting = map[*blk.Command]chan error{}
	p.mu.Unlock()
	for _, out := range all {
		<-p.slots
		out <- ErrLost
	}
}

// StatusError is a command that the target answered with an error.
type StatusError struct{ Verdict blk.Verdict }

// Error names the class and the status.
func (e *StatusError) Error() string {
	return fmt.Sprintf("the target says %v (%v, evidence %b)", e.Verdict.Class, e.Verdict.Status, e.Verdict.Evidence)
}
