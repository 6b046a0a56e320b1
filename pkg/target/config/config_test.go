package config

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
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

func TestTheExampleWorksAsItIs(t *testing.T) {
	c := parse(t, Example)
	if len(c.Targets) != 3 || len(c.Targets[0].Portals) != 2 || c.Targets[0].Access(2, 0).State != scsi.NonOptimized ||
		c.Targets[0].Access(1, 0).State != scsi.Optimized || c.Targets[0].LUNs[0].Store.RAM != 256<<20 ||
		!c.Targets[2].NVMe || c.Targets[2].Access(2, 1).ANA != nvme.NonOptimized {
		t.Fatalf("%+v", c)
	}
}

// Whoever takes the example's comments away gets what they promise.
func TestEveryKeyThatTheExampleCommentsOutIsRight(t *testing.T) {
	var out []string
	for _, line := range strings.Split(Example, "\n") {
		key, commented := strings.CutPrefix(strings.TrimLeft(line, " "), "#")
		if commented && key != "" && key[0] != ' ' || strings.HasPrefix(line, "#  ") || strings.HasPrefix(line, "  #  ") {
			line = strings.Replace(line, "#", "", 1)
		}
		out = append(out, line)
	}
	c := parse(t, strings.Join(out, "\n"))
	one := c.Targets[0]
	if c.Discovery.SecretFile == "" || one.Auth.SecretFile == "" || len(one.Initiators) != 1 || one.Portals[0].Advertise == "" ||
		one.Depth != 128 || len(one.LUNs) != 2 || one.LUNs[1].Identity.NAA == "" || !one.LUNs[1].Store.Direct {
		t.Fatalf("%s\n%+v", strings.Join(out, "\n"), c)
	}
}

func TestDefaultsAreFilledIn(t *testing.T) {
	c := parse(t, `targets: [{name: "iqn.2026-01.a:b", luns: [{number: 3, store: {ram: 4096}}]}]`)
	want := Target{Name: "iqn.2026-01.a:b", Portals: []Portal{{Address: "127.0.0.1:3260", TPGT: 1, Group: 1}},
		LUNs: []LUN{{Number: 3, BlockSize: 512, Store: Store{RAM: 4096}}}}
	if !reflect.DeepEqual(c.Targets[0], want) {
		t.Fatalf("%+v", c.Targets[0])
	}
}

func TestSizesAreWrittenAsInKubernetes(t *testing.T) {
	for text, want := range map[string]uint64{"4096": 4096, "1Ki": 1024, "2Mi": 2 << 20, "3Gi": 3 << 30, "1Ti": 1 << 40, "64k": 64e3,
		"512M": 512e6, `"8192"`: 8192} {
		c := parse(t, `targets: [{name: "iqn.a:b", luns: [{number: 0, store: {ram: `+text+`}}]}]`)
		if got := c.Targets[0].LUNs[0].Store.RAM; got != want {
			t.Errorf("%s is %d, want %d", text, got, want)
		}
	}
}

// full has every key, so that each can be spoilt.
const full = `discovery: {auth: {secretFile: /s}}
targets:
- name: iqn.2026-01.a:b
  initiators: [iqn.2026-01.a:host]
  auth: {secretFile: /s}
  portals: [{address: "192.0.2.1:3260", tpgt: 2, group: 3}, {address: "[::1]"}]
  groups: [{id: 3, state: standby}]
  depth: 8
  luns:
  - {number: 0, store: {file: /disk, size: 1Gi, direct: true}, blockSize: 4096, readOnly: true, thick: true}
  - {number: 1, store: {ram: 1Mi}, writeThrough: true, wwid: naa.5000000000000001, serial: A}
`

