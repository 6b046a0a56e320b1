package config

import (
	"reflect"
	"strings"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/agent/export"
	"github.com/csi-mpath/csi-mpath/pkg/agent/store"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/strictyaml"
)

func parse(t *testing.T, text string) *Config {
	t.Helper()
	c, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestTheExampleIsRight(t *testing.T) {
	c := parse(t, Example)
	if c.Listen.String() != "192.0.2.10:7443" || c.Metrics.IsValid() || c.State != DefaultState || len(c.Pools) != 2 || len(c.Exports) != 2 ||
		c.Pools[0].LVMThin.ThinPool != "pool0" || c.Pools[1].Directory.Path != "/srv/csi-mpath" || len(c.Pools[1].Transports) != 2 ||
		c.Exports[0].Kind != LIO || c.Exports[1].Kind != NVMet {
		t.Fatalf("%+v", c)
	}
}

// Whoever takes the example's comments away gets what they promise.
func TestEveryKeyThatTheExampleCommentsOutIsRight(t *testing.T) {
	var out []string
	for _, line := range strings.Split(Example, "\n") {
		if key, commented := strings.CutPrefix(strings.TrimLeft(line, " "), "#"); commented && key != "" && (key[0] != ' ' || strings.HasPrefix(key, "  ")) {
			line = strings.Replace(line, "#", "", 1)
		}
		out = append(out, line)
	}
	c := parse(t, strings.Join(out, "\n"))
	if !c.Metrics.IsValid() || c.Exports[1].Portals[0] != (export.Portal{Listen: "10.0.1.10:4420", Advertise: "203.0.113.5:4420", Group: 1}) ||
		c.Pools[0].LVMThin.Marks != (store.Marks{Data: .85, Metadata: .7, Overcommit: 10}) || len(c.Pools[0].Transports) != 2 {
		t.Fatalf("%s\n%+v", strings.Join(out, "\n"), c)
	}
}

// full has every key, so that each can be spoilt.
const full = `listen: 192.0.2.1
tls: {cert: /t/c, key: /t/k, clientCA: /t/a}
state: /var/state
admin: /run/a
metrics: 127.0.0.1:9
pools:
- name: fast
  lvmThin: {volumeGroup: vg0, thinPool: tp-0, dataLimit: 80, metadataLimit: 60, overcommit: 150, queueWhenFull: true, devices: [/dev/sdb, /dev/sdc]}
  transports: [nvme-tcp]
- name: files
  directory: {path: /srv/a, preallocate: true, dataLimit: 95, overcommit: 100}
exports:
  iscsi: {kind: embedded, portals: [{listen: "10.0.0.1", group: 7}, {listen: "0.0.0.0:3261", advertise: "10.0.0.2:3261"}]}
  nvme-tcp: {kind: nvmet, portals: [{listen: "[fd00::1]"}]}
`

func TestEverythingIsReadAsItIsWritten(t *testing.T) {
	c := parse(t, full)
	want := Config{Listen: c.Listen, Metrics: c.Metrics, TLS: TLS{"/t/c", "/t/k", "/t/a"}, State: "/var/state", Admin: "/run/a",
		Pools: []Pool{
			{Name: "fast", LVMThin: &LVMThin{"vg0", "tp-0", true, []string{"/dev/sdb", "/dev/sdc"}, store.Marks{Data: .8, Metadata: .6, Overcommit: 1.5}}, Transports: []backend.Transport{backend.NVMe}},
			{Name: "files", Directory: &Directory{"/srv/a", true, store.Marks{Data: .95, Overcommit: 1}}, Transports: []backend.Transport{backend.ISCSI, backend.NVMe}},
		},
		Exports: []Export{
			{backend.ISCSI, Embedded, []export.Portal{{Listen: "10.0.0.1:3260", Group: 7}, {Listen: "0.0.0.0:3261", Advertise: "10.0.0.2:3261"}}},
			{backend.NVMe, NVMet, []export.Portal{{Listen: "[fd00::1]:4420"}}},
		}}
	if !reflect.DeepEqual(*c, want) || c.Listen.String() != "192.0.2.1:7443" || c.Metrics.String() != "127.0.0.1:9" {
		t.Fatalf("%+v", c)
	}
}

// Long: a table of mistakes.
func TestEveryMistakeIsAnErrorThatNamesItsPlace(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{"listen: 192.0.2.1\n", "", "listen: is missing"},
		{"listen: 192.0.2.1\n", "listen: host\n", `listen: "host" is neither`},
		{"state:", "States:", "States: unknown key; known here: listen"},
		{"state: /var/state", "state: var", `state: "var" is no absolute path`},
		{"tls: {cert: /t/c, ", "tls: {", "tls.cert: is missing"},
		{"key: /t/k", "key: /t/../k", "tls.key: "},
		{"clientCA:", "ca:", "tls.ca: unknown key"},
		{"name: fast", "name: ../fast", `pools[0].name: "../fast": want`},
		{"name: fast", "name: Fast", `pools[0].name: "Fast": want`},
		{"name: fast", "name: files", "pools[1].name: files is also that of pools[0].name"},
		{"name: fast", "nam: fast", "pools[0].nam: unknown key"},
		{"volumeGroup: vg0", "volumeGroup: vg0/x", `pools[0].lvmThin.volumeGroup: "vg0/x" is no name of LVM`},
		{"thinPool: tp-0", "thinPool: --force", `pools[0].lvmThin.thinPool: "--force" is no name of LVM`},
		{"thinPool: tp-0", "thinPool: ..", "pools[0].lvmThin.thinPool: "},
		{"thinPool: tp-0, ", "", "pools[0].lvmThin.thinPool: is missing"},
		{"dataLimit: 80", "dataLimit: 101", "pools[0].lvmThin.dataLimit: is the number 101, want a number 1 to 100"},
		{"metadataLimit: 60", "metadataLimit: 0.6", "pools[0].lvmThin.metadataLimit: "},
		{"overcommit: 150", "overcommit: 50", "pools[0].lvmThin.overcommit: "},
		{"[nvme-tcp]", "[fc]", `pools[0].transports[0]: "fc" is not in exports`},
		{"[nvme-tcp]", "[iscsi, iscsi]", `pools[0].transports[1]: "iscsi" is there twice`},
		{"[nvme-tcp]", "[]", "pools[0].transports: is empty"},
		{"  directory: {path: /srv/a, preallocate: true, dataLimit: 95, overcommit: 100}", "", "pools[1]: want either"},
		{"path: /srv/a", "path: /", "pools[1].directory.path: / is no"},
		{"path: /srv/a", "path: /var", "pools[1].directory.path: /var and /var/state of state"},
		{"path: /srv/a", "path: /var/state/a", "pools[1].directory.path: "},
		{"/dev/sdc", "sdc", "pools[0].lvmThin.devices[1]: "},
		{"admin: /run/a", "admin: a", "admin: "},
		{"preallocate: true", "preallocate: 1", "pools[1].directory.preallocate: "},
		{"preallocate: true", "metadataLimit: 5", "pools[1].directory.metadataLimit: unknown key"},
		{"kind: embedded", "kind: nvmet", `exports.iscsi.kind: is "nvmet", want one of embedded, lio`},
		{"kind: nvmet", "kind: lio", "exports.nvme-tcp.kind: "},
		{"  nvme-tcp:", "  fc:", "exports.fc: unknown key"},
		{`portals: [{listen: "[fd00::1]"}]`, "portals: []", "exports.nvme-tcp.portals: want at least one"},
		{`listen: "10.0.0.1"`, `listen: "10.0.0.1:0"`, "exports.iscsi.portals[0].listen: port 0"},
		{`, advertise: "10.0.0.2:3261"`, "", "exports.iscsi.portals[1].listen: 0.0.0.0:3261 is every address"},
		{`"10.0.0.2:3261"`, `"0.0.0.0"`, "exports.iscsi.portals[1].advertise: "},
		{"0.0.0.0:3261", "10.0.0.1:3260", "exports.iscsi.portals[1].listen: 10.0.0.1:3260 is also that of exports.iscsi.portals[0].listen"},
		{"127.0.0.1:9", "10.0.0.1:3260", "exports.iscsi.portals[0].listen: 10.0.0.1:3260 is also that of metrics"},
		{"group: 7", "group: 65536", "exports.iscsi.portals[0].group: "},
		{"pools:\n", "pools: []\nx:\n", "x: unknown key"},
		{full, "", "the file: is empty"},
		{full, "listen: ::1\ntls: {cert: /a, key: /b, clientCA: /c}\nexports: {}\npools: []", "exports: want iscsi"},
		{full, full + "---\n" + full, "a second document"},
	} {
		text := strings.Replace(full, c.old, c.new, 1)
		if text == full {
			t.Fatalf("%q is not there", c.old)
		}
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q for %q: got %v, want %q", strictyaml.Cut(c.new), strictyaml.Cut(c.old), err, c.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(Example))
	f.Add([]byte(full))
	f.Add([]byte("pools: &a [*a]"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := Parse(b)
		if err != nil {
			if c != nil || len(err.Error()) > 1000 {
				t.Fatalf("%d bytes", len(err.Error()))
			}
			return
		}
		if !c.Listen.IsValid() || len(c.Pools) == 0 || len(c.Pools) > maxPools || len(c.Exports) == 0 || c.State == "" || c.State[0] != '/' {
			t.Fatalf("%+v", c)
		}
		for _, p := range c.Pools {
			if backend.CheckPool(p.Name) != nil || (p.LVMThin == nil) == (p.Directory == nil) || len(p.Transports) == 0 {
				t.Fatalf("%+v", p)
			}
			if p.LVMThin != nil && (strings.Contains(p.LVMThin.VolumeGroup+p.LVMThin.ThinPool, "/") || p.LVMThin.ThinPool[0] == '-') {
				t.Fatalf("%+v", p.LVMThin)
			}
		}
		for _, e := range c.Exports {
			if _, _, err := export.CheckPortals(e.Portals, func(int) uint16 { return 1 }); err != nil {
				t.Fatalf("%+v: %v", e, err)
			}
		}
	})
}
