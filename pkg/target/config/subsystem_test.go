package config

import (
	"reflect"
	"strings"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/nvme"

	"github.com/csi-mpath/csi-mpath/pkg/strictyaml"
)

func TestATargetWithAnNQNIsASubsystem(t *testing.T) {
	c := parse(t, `targets: [{nqn: "nqn.2026-01.a:b", namespaces: [{nsid: 3, store: {ram: 4096}}]}]`)
	want := Target{Name: "nqn.2026-01.a:b", NVMe: true, HostAuth: map[string]Auth{},
		Portals: []Portal{{Address: "127.0.0.1:4420", TPGT: 1, Group: 1}},
		LUNs:    []LUN{{Number: 3, BlockSize: 512, ANAGroup: 1, Store: Store{RAM: 4096}}}}
	if !reflect.DeepEqual(c.Targets[0], want) {
		t.Fatalf("%+v", c.Targets[0])
	}
}

// fullNVMe has every key, so that each can be spoilt.
const fullNVMe = `discovery: {dhchap: {secretFile: /s}}
targets:
- nqn: nqn.2026-01.a:b
  hosts: [{nqn: "nqn.2026-01.a:host", auth: {secretFile: /h, controllerSecretFile: /c}}]
  auth: {secretFile: /s}
  portals: [{address: "192.0.2.1", id: 2, group: 3}, {address: "[::1]"}]
  groups: [{id: 3, state: non-optimized}, {id: 3, anaGroup: 2, state: inaccessible}]
  depth: 8
  queues: 4
  namespaces:
  - {nsid: 1, store: {file: /disk, size: 1Gi}, blockSize: 4096, anaGroup: 2, nguid: 6f1d1c3e8a5b4c7d9e2f1a2b3c4d5e6f}
  - {nsid: 2, store: {ram: 1Mi}, uuid: 6F1D1C3E-8A5B-4C7D-9E2F-1A2B3C4D5E6F, eui64: 6f1d1c3e8a5b4c7d}
- name: iqn.2026-01.a:b
  luns: [{number: 0, store: {ram: 1Mi}}]
`

func TestStatesAreThoseOfAGroupOfPortalsAndAnANAGroup(t *testing.T) {
	one := parse(t, fullNVMe).Targets[0]
	if one.Access(3, 2).ANA != nvme.Inaccessible || one.Access(3, 1).ANA != nvme.NonOptimized || one.Access(1, 2).ANA != nvme.Optimized {
		t.Fatalf("%+v", one.Groups)
	}
	if one.LUNs[1].NVMe.UUID != "6f1d1c3e-8a5b-4c7d-9e2f-1a2b3c4d5e6f" || one.Portals[0].Address != "192.0.2.1:4420" {
		t.Fatalf("%+v", one)
	}
}

func TestEveryMistakeInASubsystemIsAnErrorThatNamesItsPlace(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{"nqn: nqn.2026-01.a:b", "nqn: b", `targets[0].nqn: "b" is no NQN`},
		{"nqn: nqn.2026-01.a:b", "nqn: nqn.2014-08.org.nvmexpress.discovery", "targets[0].nqn: "},
		{"queues: 4", "luns: []", "targets[0].luns: unknown key"},
		{"queues: 4", "queues: 65", "targets[0].queues: is the number 65"},
		{"depth: 8", "depth: 1", "targets[0].depth: is the number 1"},
		{`[{nqn: "nqn.2026-01.a:host", auth: {secretFile: /h, controllerSecretFile: /c}}]`, "[]", "targets[0].hosts: is empty"},
		{`nqn: "nqn.2026-01.a:host", `, "", "targets[0].hosts[0].nqn: is missing"},
		{"secretFile: /h, ", "", "targets[0].hosts[0].auth: want secretFile"},
		{"id: 2,", "tpgt: 2,", "targets[0].portals[0].tpgt: unknown key"},
		{"state: inaccessible", "state: standby", `targets[0].groups[1].state: is "standby", want one of optimized, non-optimized, inaccessible`},
		{"anaGroup: 2, state", "anaGroup: 129, state", "targets[0].groups[1].anaGroup: "},
		{"{id: 3, state", "{id: 4, state", "targets[0].groups[0].id: no portal is in group 4"},
		{"nsid: 2", "nsid: 1", "targets[0].namespaces[1].nsid: namespace 1 is also that of targets[0].namespaces[0].nsid"},
		{"nsid: 2", "nsid: 0", "targets[0].namespaces[1].nsid: is the number 0"},
		{"nsid: 2, ", "", "targets[0].namespaces[1].nsid: is missing"},
		{"6F1D1C3E-8A5B-4C7D-9E2F-1A2B3C4D5E6F", "00000000-0000-0000-0000-000000000000", "targets[0].namespaces[1].uuid: "},
		{"6F1D1C3E-8A5B", "6F1D1C3E8-A5B", "targets[0].namespaces[1].uuid: "},
		{"eui64: 6f1d1c3e8a5b4c7d", "eui64: 6f1d", "targets[0].namespaces[1].eui64: "},
		{"eui64: 6f1d1c3e8a5b4c7d", "nguid: 6f1d1c3e8a5b4c7d9e2f1a2b3c4d5e6f", "this identity is also that of"},
		{"- name: iqn.2026-01.a:b", "- name: iqn.2026-01.a:b\n  portals: [{address: \"[::1]:4420\"}]", "targets[1].portals[0].address: [::1]:4420 serves iSCSI or NVMe/TCP, not both"},
		{"store: {ram: 1Mi}}]", "store: {file: /disk, size: 1Mi}}]", "targets[1].luns[0].store.file: /disk is also that of targets[0].namespaces[0].store.file"},
	} {
		text := strings.Replace(fullNVMe, c.old, c.new, 1)
		if text == fullNVMe {
			t.Fatalf("%q is not there", c.old)
		}
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q for %q: got %v, want %q", strictyaml.Cut(c.new), strictyaml.Cut(c.old), err, c.want)
		}
	}
}

func TestASubsystemOthersCanReachAsksEveryHost(t *testing.T) {
	text := strings.Replace(fullNVMe, "  auth: {secretFile: /s}\n", "", 1)
	parse(t, text) // each host that is let in has a secret of its own
	text = strings.Replace(text, "hosts: [", `hosts: [{nqn: "nqn.2026-01.a:other"}, `, 1)
	if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), "can be reached from other machines") {
		t.Error(err)
	}
}