// Long: a table of mistakes.
func TestEveryMistakeIsAnErrorThatNamesItsPlace(t *testing.T) {
	parse(t, full)
	for _, c := range []struct{ old, new, want string }{
		{"discovery:", "discover:", "discover: unknown key; known here: discovery, targets"},
		{"depth: 8", "deepth: 8", "targets[0].deepth: unknown key"},
		{"tpgt: 2", "tpgtt: 2", "targets[0].portals[0].tpgtt: unknown key"},
		{"id: 3,", "idd: 3,", "targets[0].groups[0].idd: unknown key"},
		{"number: 1,", "nummber: 1,", "targets[0].luns[1].nummber: unknown key"},
		{"direct: true", "directt: true", "targets[0].luns[0].store.directt: unknown key"},
		{"depth: 8", "depth: 8\n  depth: 9", `"depth" already set`},
		{"depth: 8", "depth: 0", "targets[0].depth: is the number 0, want a number 1 to 4096"},
		{"depth: 8", "depth: 1.5", "targets[0].depth: is the number 1.5"},
		{"depth: 8", "depth: deep", `targets[0].depth: is "deep"`},
		{"depth: 8", "depth: -1", "targets[0].depth: is the number -1"},
		{"iqn.2026-01.a:b", "disk1", `targets[0].name: "disk1" is no iSCSI name`},
		{"iqn.2026-01.a:b", "iqn.A:b", "targets[0].name: "},
		{"name: iqn.2026-01.a:b", "name: 7", "targets[0].name: is the number 7, want a text: put it in quotes"},
		{"name: iqn.2026-01.a:b", "name: ", "targets[0].name: want an iSCSI name"},
		{"[iqn.2026-01.a:host]", "[]", "targets[0].initiators: is empty, which would let nobody in"},
		{"[iqn.2026-01.a:host]", "iqn.2026-01.a:host", "targets[0].initiators: is \"iqn.2026-01.a:host\", want a list"},
		{"[iqn.2026-01.a:host]", "[x]", "targets[0].initiators[0]: "},
		{"  auth: {secretFile: /s}", "  auth: {}", "targets[0].auth: want secretFile"},
		{"  auth: {secretFile: /s}", "  auth: {secretFile: s}", `targets[0].auth.secretFile: "s" is no absolute path`},
		{"  auth: {secretFile: /s}", "  auth: {secret: hidden}", "targets[0].auth.secret: unknown key"},
		{"  auth: {secretFile: /s}\n", "", "targets[0].portals[0].address: 192.0.2.1:3260 can be reached from other machines"},
		{"192.0.2.1:3260", "0.0.0.0:3260", "targets[0].portals[0].address: 0.0.0.0:3260 is every address of the machine"},
		{`"192.0.2.1:3260"`, `"0.0.0.0", advertise: "[::]:1"`, "targets[0].portals[0].advertise: "},
		{"192.0.2.1:3260", "array.example:3260", "targets[0].portals[0].address: "},
		{"192.0.2.1:3260", "[::1]:3260", "targets[0].portals[1].address: [::1]:3260 is also that of targets[0].portals[0].address"},
		{"192.0.2.1:3260", "192.0.2.1:99999", "targets[0].portals[0].address: "},
		{`address: "[::1]"`, `group: 2`, "targets[0].portals[1].address: is missing"},
		{"group: 3", "group: 4", "targets[0].groups[0].id: no portal is in group 3"},
		{"state: standby", "state: sleeping", `targets[0].groups[0].state: is "sleeping", want one of optimized, non-optimized`},
		{"state: standby}", "state: standby}, {id: 3, state: offline}", "targets[0].groups[1].id: this group is also that of targets[0].groups[0].id"},
		{"number: 1,", "number: 0,", "targets[0].luns[1].number: LUN 0 is also that of targets[0].luns[0].number"},
		{"number: 1,", "number: 16384,", "targets[0].luns[1].number: is the number 16384, want a number 0 to 16383"},
		{"number: 1, ", "", "targets[0].luns[1].number: is missing"},
		{"{number: 1, store: {ram: 1Mi}", "{number: 1", "targets[0].luns[1].store: is missing"},
		{"blockSize: 4096", "blockSize: 1000", "targets[0].luns[0].blockSize: 1000 is neither 512 nor 4096"},
		{"size: 1Gi", "size: 1000", "targets[0].luns[0].store: 1000 bytes are not a multiple of the block size 4096"},
		{"size: 1Gi", "size: 2048Ti", "targets[0].luns[0].store.size: "},
		{"size: 1Gi", "size: 1 GB", `targets[0].luns[0].store.size: is "1 GB", want a size like 512Mi`},
		{"size: 1Gi", "size: 18446744073709551615Ki", "targets[0].luns[0].store.size: "},
		{"ram: 1Mi", "ram: 1Mi, file: /x", "targets[0].luns[1].store: want either ram or file"},
		{"ram: 1Mi", "ram: 1Mi, direct: true", "targets[0].luns[1].store: size and direct are for files"},
		{"ram: 1Mi", "file: /disk", "targets[0].luns[1].store.file: /disk is also that of targets[0].luns[0].store.file"},
		{"/disk", "/a/../disk", "targets[0].luns[0].store.file: "},
		{"readOnly: true", "readOnly: 1", "targets[0].luns[0].readOnly: is the number 1, want true or false"},
		{"naa.5000000000000001", "naa.500", "targets[0].luns[1].wwid: "},
		{"naa.5000000000000001", "5000000000000001", "targets[0].luns[1].wwid: is the number"},
		{"wwid: naa.5000000000000001, ", "", "targets[0].luns[1].serial: a serial needs a wwid"},
		{"serial: A", "serial: Ä", "targets[0].luns[1].serial: "},
		{"luns:\n", "luns: []\n  x:\n", "targets[0].x: unknown key"},
		{full, "targets: []", "targets: want at least one target"},
		{full, "", "the file: is empty, want discovery, targets"},
		{full, "- a", "the file: is a list of 1"},
		{full, "targets: [{name: iqn.a:b, luns: []}]", "targets[0].luns: want at least one LUN"},
		{full, "targets: [{name: iqn.a:b, portals: [], luns: [{number: 0, store: {ram: 1Mi}}]}]", "targets[0].portals: is empty"},
		{full, "targets: [7]", "targets[0]: is the number 7"},
		{full, full + "---\n" + full, "a second document begins"},
		{full, full + strings.Replace(full, full[:strings.Index(full, "- name")], "", 1), "targets[1].name: iqn.2026-01.a:b is also that of targets[0].name"},
		{full, "targets: &a [*a]", "anchor"},
		{full, strings.Repeat("#", MaxFile+1), "longer than"},
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

func TestErrorsQuoteNoMoreThanTheyMust(t *testing.T) {
	long := strings.Repeat("x", 10000)
	for _, text := range []string{long + ": 1", "targets: [{name: iqn." + long + "}]", "targets: [{name: iqn.a:b, depth: " + long + "}]",
		"targets: [{" + long + ": 1}]"} {
		if _, err := Parse([]byte(text)); err == nil || len(err.Error()) > 400 {
			t.Errorf("an error of %d bytes", len(fmt.Sprint(err)))
		}
	}
}

func TestADocumentMayBeginWithItsMarker(t *testing.T) {
	parse(t, "# ours\n---\n"+full)
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(Example))
	f.Add([]byte(full))
	f.Add([]byte(fullNVMe))
	f.Add([]byte(`{"targets": [{"name": "iqn.a:b", "luns": [{"number": 0, "store": {"ram": 512}}]}]}`))
	f.Add([]byte("targets: &a [*a]"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := Parse(b)
		if err != nil {
			if c != nil {
				t.Fatal("both a configuration and an error")
			}
			return
		}
		for _, x := range c.Targets {
			if x.Name == "" || len(x.LUNs) == 0 || len(x.LUNs) > maxLUNs || len(x.Portals) == 0 || len(x.Portals) > maxPortals || x.Depth > maxDepth {
				t.Fatalf("%+v", x)
			}
			for _, l := range x.LUNs {
				if l.Number > maxLUN || (l.Store.RAM == 0) == (l.Store.File == "") || (l.Store.RAM|l.Store.Size)%uint64(l.BlockSize) != 0 {
					t.Fatalf("%+v", l)
				}
			}
		}
	})
}
