package config

import (
	"maps"
	"slices"
	"strings"

	"github.com/csi-mpath/csi-mpath/pkg/agent/export"
	"github.com/csi-mpath/csi-mpath/pkg/agent/store"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/strictyaml"
)

// Parse reads and checks a configuration in YAML.
func Parse(b []byte) (*Config, error) {
	n, err := strictyaml.Parse(b, MaxFile)
	if err != nil {
		return nil, err
	}
	n.Object("listen", "tls", "state", "admin", "metrics", "pools", "exports")
	c := &Config{State: DefaultState, Admin: DefaultAdmin, Listen: n.Want("listen").Address(DefaultPort), Metrics: n.Key("metrics").Address(metricsPort)}
	if s := n.Key("state"); s.Given() {
		c.State = s.AbsPath()
	}
	if a := n.Key("admin"); a.Given() {
		c.Admin = a.AbsPath()
	}
	t := n.Want("tls")
	t.Object("cert", "key", "clientCA")
	c.TLS = TLS{Cert: t.Want("cert").AbsPath(), Key: t.Want("key").AbsPath(), ClientCA: t.Want("clientCA").AbsPath()}
	c.Exports = parseExports(n.Want("exports"))
	for _, p := range n.Want("pools").List(maxPools) {
		c.Pools = append(c.Pools, c.parsePool(p))
	}
	if len(c.Pools) == 0 {
		n.Key("pools").Fail("want at least one pool")
	}
	if n.Err() == nil {
		c.check(n)
	}
	if n.Err() != nil {
		return nil, n.Err()
	}
	return c, nil
}

// servers are the kinds of exporters that a transport has.
var servers = []struct {
	transport backend.Transport
	port      uint16
	kinds     []Kind
}{
	{backend.ISCSI, iscsiPort, []Kind{Embedded, LIO}},
	{backend.NVMe, nvmePort, []Kind{Embedded, NVMet}},
}

func parseExports(n strictyaml.Node) (out []Export) {
	n.Object(string(backend.ISCSI), string(backend.NVMe))
	for _, s := range servers {
		e := n.Key(string(s.transport))
		if !e.Given() {
			continue
		}
		e.Object("kind", "portals")
		x := Export{Transport: s.transport, Kind: strictyaml.Choice(e.Want("kind"), s.kinds...)}
		for _, p := range e.Want("portals").List(export.MaxPortals) {
			x.Portals = append(x.Portals, parsePortal(p, s.port))
		}
		if len(x.Portals) == 0 {
			e.Key("portals").Fail("want at least one portal")
		}
		out = append(out, x)
	}
	if len(out) == 0 {
		n.Fail("want %s, %s, or both", backend.ISCSI, backend.NVMe)
	}
	return out
}

func parsePortal(n strictyaml.Node, port uint16) export.Portal {
	n.Object("listen", "advertise", "group")
	at, tell := strictyaml.Door(n.Want("listen"), n.Key("advertise"), port)
	if at.IsValid() && at.Port() == 0 {
		n.Key("listen").Fail("port 0: nodes come back to the port that they were told")
	}
	p := export.Portal{Listen: at.String(), Group: uint16(n.Key("group").Number(1, maxGroup, 0))} //nolint:gosec // bounded
	if tell.IsValid() {
		p.Advertise = tell.String()
	}
	return p
}

func (c *Config) parsePool(n strictyaml.Node) (p Pool) {
	n.Object("name", "lvmThin", "directory", "transports")
	if p.Name = n.Want("name").Text(backend.MaxPool); p.Name != "" && backend.CheckPool(p.Name) != nil {
		n.Key("name").Fail("%q: want 1..%d of a-z, 0-9 and inner hyphens", p.Name, backend.MaxPool)
	}
	lvm, dir := n.Key("lvmThin"), n.Key("directory")
	switch {
	case lvm.Given() == dir.Given():
		n.Fail("want either lvmThin or directory")
	case lvm.Given():
		p.LVMThin = parseLVMThin(lvm)
	default:
		p.Directory = parseDirectory(dir)
	}
	p.Transports = c.transports(n.Key("transports"))
	return p
}

