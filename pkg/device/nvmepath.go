package device

import (
	"context"
	"fmt"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/datapath"
	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	"github.com/csi-mpath/csi-mpath/pkg/nvmetcp"
)

// nvmePath is one portal of a volume: a datapath.Transport over NVMe/TCP.
//
// A controller that is lost leaves no way to prove that it ended what it was
// sent: a new one, at this portal or another, under the same CNTLID or not, is
// no proof, and the lost one's connections are gone, so that it cannot be asked
// to shut down. The clock fences it (I3).
type nvmePath struct {
	way
	volume     NVMe
	controller nvmetcp.Config // but for Polling
	// left is the bound for what dead processes left, 0 if they had no controller.
	// Constant.
	left time.Duration

	// bound is that of the latest controller, 0 before the first. Under mu.
	bound time.Duration
}

// FenceBound implements datapath.Transport: that of the controller that was
// lost, or, before this process had one, of any that a dead process had.
func (p *nvmePath) FenceBound() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.bound != 0:
		return p.bound
	case p.left != 0:
		return p.left
	}
	return p.controller.FenceBound()
}

// ProveDead implements datapath.Transport: there is no proof.
func (p *nvmePath) ProveDead(context.Context) error { return datapath.ErrNoProof }

// inherit takes over how long dead processes' controllers may live.
func (p *nvmePath) inherit() {
	var lost bool
	if p.left, lost = p.places.fence(); lost {
		cfg := p.controller
		cfg.KeepAlive = maxKeepAlive // whatever they asked for
		p.left = cfg.FenceBound()
	}
}

// Connect implements datapath.Transport: connect, and identify. The namespace is
// opened first, so that nothing it reports meanwhile is missed (I1).
func (p *nvmePath) Connect(ctx context.Context, sink blk.Sink) (datapath.Queue, error) {
	c, err := nvmetcp.Dial(ctx, p.config())
	if err != nil {
		return nil, definite(err)
	}
	ns := c.Namespace(p.volume.NSID, p.cfg.QueueDepth, sink)
	id, err := p.arrived(ctx, c)
	if err != nil {
		ns.Close() // the sink hears nothing of a path that never was
		c.Abort(err)
		return nil, definite(err)
	}
	if p.cfg.Reserve {
		ns.WatchReservation()
	}
	ns.SetProfile(id)
	return &nvmeQueue{view: view{s: c, u: ns, facts: p.facts(id, c)}, p: p, c: c, ns: ns, profile: *id}, nil
}

// config is what the next controller is made of.
func (p *nvmePath) config() nvmetcp.Config {
	p.mu.Lock()
	defer p.mu.Unlock()
	cfg := p.controller
	cfg.Polling = p.polling
	return cfg
}

// relogin implements path. The keep alive timeout of the controller in use stays the
// one that its fence is counted with (I3).
func (p *nvmePath) relogin(l login) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := &p.controller
	c.Source, c.PathTimeout, c.CommandTimeout, c.KeepAlive = l.source, l.pathTimeout, l.commandTimeout, l.keepAlive
	c.ConnectTimeout, c.LoginTimeout = dialTime(l.pathTimeout), dialTime(l.pathTimeout)
}

// arrived notes how long the controller may outlive its connections, for the
// process after this one too, before it carries anything, and identifies the
// namespace.
func (p *nvmePath) arrived(ctx context.Context, c *nvmetcp.Controller) (*nvme.Profile, error) {
	p.took(c)
	if err := p.note(c.FenceBound(), c.Info().Remote.String()); err != nil {
		return nil, err
	}
	id, err := c.Identify(ctx, p.volume.NSID)
	if err != nil {
		return nil, fmt.Errorf("namespace %d: %w", p.volume.NSID, err)
	}
	return id, nil
}

