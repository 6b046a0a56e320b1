package device

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/datapath"
	"github.com/csi-mpath/csi-mpath/pkg/iscsi"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
)

// iscsiPath is one portal of a volume: a datapath.Transport over iSCSI.
type iscsiPath struct {
	way
	volume   ISCSI
	login    iscsi.Config // but for Polling
	siblings []*iscsiPath // all paths of the volume, this one included

	// Under mu:

	// last is where the latest session was: a login there with the same ISID
	// reinstates it (I3).
	last group
	// moved is when the path last arrived elsewhere than before: earlier sessions
	// may have been anywhere, and only the clock ends their tasks.
	moved time.Time
	// first: nothing was tried yet, and last is a dead process's.
	first bool
}

// group is a portal and the portal group it belongs to.
type group struct {
	known   bool
	address string // as connected, host:port
	tpgt    uint16
}

// FenceBound implements datapath.Transport.
func (p *iscsiPath) FenceBound() time.Duration { return p.volume.FenceTimeout }

// Connect implements datapath.Transport: dial, log in with the path's ISID,
// identify.
func (p *iscsiPath) Connect(ctx context.Context, sink blk.Sink) (datapath.Queue, error) {
	s, err := p.dial(ctx)
	if err != nil {
		return nil, definite(err)
	}
	id, err := s.Identify(ctx, p.volume.LUN)
	if err != nil {
		if id != nil && id.Evidence&blk.CacheLost != 0 {
			sink.Evidence(blk.CacheLost) // it is not told twice (I4)
		}
		s.Abort(err)
		return nil, definite(err)
	}
	facts := p.facts(&id.Profile, s)
	if facts.Proof, err = p.arrived(s); err != nil {
		s.Abort(err)
		return nil, err
	}
	if id.Evidence&blk.CacheLost != 0 {
		sink.Evidence(blk.CacheLost)
	}
	lun := s.LUN(p.volume.LUN, p.cfg.QueueDepth, sink)
	if p.cfg.Reserve {
		lun.WatchReservation()
	}
	lun.SetProfile(&id.Profile)
	return &iscsiQueue{view: view{s: s, u: lun, facts: facts}, p: p, s: s, lun: lun, profile: id.Profile}, nil
}

// dial logs in, following redirects (RFC 7143 11.13.5) within a limit.
func (p *iscsiPath) dial(ctx context.Context) (*iscsi.Session, error) {
	cfg := p.sessionConfig()
	for range maxRedirects {
		s, err := iscsi.Dial(ctx, cfg)
		var moved *iscsi.RedirectError
		if !errors.As(err, &moved) {
			return s, err
		}
		cfg.Portal = moved.Address
	}
	return nil, fmt.Errorf("portal %s: redirected more than %d times, last to %s", p.portal, maxRedirects, cfg.Portal)
}

// sessionConfig is what the next session is made of.
func (p *iscsiPath) sessionConfig() iscsi.Config {
	p.mu.Lock()
	defer p.mu.Unlock()
	cfg := p.login
	cfg.Polling = p.polling
	return cfg
}

// relogin implements path.
func (p *iscsiPath) relogin(l login) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := &p.login
	c.Source, c.PathTimeout, c.CommandTimeout = l.source, l.pathTimeout, l.commandTimeout
	c.ConnectTimeout, c.LoginTimeout = dialTime(l.pathTimeout), dialTime(l.pathTimeout)
}

// inherit takes over where a dead process's session was.
func (p *iscsiPath) inherit() {
	var elsewhere time.Duration
	p.last, elsewhere = p.places.get(p.portal, p.login.ISID, p.volume.FenceTimeout)
	if p.first = p.last.known; elsewhere > 0 {
		p.moved = time.Now().Add(elsewhere - p.volume.FenceTimeout)
	}
}

// arrived notes where a new session is, for the process after this one too,
// before it carries anything. It reports whether its login ended all of the
// path's earlier ones: same address, same portal group, same ISID.
func (p *iscsiPath) arrived(s *iscsi.Session) (proof bool, err error) {
	info := s.Info()
	p.took(s)
	proof, here := p.note(group{known: true, address: info.Remote.String(), tpgt: info.TPGT})
	if p.places == nil {
		return proof, nil
	}
	return proof, p.places.put(p.portal, here, p.cfg.Portals)
}

// note takes note of a login's place; here is what the next process must know.
func (p *iscsiPath) note(at group) (proof bool, here place) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.last.known && at.address != p.login.Portal {
		p.moved = time.Now() // redirected, or a name: a dead process may have been elsewhere
	}
	proof = p.settle(at)
	here = place{ISID: hex.EncodeToString(p.login.ISID[:]), Address: at.address, TPGT: at.tpgt}
	if !proof {
		here.Settled = int64(sinceBoot() + p.volume.FenceTimeout - time.Since(p.moved))
	}
	return proof, here
}

// settle takes note of a session's place. Under mu.
func (p *iscsiPath) settle(g group) (proof bool) {
	if p.last.known && p.last != g {
		p.moved = time.Now()
	}
	p.last = g
	return p.stayed()
}

// stayed reports that every session whose tasks the clock has not ended was
// where the last one was. Under mu.
func (p *iscsiPath) stayed() bool {
	return p.moved.IsZero() || time.Since(p.moved) > p.volume.FenceTimeout
}