// transports are those given, or all that are exported.
func (c *Config) transports(n strictyaml.Node) (out []backend.Transport) {
	if !n.Given() {
		for _, e := range c.Exports {
			out = append(out, e.Transport)
		}
		return out
	}
	for _, t := range n.List(maxTransports) {
		name := backend.Transport(t.Text(maxLVMName))
		if !slices.ContainsFunc(c.Exports, func(e Export) bool { return e.Transport == name }) {
			t.Fail("%q is not in exports", strictyaml.Cut(string(name)))
		}
		if slices.Contains(out, name) {
			t.Fail("%q is there twice", strictyaml.Cut(string(name)))
		}
		out = append(out, name)
	}
	if len(out) == 0 {
		n.Fail("is empty: leave it out for all")
	}
	return out
}

func parseLVMThin(n strictyaml.Node) *LVMThin {
	n.Object("volumeGroup", "thinPool", "queueWhenFull", "devices", "dataLimit", "metadataLimit", "overcommit")
	l := &LVMThin{VolumeGroup: lvmName(n.Want("volumeGroup")), ThinPool: lvmName(n.Want("thinPool")),
		QueueWhenFull: n.Key("queueWhenFull").Flag(), Marks: marks(n)}
	for _, d := range n.Key("devices").List(maxDevices) {
		l.Devices = append(l.Devices, d.AbsPath())
	}
	return l
}

func parseDirectory(n strictyaml.Node) *Directory {
	n.Object("path", "preallocate", "dataLimit", "overcommit")
	d := &Directory{Path: n.Want("path").AbsPath(), Preallocate: n.Key("preallocate").Flag(), Marks: marks(n)}
	if d.Path == "/" {
		n.Key("path").Fail("/ is no directory of the agent's own")
	}
	return d
}

// marks are percentages; 0 is the store's default.
func marks(n strictyaml.Node) store.Marks {
	share := func(key string, least, most uint64) float64 { return float64(n.Key(key).Number(least, most, 0)) / 100 }
	return store.Marks{Data: share("dataLimit", 1, 100), Metadata: share("metadataLimit", 1, 100),
		Overcommit: share("overcommit", 100, maxOvercommit)}
}

// lvmName is a name as LVM has them (lvm(8), VALID NAMES): it becomes an argument.
func lvmName(n strictyaml.Node) string {
	s := n.Text(maxLVMName)
	odd := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("+_.-", r)
	}
	if s != "" && (s[0] == '-' || s == "." || s == ".." || strings.ContainsFunc(s, odd)) {
		n.Fail("%q is no name of LVM: letters, digits, '+', '_', '.' and '-', and no '-' first", strictyaml.Cut(s))
	}
	return s
}

// check holds what concerns several values.
func (c *Config) check(n strictyaml.Node) {
	names, places, addresses := strictyaml.Seen{}, strictyaml.Seen{}, strictyaml.Seen{}
	for i, at := range n.Key("pools").List(maxPools) {
		p := c.Pools[i]
		names.Once(at.Key("name"), p.Name, p.Name)
		if p.LVMThin != nil {
			v := p.LVMThin.VolumeGroup + "/" + p.LVMThin.ThinPool
			places.Once(at.Key("lvmThin"), v, v)
			continue
		}
		path := at.Key("directory").Key("path")
		places.Once(path, p.Directory.Path, p.Directory.Path)
		c.apart(path, p)
	}
	addresses.Once(n.Key("listen"), c.Listen.String(), c.Listen.String())
	if c.Metrics.IsValid() {
		addresses.Once(n.Key("metrics"), c.Metrics.String(), c.Metrics.String())
	}
	for _, e := range c.Exports {
		for i, at := range n.Key("exports").Key(string(e.Transport)).Key("portals").List(export.MaxPortals) {
			addresses.Once(at.Key("listen"), e.Portals[i].Listen, e.Portals[i].Listen)
		}
	}
}

// apart refuses directories inside each other: what is in them is the agent's.
func (c *Config) apart(n strictyaml.Node, p Pool) {
	others := map[string]string{"state": c.State}
	for _, o := range c.Pools {
		if o.Directory != nil && o.Name != p.Name {
			others["pool "+o.Name] = o.Directory.Path
		}
	}
	for _, what := range slices.Sorted(maps.Keys(others)) {
		a, b := p.Directory.Path+"/", others[what]+"/"
		if strings.HasPrefix(a, b) || strings.HasPrefix(b, a) {
			n.Fail("%s and %s of %s are inside each other", p.Directory.Path, others[what], what)
		}
	}
}
