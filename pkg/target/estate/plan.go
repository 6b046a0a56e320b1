package estate

import (
	"errors"
	"fmt"
	"os"

	nvmeauth "github.com/csi-mpath/csi-mpath/pkg/nvmetcp/auth"
	"github.com/csi-mpath/csi-mpath/pkg/target"
	"github.com/csi-mpath/csi-mpath/pkg/target/config"
	"github.com/csi-mpath/csi-mpath/pkg/target/serve"
)

// plan is a change that is prepared: all that may fail has been done.
type plan struct {
	cfg       *config.Config
	discovery *secrets
	secrets   map[string]*secrets        // by target
	doors     map[string]*serve.Door     // that are new
	targets   map[string]*served         // that are new
	luns      map[string]map[uint32]*lun // that are new, of targets that stay
	sizes     map[string]map[uint32]uint64
	undo      []func()
}

// plan prepares the change to c, or undoes what it did and says why not.
func (e *Estate) plan(c *config.Config) (_ *plan, err error) {
	p := &plan{cfg: c, secrets: map[string]*secrets{}, doors: map[string]*serve.Door{},
		targets: map[string]*served{}, luns: map[string]map[uint32]*lun{}, sizes: map[string]map[uint32]uint64{}}
	defer func() {
		if err != nil {
			p.back()
		}
	}()
	if p.discovery, err = e.readSecrets(c.Discovery, c.DiscoveryDHChap, nil); err != nil {
		return nil, fmt.Errorf("discovery: %w", err)
	}
	// Two passes: what only looks comes first, so that a mistake costs nothing.
	for i := range c.Targets {
		if err = e.compare(p, &c.Targets[i]); err != nil {
			return nil, fmt.Errorf("target %s: %w", c.Targets[i].Name, err)
		}
	}
	for i := range c.Targets {
		if err = e.prepare(p, &c.Targets[i]); err != nil {
			return nil, fmt.Errorf("target %s: %w", c.Targets[i].Name, err)
		}
	}
	return p, nil
}

// back undoes a plan, last things first.
func (p *plan) back() {
	for i := len(p.undo) - 1; i >= 0; i-- {
		p.undo[i]()
	}
}

// readSecrets reads the files of a target's, or of discovery's, credentials.
func (e *Estate) readSecrets(chap, dhchap config.Auth, hosts map[string]config.Auth) (s *secrets, err error) {
	s = &secrets{hosts: map[string]nvmeauth.Credentials{}}
	if chap.SecretFile != "" {
		if s.chap, err = e.opt.Secrets(chap.SecretFile); err != nil {
			return nil, err
		}
		if !s.chap.Enabled() {
			return nil, fmt.Errorf("%s has no username and password", chap.SecretFile)
		}
	}
	if s.dhchap, err = e.readDHChap(dhchap); err != nil {
		return nil, err
	}
	for host, a := range hosts {
		if s.hosts[host], err = e.readDHChap(a); err != nil {
			return nil, fmt.Errorf("host %s: %w", host, err)
		}
	}
	return s, nil
}

func (e *Estate) readDHChap(a config.Auth) (nvmeauth.Credentials, error) {
	if a.SecretFile == "" {
		return nvmeauth.Credentials{}, nil
	}
	return e.opt.DHChap(a.SecretFile, a.ControllerSecretFile)
}

// compare reads the secrets of a target and checks what may not change.
func (e *Estate) compare(p *plan, t *config.Target) (err error) {
	chap, dhchap := t.Auth, config.Auth{}
	if t.NVMe {
		chap, dhchap = dhchap, chap
	}
	if p.secrets[t.Name], err = e.readSecrets(chap, dhchap, t.HostAuth); err != nil {
		return err
	}
	p.sizes[t.Name] = map[uint32]uint64{}
	old := e.targets[t.Name]
	if old == nil {
		return nil
	}
	for _, l := range t.LUNs {
		was := old.luns[l.Number]
		if was == nil {
			continue
		}
		if p.sizes[t.Name][l.Number], err = was.compare(l); err != nil {
			return fmt.Errorf("LUN %d: %w", l.Number, err)
		}
	}
	return nil
}

