package attrs

import (
	"errors"
	"maps"
	"reflect"
	"strings"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

func iscsiAttachment() Attachment {
	return Attachment{Fencing: FencingBackend, CHAP: true, Connection: backend.Connection{
		Transport: backend.ISCSI, Target: "iqn.2025-01.io.csi-mpath:vol:1", LUN: 7, WWID: "36001405abc", Initiator: "iqn.2025-01.io.csi-mpath:node:e1",
		Epoch: "e1", Size: 1 << 30, ReadOnly: true, Content: backend.ContentCopy, Generation: 3,
		Tunables: map[string]string{"minPaths": "2"},
		Portals:  []backend.Portal{{Address: "10.0.0.1:3260", Group: 1}, {Address: "[2001:db8::1]:3260", Group: 2}}}}
}

func nvmeAttachment() Attachment {
	return Attachment{Fencing: FencingNone, Connection: backend.Connection{
		Transport: backend.NVMe, Target: "nqn.2025-01.io.csi-mpath:vol:1", NSID: 1, HostID: strings.Repeat("0a", 16), Content: backend.ContentBlank,
		Portals: []backend.Portal{{Address: "a.example:4420"}}}}
}

func TestAPublishContextComesBackAsItWas(t *testing.T) {
	for _, a := range []Attachment{iscsiAttachment(), nvmeAttachment()} {
		m, err := PublishContext(a)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := ParsePublishContext(m); err != nil || !reflect.DeepEqual(back, a) {
			t.Errorf("%v\ncame back as %+v, %v, want %+v", m, back, err, a)
		}
	}
}

func TestAPublishContextIsReadStrictly(t *testing.T) {
	good, err := PublishContext(iscsiAttachment())
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]map[string]string{
		"no version": {"version": ""}, "another version": {"version": "2"}, "transport": {"transport": "fc"}, "no target": {"target": ""},
		"target": {"target": "nqn.x"}, "LUN": {"lun": "-1"}, "LUN form": {"lun": "07"}, "large LUN": {"lun": "16777216"}, "no portals": {"portals": ""},
		"portal": {"portals": "10.0.0.1/1"}, "group": {"portals": "10.0.0.1:1/x"}, "doubles": {"portals": "10.0.0.1:1/1,10.0.0.1:1/2"},
		"bool": {"readOnly": "yes"}, "content": {"content": "maybe"}, "fencing": {"fencing": "hope"}, "size": {"sizeBytes": "1e9"},
		"tunable": {"tunable.minPaths": "0"}, "unknown tunable": {"tunable.x": "0"}, "unknown key": {"color": "red"}, "nsid": {"nsid": "1"},
		"epoch": {"epoch": "a b"}, "wwid": {"wwid": strings.Repeat("a", 300)}, "size of all": {"x": strings.Repeat("a", maxBytes)},
	} {
		m := maps.Clone(good)
		maps.Copy(m, change)
		if _, err := ParsePublishContext(m); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestKeysOfOthersAreTolerated(t *testing.T) {
	m, _ := PublishContext(nvmeAttachment())
	m["csi.storage.k8s.io/pod.name"], m["storage.kubernetes.io/csiProvisionerIdentity"] = "p", "i"
	if _, err := ParsePublishContext(m); err != nil {
		t.Error(err)
	}
	if _, err := ParseVolumeContext(map[string]string{"storage.kubernetes.io/csiProvisionerIdentity": "i", "mkfsOptions": "-m 0"}); err != nil {
		t.Error(err)
	}
	if _, err := ParseClass(map[string]string{"csi.storage.k8s.io/fstype": "xfs", "csi.storage.k8s.io/pv/name": "x"}); err != nil {
		t.Error(err)
	}
}

func TestVolumesOfOtherDriversAreUnderstood(t *testing.T) {
	uuid := "5a1b0e3c-0000-4000-8000-000000000001"
	for name, c := range map[string]struct {
		in      map[string]string
		portals string
		wwid    string
		sources string
	}{
		"csi-driver-iscsi": {map[string]string{"targetPortal": "10.0.0.1:3260", "portals": `["10.0.0.2:3260","10.0.0.1"]`, "iqn": "iqn.2000-01.x:y", "lun": "1",
			"iscsiInterface": "default", "discoveryCHAPAuth": "false", "sessionCHAPAuth": "false"}, "10.0.0.1:3260/0,10.0.0.2:3260/0", "", ""},
		"no portals": {map[string]string{"targetPortal": "10.0.0.1", "portals": "[]", "iqn": "iqn.2000-01.x:y", "lun": "1"}, "10.0.0.1:3260/0", "", ""},
		"democratic": {map[string]string{"portal": "a:1", "portals": "b, c:2", "iqn": "iqn.2000-01.x:y", "lun": "0", "node_attach_driver": "iscsi", "wwid": "36"}, "a:1/0,b:3260/0,c:2/0", "36", ""},
		"IPv6":       {map[string]string{"portals": "[2001:db8::1],2001:db8::2", "iqn": "iqn.2000-01.x:y", "lun": "0"}, "[2001:db8::1]:3260/0,[2001:db8::2]:3260/0", "", ""},
		"one IPv6":   {map[string]string{"portals": "[2001:db8::1]", "iqn": "iqn.2000-01.x:y", "lun": "0"}, "[2001:db8::1]:3260/0", "", ""},
		"csi-driver-nvmf": {map[string]string{"targetTrAddr": "10.0.0.1", "targetTrPort": "4421", "targetTrType": "tcp", "nqn": "nqn.2000-01.x:y", "deviceUUID": strings.ToUpper(uuid)},
			"10.0.0.1:4421/0", "uuid." + uuid, ""},
		"transports": {map[string]string{"transports": "tcp://a:1?host-iface=eth0,tcp://b", "nqn": "nqn.2000-01.x:y", "nsid": "3"}, "a:1/0,b:4420/0", "", "eth0,"},
	} {
		a, err := ParseStatic(c.in)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := formatPortals(a.Portals); got != c.portals || a.WWID != c.wwid || a.Tunables["sourceAddresses"] != c.sources || a.Fencing != FencingReservation {
			t.Errorf("%s: portals %s, wwid %q, sources %q, fencing %s", name, got, a.WWID, a.Tunables["sourceAddresses"], a.Fencing)
		}
		if _, err := PublishContext(a); err != nil {
			t.Errorf("%s: as publish_context: %v", name, err)
		}
	}
}

func TestStaticVolumesThatCannotBeAreRefused(t *testing.T) {
	base := map[string]string{"targetPortal": "10.0.0.1", "iqn": "iqn.2000-01.x:y", "lun": "1"}
	for name, change := range map[string]map[string]string{
		"both": {"nqn": "nqn.x"}, "secret": {"secret": `{"node.session.auth.password":"marked"}`}, "no lun": {"lun": ""}, "fencing": {"fencing": "backend"},
		"unknown": {"minpaths": "2"}, "tunable": {"minPaths": "x"}, "portal": {"portals": `["a b"]`}, "JSON": {"portals": `["a",1]`}, "no portal": {"targetPortal": ""},
		"bool": {"sessionCHAPAuth": "maybe"},
	} {
		m := maps.Clone(base)
		maps.Copy(m, change)
		_, err := ParseStatic(m)
		if !errors.Is(err, ErrInvalid) || strings.Contains(err.Error(), "marked") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, m := range map[string]map[string]string{
		"rdma":       {"nqn": "nqn.x", "nsid": "1", "targetTrAddr": "a", "targetTrType": "rdma"},
		"no nsid":    {"nqn": "nqn.x", "targetTrAddr": "a"},
		"fc":         {"nqn": "nqn.x", "nsid": "1", "transports": "fc://a"},
		"comma path": {"nqn": "nqn.x", "nsid": "1", "transports": "tcp://a/b"},
		"nothing":    {},
	} {
		if _, err := ParseStatic(m); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAClassSaysWhatIsWrong(t *testing.T) {
	c, err := ParseClass(map[string]string{"backend": "b", "pool": "p", "transport": "nvme-tcp", "mkfsOptions": "-m 0 -E nodiscard", "minPaths": "2"})
	if err != nil || c.Backend != "b" || c.Pool != "p" || c.Transport != backend.NVMe || len(c.Mkfs) != 4 || c.Tunables["minPaths"] != "2" {
		t.Errorf("%+v, %v", c, err)
	}
	traits, err := ParseVolumeContext(VolumeContext(c))
	if err != nil || traits.Transport != backend.NVMe || len(traits.Mkfs) != 4 {
		t.Errorf("its volume_context: %+v, %v", traits, err)
	}
	for key, v := range map[string]string{"bakend": "b", "pool": "../x", "backend": "A", "transport": "fc", "minPaths": "0", "mkfsOptions": "-E /dev/sda"} {
		if _, err := ParseClass(map[string]string{key: v}); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), key) {
			t.Errorf("%s=%s: %v", key, v, err)
		}
	}
}

func TestIDsAreStrict(t *testing.T) {
	id := ID{Backend: "east", Object: backend.ID{Pool: "fast", Object: "v-abc"}}
	if got, err := ParseID(id.String()); err != nil || got != id {
		t.Errorf("%v, %v", got, err)
	}
	for _, s := range []string{"", "1.a.b", "2.a.b.c", "1.a.b.c.d", "1.A.b.c", "1.a..c", "1.a.b." + strings.Repeat("c", 128), "1.a.b.c/d"} {
		if _, err := ParseID(s); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %v", s, err)
		}
	}
}

// pairs makes a map of lines key=value.
func pairs(s string) map[string]string {
	m := map[string]string{}
	for line := range strings.Lines(s) {
		if k, v, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "="); ok {
			m[k] = v
		}
	}
	return m
}

func lines(m map[string]string) string {
	var b strings.Builder
	for k, v := range m {
		b.WriteString(k + "=" + v + "\n")
	}
	return b.String()
}

func FuzzParsePublishContext(f *testing.F) {
	for _, a := range []Attachment{iscsiAttachment(), nvmeAttachment()} {
		m, _ := PublishContext(a)
		f.Add(lines(m))
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := ParsePublishContext(pairs(s))
		if err != nil {
			return
		}
		m, err := PublishContext(a)
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		if again, err := ParsePublishContext(m); err != nil || !reflect.DeepEqual(again, a) {
			t.Errorf("%+v became %+v (%v)", a, again, err)
		}
	})
}

func FuzzParseStatic(f *testing.F) {
	f.Add("iqn=iqn.a:b\nlun=1\nportals=[\"a\",\"[::1]:2\"]\nminPaths=1")
	f.Add("nqn=nqn.a:b\nnsid=1\ntransports=tcp://a:1?host-iface=eth0,tcp://b\nhostId=00000000-0000-0000-0000-000000000000")
	f.Fuzz(func(t *testing.T, s string) {
		in := pairs(s)
		a, err := ParseStatic(in)
		if err != nil {
			return
		}
		if _, err := PublishContext(a); err != nil {
			t.Errorf("what was read cannot be written: %v", err)
		}
	})
}

func FuzzParseClass(f *testing.F) {
	f.Add("backend=b\npool=p\nmkfsOptions=-m 0\nminPaths=2")
	f.Fuzz(func(t *testing.T, s string) {
		c, err := ParseClass(pairs(s))
		if err != nil {
			return
		}
		if _, err := ParseVolumeContext(VolumeContext(c)); err != nil {
			t.Errorf("its volume_context cannot be read: %v", err)
		}
	})
}