// ProveDead implements datapath.Transport: a login with this path's ISID at a
// sibling portal of the same portal group reinstates the lost session there
// (RFC 7143 6.3.5).
func (p *iscsiPath) ProveDead(ctx context.Context) error {
	p.mu.Lock()
	lost, stayed, first := p.last, p.stayed(), p.first
	p.first = false
	p.mu.Unlock()
	if first {
		// The path is about to log in itself: the two would end each other.
		return errors.New("the path's own login comes first")
	}
	if !stayed {
		return errors.New("the path has moved: its earlier sessions were elsewhere")
	}
	err := datapath.ErrNoProof
	for _, c := range p.siblings {
		c.mu.Lock()
		same := c != p && lost.known && c.last.known && c.last.tpgt == lost.tpgt
		c.mu.Unlock()
		if !same {
			continue
		}
		if err = p.inTurn(ctx, c.portal, func() error { return p.reinstateAt(ctx, c, lost) }); err == nil {
			return nil
		}
	}
	return err
}

// inTurn does a login when its turn has come. Writes wait for it.
func (p *iscsiPath) inTurn(ctx context.Context, portal string, login func() error) error {
	leave, err := p.cfg.Logins.turn(ctx, portal, func() datapath.Urgency { return datapath.Fencing })
	if err != nil {
		return err
	}
	defer leave()
	return login()
}

// reinstateAt logs in at the sibling's portal in the lost session's name. The
// target there must itself list the lost portal in its own group: two machines
// that merely call themselves the same target do not end each other's tasks.
// It is asked in a discovery session, because some targets drop a normal
// session that asks.
func (p *iscsiPath) reinstateAt(ctx context.Context, c *iscsiPath, lost group) error {
	found, err := iscsi.Discover(ctx, c.sessionConfig())
	if err != nil {
		return err
	}
	if !listed(found, p.volume.Target, lost) {
		return datapath.ErrNoProof
	}
	if p.alive() {
		// Its own login is the proof; one more would only end the new session.
		return errors.New("the path itself is back")
	}
	cfg := c.sessionConfig()
	cfg.ISID = p.login.ISID
	s, err := iscsi.Dial(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { _ = s.Logout(ctx) }()
	if s.Info().TPGT != lost.tpgt {
		return fmt.Errorf("portal %s no longer shares a portal group with %s", c.portal, p.portal)
	}
	return nil
}

// listed reports whether a target names g's portal, in g's portal group.
func listed(found []iscsi.DiscoveredTarget, target string, g group) bool {
	for _, t := range found {
		if t.Name == target && slices.Contains(t.Portals, iscsi.Portal{Address: g.address, TPGT: g.tpgt}) {
			return true
		}
	}
	return false
}

// facts turns what the unit said into the datapath's terms.
func (p *iscsiPath) facts(id *scsi.Profile, s *iscsi.Session) datapath.Facts {
	dev := id.Identity()
	f := datapath.Facts{
		Identity: datapath.Identity{Target: id.Target, Device: dev.String(), Serial: dev.Serial,
			Others: dev.NAA + "/" + dev.EUI + "/" + dev.Name, BlockSize: id.BlockSize, Weak: dev.Weak()},
		Limits: id.Limits(), Access: accessOf(id), Vectors: true,
		Local: s.Info().Local.String(), Remote: s.Info().Remote.String(),
	}
	if p.cfg.WWID != "" && dev.Matches(p.cfg.WWID) {
		f.Identity.Device = p.cfg.WWID // however the operator spelled it
	}
	return f
}

var aluaStates = map[scsi.AccessState]datapath.Access{
	scsi.Optimized: datapath.Optimized, scsi.NonOptimized: datapath.NonOptimized,
	scsi.LBADependent: datapath.NonOptimized, scsi.Standby: datapath.Standby,
	scsi.Unavailable: datapath.Unavailable, scsi.Offline: datapath.Offline,
	scsi.Transitioning: datapath.Transitioning,
}

// accessOf is the ALUA state of the port this path uses; a unit without
// asymmetric access is optimized everywhere.
func accessOf(id *scsi.Profile) datapath.Access {
	g := id.Groups.Find(id.Group)
	if g == nil {
		return datapath.Optimized
	}
	return access(aluaStates, g.State)
}

// iscsiQueue is one session's view of the unit: a datapath.Queue.
type iscsiQueue struct {
	view
	p   *iscsiPath
	s   *iscsi.Session
	lun *iscsi.LUN
	// profile is what the last identification read. The control goroutine's.
	profile scsi.Profile
}

// Probe implements datapath.Queue: the first block is read, and thrown away.
func (q *iscsiQueue) Probe(ctx context.Context) error {
	var cdb [scsi.CDBLen]byte
	n := scsi.PutRead16(cdb[:], 0, 1, 0)
	_, err := q.lun.Exec(ctx, cdb[:n], make([]byte, q.facts.Limits.BlockSize), nil)
	return err
}

// Refresh implements datapath.Queue.
func (q *iscsiQueue) Refresh(ctx context.Context) (datapath.Facts, error) {
	q.gate = q.lun.Gate()
	if f := q.unusable(ctx); f != nil {
		return *f, nil
	}
	id, err := q.s.Identify(ctx, q.p.volume.LUN)
	if err != nil {
		return datapath.Facts{}, err
	}
	q.profile = id.Profile
	return q.p.facts(&id.Profile, q.s), nil
}

// unusable asks for the access state alone. In a state that takes no I/O a unit
// need not answer the rest of an identification (SPC-4 5.15.2.4), and until it
// did the path would be used as before. nil: go on. Not while the identity is
// in question.
func (q *iscsiQueue) unusable(ctx context.Context) *datapath.Facts {
	if q.gate != 0 || q.profile.TPGS == 0 {
		return nil
	}
	groups, err := q.s.PortGroups(ctx, q.p.volume.LUN)
	if err != nil {
		return nil
	}
	now := q.profile
	now.Groups = groups
	if f := q.p.facts(&now, q.s); f.Access > datapath.NonOptimized {
		return &f
	}
	return nil
}

// Close implements datapath.Queue.
func (q *iscsiQueue) Close(ctx context.Context) error { return q.s.Logout(ctx) }