// compare returns the size that a LUN will have.
func (l *lun) compare(to config.LUN) (size uint64, err error) {
	was := l.cfg
	for _, c := range []struct {
		what string
		same bool
	}{{"ANA group", was.ANAGroup == to.ANAGroup}, {"uuid, nguid or eui64", was.NVMe == to.NVMe}, {"store", was.Store.File == to.Store.File && was.Store.Direct == to.Store.Direct}, {"blockSize", was.BlockSize == to.BlockSize},
		{"wwid or serial", was.Identity == to.Identity}} {
		if !c.same {
			return 0, fmt.Errorf("its %s cannot change while it is served: take the LUN out first, or use another number", c.what)
		}
	}
	size = max(to.Store.RAM, to.Store.Size)
	if to.Store.File != "" {
		end, err := target.SizeOf(to.Store.File)
		if err != nil {
			return 0, err
		}
		size = max(size, end-end%uint64(to.BlockSize)) // it may have grown by itself
	}
	if size < l.size {
		return 0, fmt.Errorf("%d bytes would shrink it from %d: take the LUN out first", size, l.size)
	}
	return size, nil
}

// prepare opens what is new of a target.
func (e *Estate) prepare(p *plan, t *config.Target) error {
	old, fresh := e.targets[t.Name], map[uint32]*lun{}
	for _, l := range t.LUNs {
		if old != nil && old.luns[l.Number] != nil {
			continue
		}
		n, err := p.open(l)
		if err != nil {
			return fmt.Errorf("LUN %d: %w", l.Number, err)
		}
		fresh[l.Number] = n
	}
	for _, a := range t.Portals {
		if e.doors[a.Address] != nil || p.doors[a.Address] != nil {
			continue
		}
		d, err := e.hubs.of(t).Listen(a.Address)
		if err != nil {
			return err
		}
		p.doors[a.Address] = d
		p.undo = append(p.undo, d.Close)
	}
	if old != nil {
		p.luns[t.Name] = fresh
		return nil
	}
	return p.build(t, fresh)
}

// build makes a target that nobody reaches yet.
func (p *plan) build(t *config.Target, luns map[uint32]*lun) error {
	srv, err := newServer(t, p.secrets[t.Name], luns)
	if err != nil {
		return err
	}
	p.undo = append(p.undo, func() { _ = srv.Close() })
	p.targets[t.Name] = &served{cfg: *t, srv: srv, luns: luns}
	return nil
}

// open opens a store; undoing it removes a file that this made.
func (p *plan) open(c config.LUN) (*lun, error) {
	if c.Store.RAM != 0 {
		return &lun{cfg: c, size: c.Store.RAM, store: target.NewRAM(c.Store.RAM)}, nil
	}
	made, err := create(c.Store)
	if err != nil {
		return nil, err
	}
	if made {
		p.undo = append(p.undo, func() { _ = os.Remove(c.Store.File) })
	}
	f, err := openFile(c.Store)
	if err != nil {
		return nil, err
	}
	p.undo = append(p.undo, func() { _ = f.Close() })
	l := &lun{cfg: c, size: f.Size() - f.Size()%uint64(c.BlockSize), store: f}
	switch end := f.Size(); {
	case f.Alignment() > uint64(c.BlockSize):
		err = fmt.Errorf("%s has direct I/O in units of %d bytes, more than the block size %d", c.Store.File, f.Alignment(), c.BlockSize)
	case l.size < c.Store.Size:
		err = f.Grow(c.Store.Size)
		l.size = c.Store.Size
		p.undo = append(p.undo, func() { _ = os.Truncate(c.Store.File, int64(end)) })
	case l.size == 0:
		err = fmt.Errorf("%s is empty: give it a size", c.Store.File)
	}
	return l, err
}

// create makes a file that is missing, sparse and empty, if a size is given.
func create(s config.Store) (made bool, err error) {
	if _, err := os.Stat(s.File); !errors.Is(err, os.ErrNotExist) {
		return false, err
	}
	if s.Size == 0 {
		return false, fmt.Errorf("%s does not exist: give it a size to have it made", s.File)
	}
	f, err := os.OpenFile(s.File, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return false, err
	}
	return true, f.Close()
}
