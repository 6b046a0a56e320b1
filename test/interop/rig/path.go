package rig

import (
	"context"
	"fmt"
	"time"

	"github.com/csi-mpath/csi-mpath/test/faultproxy"
)

// Path is one way to the volume: a proxy in front of a daemon.
type Path struct {
	Name string // A, B

	daemon daemon
	proxy  *faultproxy.Proxy
	oneWay time.Duration // of every byte when nothing is wrong
}

func newPath(name string, d daemon, oneWay time.Duration) (*Path, error) {
	proxy, err := faultproxy.Listen("127.0.0.1:0", d.Portal())
	if err != nil {
		return nil, err
	}
	p := &Path{Name: name, daemon: d, proxy: proxy, oneWay: oneWay}
	p.Delay(0)
	return p, nil
}

// Portal is the address the product knows.
func (p *Path) Portal() string { return p.proxy.Addr() }

// Kill is kill -9 of the daemon; its portal refuses connections then.
func (p *Path) Kill() {
	p.proxy.Refuse()
	p.daemon.Kill()
}

// Revive starts the daemon again.
func (p *Path) Revive(ctx context.Context) error {
	if err := p.daemon.Restart(ctx); err != nil {
		return err
	}
	return p.proxy.Accept()
}

// Reset sends RST to both ends of every connection.
func (p *Path) Reset() { p.must(faultproxy.Fault{Kind: faultproxy.Reset}) }

// BlackHole swallows every byte and every connection from now on.
func (p *Path) BlackHole() { p.must(faultproxy.Fault{Kind: faultproxy.BlackHole}) }

// Delay makes every byte late by d, beyond what is usual.
func (p *Path) Delay(d time.Duration) {
	if d += p.oneWay; d > 0 {
		p.must(faultproxy.Fault{Kind: faultproxy.Delay, Wait: d})
	}
}

// Restore ends black holes and delays. What was swallowed stays so.
func (p *Path) Restore() {
	if err := p.proxy.Heal(); err != nil {
		panic(fmt.Sprintf("rig: heal path %s: %v", p.Name, err))
	}
	p.Delay(0)
}

func (p *Path) must(f faultproxy.Fault) {
	if err := p.proxy.Now(f); err != nil {
		panic(fmt.Sprintf("rig: BUG: fault on path %s: %v", p.Name, err))
	}
}

// Connections counts what the proxy has accepted since it began.
func (p *Path) Connections() uint64 { return p.proxy.Stats().Accepted }

// bytes counts what the path has carried since it began.
func (p *Path) bytes() uint64 {
	s := p.proxy.Stats()
	return s.ToTarget + s.ToClient
}

func (p *Path) close() { _ = p.proxy.Close() }
