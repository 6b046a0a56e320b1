package nvmetcp

import (
	"context"
	"errors"
	"fmt"

	"github.com/csi-mpath/csi-mpath/pkg/nvme"
)

// Identify reads identity, size, limits and ANA state of a namespace. It always
// reads the ANA log too, so that no state of an earlier connection is believed
// (B-11). ErrNoNamespace: the namespace is not there, or not attached to this
// controller.
func (c *Controller) Identify(ctx context.Context, nsid uint32) (*nvme.Profile, error) {
	for try := 1; ; try++ {
		p, err := c.profile(ctx, nsid)
		if !errors.Is(err, errNoGroup) || try == maxIdentifications {
			return p, c.cfg.wrap(err)
		}
		// It may have moved to a new group between the two reads (B-14).
	}
}

var errNoGroup = errors.New("the ANA log does not have the namespace's group")

func (c *Controller) profile(ctx context.Context, nsid uint32) (*nvme.Profile, error) {
	p := &nvme.Profile{Subsystem: c.cfg.Subsystem, NSID: nsid, Controller: c.id, Caps: c.caps, State: nvme.Optimized}
	b := make([]byte, nvme.IdentifyLen)
	if _, err := c.do(ctx, fmt.Sprintf("identify namespace %d", nsid), nvme.Identify(nvme.CNSNamespace, nsid), b); err != nil {
		return nil, absent(err)
	}
	var err error
	if p.Namespace, err = nvme.ParseNamespace(b); err != nil {
		return nil, absent(err)
	}
	if err := c.identity(ctx, p, b); err != nil {
		return nil, err
	}
	if err := c.optional(ctx, p, b); err != nil {
		return nil, err
	}
	if err := p.Check(); err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.groups[nsid] = p.Namespace.Group
	c.mu.Unlock()
	if c.id.ReportsANA() && p.Namespace.Group != 0 {
		p.State, err = c.groupState(ctx, p.Namespace.Group)
	}
	return p, err
}

// absent names what says that the namespace is not there.
func absent(err error) error {
	if nvme.ErrNoNamespace(err) {
		return fmt.Errorf("%w: %w", ErrNoNamespace, err)
	}
	return err
}

// identity joins the descriptor list to what Identify Namespace says. Controllers
// before 1.3 do not have the list (B-16).
func (c *Controller) identity(ctx context.Context, p *nvme.Profile, b []byte) error {
	_, err := c.do(ctx, "identification descriptors", nvme.Identify(nvme.CNSDescriptors, p.NSID), b)
	if err == nil {
		var d nvme.Descriptors
		if d, err = nvme.ParseDescriptors(b); err != nil {
			return broken(err)
		}
		p.ID, p.CommandSet = d.Identity, d.CommandSet
	} else if !refused(err) {
		return err
	}
	if err := p.ID.Identify(&p.Namespace); err != nil {
		return broken(err)
	}
	return nil
}

// refused reports that the controller answered, and does not have what was asked for.
func refused(err error) bool {
	return errors.Is(err, nvme.InvalidField) || errors.Is(err, nvme.InvalidOpcode)
}

// optional reads what not every controller has.
func (c *Controller) optional(ctx context.Context, p *nvme.Profile, b []byte) error {
	_, err := c.do(ctx, "limits of the command set", nvme.Identify(nvme.CNSNVMController, 0), b)
	if err == nil {
		if p.CommandLimits, err = nvme.ParseCommandLimits(b); err != nil {
			return broken(err)
		}
	} else if !refused(err) {
		return err
	}
	if c.id.VolatileCache&1 == 0 {
		return nil
	}
	v, err := c.do(ctx, "the state of the cache", nvme.GetFeature(0, nvme.FeatureWriteCache), nil)
	if err == nil {
		p.CacheOff = v&1 == 0
	} else if !refused(err) {
		return err
	}
	return nil
}

// groupState reads the state of an ANA group. The namespaces are left out of the
// log: so it is short, and read at once, never torn.
func (c *Controller) groupState(ctx context.Context, group uint32) (nvme.AccessState, error) {
	b := make([]byte, nvme.ANALogLen(c.id.ANAGroups, 0))
	if err := c.getLog(ctx, nvme.LogRequest{Page: nvme.LogANA, Specific: 1, NSID: nvme.AllNamespaces}, b); err != nil {
		return 0, err
	}
	l, err := nvme.ParseANA(b, c.id.ANAGroupMax)
	if err != nil {
		return 0, broken(err)
	}
	if g := l.Group(group); g != nil {
		return g.State, nil
	}
	return 0, fmt.Errorf("%w, %d", errNoGroup, group)
}

// Access reads the ANA state alone: for a namespace, identified before, in a
// state that takes no I/O. Optimized where there is no ANA. Where the state takes
// none it asks too whether the namespace has moved to another group: controllers
// need not tell that apart from the news that states changed (B-14).
func (c *Controller) Access(ctx context.Context, nsid uint32) (nvme.AccessState, error) {
	c.mu.Lock()
	group := c.groups[nsid]
	c.mu.Unlock()
	if !c.id.ReportsANA() || group == 0 {
		return nvme.Optimized, nil
	}
	s, err := c.groupState(ctx, group)
	if err != nil || s.Usable() {
		return s, c.cfg.wrap(err)
	}
	if now := c.groupOf(ctx, nsid); now != 0 && now != group {
		s, err = c.groupState(ctx, now)
	}
	return s, c.cfg.wrap(err)
}

// groupOf reads the ANA group of a namespace; 0 is none, or no answer.
func (c *Controller) groupOf(ctx context.Context, nsid uint32) uint32 {
	b := make([]byte, nvme.IdentifyLen)
	if _, err := c.do(ctx, fmt.Sprintf("identify namespace %d", nsid), nvme.Identify(nvme.CNSNamespace, nsid), b); err != nil {
		return 0
	}
	n, err := nvme.ParseNamespace(b)
	if err != nil {
		return 0
	}
	return n.Group
}
