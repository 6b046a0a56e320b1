package rig

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/csi-mpath/csi-mpath/test/faultproxy"
	"github.com/csi-mpath/csi-mpath/test/interop/tgt"
	"github.com/csi-mpath/csi-mpath/test/vm/kmsg"
)

// Path is one way to the volume: a fault proxy in front of a daemon.
type Path struct {
	Daemon *tgt.Daemon
	Proxy  *faultproxy.Proxy
}

// Targets are two tgt daemons over one file, as the two controllers of an
// array, each behind a proxy.
type Targets struct {
	Paths []*Path
	pair  *tgt.Pair
}

// StartTargets starts daemons with a volume of size bytes, which lies in
// memory. They end with the test. mod may change each daemon's configuration.
func StartTargets(t testing.TB, size int64, mod func(*tgt.Config)) *Targets {
	t.Helper()
	pair, err := tgt.StartPair(t.Context(), size, mod)
	if err != nil {
		t.Fatal(err)
	}
	x := &Targets{pair: pair}
	t.Cleanup(func() {
		if err := x.stop(); err != nil {
			t.Error(err)
		}
	})
	for _, d := range []*tgt.Daemon{pair.A, pair.B} {
		proxy, err := faultproxy.Listen("127.0.0.1:0", d.Portal())
		if err != nil {
			t.Fatal(err)
		}
		x.Paths = append(x.Paths, &Path{d, proxy})
	}
	return x
}

func (x *Targets) stop() error {
	var errs []error
	for _, p := range x.Paths {
		errs = append(errs, p.Proxy.Close())
	}
	return errors.Join(append(errs, x.pair.Stop())...)
}

// Flags are those that csi-mpath attach needs to find the volume.
func (x *Targets) Flags() []string {
	var portals []string
	for _, p := range x.Paths {
		portals = append(portals, p.Proxy.Addr())
	}
	return []string{"--iscsi", strings.Join(portals, ","), "--target", tgt.PairTarget, "--lun", "1"}
}

// File is the volume's backing file: what the target really holds.
func (x *Targets) File() string { return x.pair.File }

// Dir is a scratch folder with a path short enough for sockets.
func (x *Targets) Dir() string { return x.pair.Dir() }

// Kill is kill -9 of the daemon; its portal refuses connections then.
func (p *Path) Kill() {
	kmsg.Say("target at %s is killed", p.Daemon.Portal())
	p.Proxy.Refuse()
	p.Daemon.Kill()
}

// Revive starts the daemon again.
func (p *Path) Revive(ctx context.Context) error {
	if err := p.Daemon.Restart(ctx); err != nil {
		return err
	}
	kmsg.Say("target at %s is back", p.Daemon.Portal())
	return p.Proxy.Accept()
}

// Grow makes the volume larger. tgt reads the size of its file only when it
// starts, so the daemons are restarted, one after the other; between says how
// to wait until the first one carries I/O again.
func (x *Targets) Grow(ctx context.Context, size int64, between func() error) error {
	if err := os.Truncate(x.pair.File, size); err != nil {
		return err
	}
	for _, p := range x.Paths {
		p.Kill()
		if err := p.Revive(ctx); err != nil {
			return err
		}
		if err := between(); err != nil {
			return err
		}
	}
	return nil
}
