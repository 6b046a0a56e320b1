package nvmetcp

import (
	"context"
	"net"
	"net/netip"

	"github.com/csi-mpath/csi-mpath/pkg/nvme"
)

// Discover asks the discovery controller at cfg.Portal, and those that it and
// they refer to, for subsystems. An empty cfg.Subsystem means the well-known name
// of discovery. The first controller must answer; of the others Skipped tells.
// ctx bounds it all; ConnectTimeout and twice LoginTimeout each controller, of
// which at most maxDiscoveryControllers are asked.
func Discover(ctx context.Context, cfg Config) (*Discovery, error) {
	if cfg.Subsystem == "" {
		cfg.Subsystem = nvme.DiscoveryNQN
	}
	d, err := walkReferrals(site{address: cfg.Portal, nqn: cfg.Subsystem}, func(address, nqn string) ([]nvme.Record, netip.AddrPort, error) {
		one := cfg
		one.Portal, one.Subsystem = address, nqn
		return askDiscovery(ctx, one)
	})
	if ctx.Err() != nil {
		return nil, cfg.wrap(context.Cause(ctx))
	}
	return d, err
}

// askDiscovery reads the log of one discovery controller.
func askDiscovery(ctx context.Context, cfg Config) (records []nvme.Record, remote netip.AddrPort, err error) {
	c, err := dialDiscovery(ctx, cfg)
	if err != nil {
		return nil, remote, err
	}
	if a, ok := c.Info().Remote.(*net.TCPAddr); ok {
		remote = netip.AddrPortFrom(a.AddrPort().Addr().Unmap(), a.AddrPort().Port())
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.LoginTimeout)
	defer cancel()
	records, err = readDiscoveryLog(func(offset uint64, b []byte) error {
		return c.getLog(ctx, nvme.LogRequest{Page: nvme.LogDiscovery, Offset: offset}, b)
	})
	_ = c.Shutdown(ctx) // it was asked, and has answered
	return records, remote, c.cfg.wrap(err)
}
