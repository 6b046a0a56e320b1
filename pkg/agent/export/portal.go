package export

import (
	"fmt"
	"net/netip"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// Portal is an address where an exporter serves all its volumes.
type Portal struct {
	Listen string // IP:port
	// Advertise is the IP:port that nodes are told; empty is what is listened on.
	Advertise string
	// Group is the iSCSI target portal group tag, or the NVMe port; 0 leaves it to
	// the exporter.
	Group uint16
}

// Check reads both addresses; advertise is Listen where nothing else is said.
func (p Portal) Check() (listen, advertise netip.AddrPort, err error) {
	listen, err = netip.ParseAddrPort(p.Listen)
	if err != nil {
		return listen, advertise, fmt.Errorf("%w: portal %.80q: want IP:port", backend.ErrInvalid, p.Listen)
	}
	if p.Advertise == "" {
		if listen.Addr().IsUnspecified() {
			return listen, advertise, fmt.Errorf("%w: portal %s is every address of the machine: advertise one", backend.ErrInvalid, p.Listen)
		}
		return listen, listen, nil
	}
	advertise, err = netip.ParseAddrPort(p.Advertise)
	if err != nil {
		return listen, advertise, fmt.Errorf("%w: advertised portal %.80q: want IP:port", backend.ErrInvalid, p.Advertise)
	}
	return listen, advertise, nil
}

// MaxPortals bounds the portals of one exporter (I6).
const MaxPortals = 16

// CheckPortals reads all of an exporter's, and gives those without a group one.
func CheckPortals(all []Portal, group func(i int) uint16) (listen []netip.AddrPort, told []backend.Portal, err error) {
	if len(all) == 0 || len(all) > MaxPortals {
		return nil, nil, fmt.Errorf("%w: %d portals: want 1..%d", backend.ErrInvalid, len(all), MaxPortals)
	}
	for i, p := range all {
		at, advertise, err := p.Check()
		if err != nil {
			return nil, nil, err
		}
		if p.Group == 0 {
			p.Group = group(i)
		}
		listen = append(listen, at)
		told = append(told, backend.Portal{Address: advertise.String(), Group: p.Group})
	}
	return listen, told, nil
}