// note notes how long a controller may outlive its connections. On record that
// never gets less: what an earlier process left may be in doubt yet, also at
// portals that the volume no longer has.
func (p *nvmePath) note(bound time.Duration, address string) error {
	if bound > maxFence { // the next process would take the record for damaged, and wait too little
		return fmt.Errorf("portal %s: its controllers may outlive their connections by %v (KATO in steps of KAS, and CQT), longer than %v",
			p.portal, bound, maxFence)
	}
	p.mu.Lock()
	p.bound = bound
	p.mu.Unlock()
	if p.places == nil {
		return nil
	}
	known, _ := p.places.fence()
	return p.places.put(p.portal, place{Address: address, Fence: int64(max(bound, known, p.left))}, p.cfg.Portals)
}

// facts turns what the namespace said into the datapath's terms.
func (p *nvmePath) facts(id *nvme.Profile, c *nvmetcp.Controller) datapath.Facts {
	info := c.Info()
	f := datapath.Facts{
		Identity: datapath.Identity{Target: id.Subsystem, Device: id.ID.String(), BlockSize: id.Namespace.BlockSize(), Weak: id.ID.None(),
			Others: fmt.Sprintf("ns%d/%s/%s/%s", id.NSID, id.ID.UUID, id.ID.NGUID, id.ID.EUI64)},
		Limits: id.Limits(), Access: access(anaStates, id.State), Vectors: true,
		Local: info.Local.String(), Remote: info.Remote.String(),
	}
	if f.Identity.Weak {
		f.Identity.Device = fmt.Sprintf("serial.%s.ns%d", id.Serial, id.NSID)
	}
	if p.cfg.WWID != "" && id.ID.Matches(p.cfg.WWID) {
		f.Identity.Device = p.cfg.WWID // however the operator spelled it
	}
	return f
}

var anaStates = map[nvme.AccessState]datapath.Access{
	nvme.Optimized: datapath.Optimized, nvme.NonOptimized: datapath.NonOptimized,
	nvme.Inaccessible: datapath.Unavailable, nvme.PersistentLoss: datapath.Offline,
	nvme.Changing: datapath.Transitioning,
}

// nvmeQueue is one controller's view of the namespace: a datapath.Queue.
// profile and changing are the control goroutine's.
type nvmeQueue struct {
	view
	p       *nvmePath
	c       *nvmetcp.Controller
	ns      *nvmetcp.Namespace
	profile nvme.Profile // what the last identification read
	// changing is since when the namespace's group has been in transition.
	changing time.Time
}

// Probe implements datapath.Queue.
func (q *nvmeQueue) Probe(ctx context.Context) error { return q.ns.ReadFirst(ctx) }

// Refresh implements datapath.Queue.
func (q *nvmeQueue) Refresh(ctx context.Context) (f datapath.Facts, err error) {
	q.gate = q.ns.Gate()
	if f, err = q.look(ctx); err == nil {
		err = q.patience(f.Access)
	}
	return f, err
}

// look reads what there is to read. In a state that takes no I/O the access state
// is all that counts, and a controller need not know the rest. Not while the
// identity is in question.
func (q *nvmeQueue) look(ctx context.Context) (datapath.Facts, error) {
	if q.gate == 0 && q.profile.ReportsANA() {
		state, err := q.c.Access(ctx, q.p.volume.NSID)
		now := q.profile
		now.State = state
		if f := q.p.facts(&now, q.c); err == nil && f.Access > datapath.NonOptimized {
			return f, nil
		}
	}
	id, err := q.c.Identify(ctx, q.p.volume.NSID)
	if err != nil {
		return datapath.Facts{}, err
	}
	q.profile = *id
	return q.p.facts(id, q.c), nil
}

// patience ends a controller whose group stays in transition for longer than it
// said it could (ANATT): a new one may know better.
func (q *nvmeQueue) patience(a datapath.Access) error {
	limit := q.c.Info().ANATT
	switch {
	case a != datapath.Transitioning:
		q.changing = time.Time{}
	case q.changing.IsZero():
		q.changing = time.Now()
	case limit > 0 && time.Since(q.changing) > limit:
		err := fmt.Errorf("portal %s: its group has been in transition for longer than ANATT, %v", q.p.portal, limit)
		q.c.Abort(err)
		return err
	}
	return nil
}

// Close implements datapath.Queue.
func (q *nvmeQueue) Close(ctx context.Context) error { return q.c.Shutdown(ctx) }
