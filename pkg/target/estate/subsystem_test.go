package estate

import (
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	nvmeauth "github.com/csi-mpath/csi-mpath/pkg/nvmetcp/auth"
	"github.com/csi-mpath/csi-mpath/pkg/nvmetcp/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/target/subsystem"
)

// both is a target and a subsystem.
const both = `targets:
- name: iqn.2026-01.a:one
  portals: [{address: "127.0.0.1:0"}]
  luns: [{number: 0, store: {ram: 1Mi}}]
- nqn: nqn.2026-01.a:two
  portals: [{address: "127.0.0.2:0"}, {address: "127.0.0.3:0", group: 2}]
  groups: [{id: 2, state: non-optimized}]
  namespaces: [{nsid: 1, store: {file: DIR/disk, size: 1Mi}}, {nsid: 2, store: {ram: 64Ki}, anaGroup: 2}]
`

const nqn = "nqn.2026-01.a:two"

// ask runs f with the subsystem's machine.
func (r *rig) ask(f func(m *subsystem.Machine)) {
	r.t.Helper()
	s := r.Subsystem(nqn)
	if s == nil {
		r.t.Fatal("no subsystem")
	}
	s.Do(f)
}

func (r *rig) state(portal int, ana uint32) (st nvme.AccessState) {
	r.t.Helper()
	r.ask(func(m *subsystem.Machine) { st, _ = m.ANA(portal, ana) })
	return st
}

func (r *rig) size(nsid uint32) (size uint64, err error) {
	r.t.Helper()
	r.ask(func(m *subsystem.Machine) {
		var d subsystem.Device
		d, err = m.DeviceAt(1, nsid)
		size = d.Size
	})
	return size, err
}

// connects says how a Connect of host goes, over TCP.
func (r *rig) connects(door, host string) nvme.Status {
	r.t.Helper()
	c, err := net.Dial("tcp", r.Door(door).Addr())
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	var l pdu.Layout
	b := make([]byte, pdu.InitLen)
	(&pdu.ICReq{MaxR2T: 1}).Put(b)
	d := nvme.ConnectData{HostID: [16]byte{1}, ControllerID: nvme.AnyController, Subsystem: nqn, Host: host}
	data, err := d.Append(nil)
	if err != nil {
		r.t.Fatal(err)
	}
	cmd := nvme.ConnectCommand{SQSize: 31}.Command()
	head := make([]byte, pdu.CommandLen)
	cmd.Put(pdu.CommandSpace(head))
	l.PutCapsuleCmd(head, len(data))
	answer := make([]byte, pdu.HeaderLen)
	_, err1 := c.Write(b)
	_, err2 := io.ReadFull(c, b)
	_, err3 := c.Write(append(head, data...))
	_, err4 := io.ReadFull(c, answer)
	var v nvme.Completion
	if err := errors.Join(err1, err2, err3, err4, v.Decode(pdu.Entry(answer))); err != nil {
		r.t.Fatal(err)
	}
	if nvme.ParseConnectResult(v.Result).AuthRequired {
		return nvme.AuthRequired
	}
	return v.Status
}

func openBoth(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, text: both, dir: t.TempDir()}
	e, err := Open(r.parse(both), Options{Secrets: readSecrets, DHChap: func(host, _ string) (nvmeauth.Credentials, error) {
		if host != "/good" {
			return nvmeauth.Credentials{}, fmt.Errorf("%s is not there", host)
		}
		return nvmeauth.Credentials{Secret: nvmeauth.FormatSecret(0, make([]byte, 32))}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	r.Estate = e
	return r
}

func TestASubsystemIsServedBesideATarget(t *testing.T) {
	r := openBoth(t)
	all := r.Targets()
	if len(all) != 2 || all[0].NVMe || !all[1].NVMe || len(all[1].Portals) != 2 || len(all[1].LUNs) != 2 || all[1].LUNs[0].Size != 1<<20 {
		t.Fatalf("%+v", all)
	}
	for _, door := range []string{"127.0.0.2:0", "127.0.0.3:0"} {
		if st := r.connects(door, "nqn.2026-01.a:host"); !st.OK() {
			t.Error(st)
		}
	}
	if r.state(1, 1) != nvme.Optimized || r.state(2, 1) != nvme.NonOptimized || r.state(2, 2) != nvme.NonOptimized {
		t.Error("ANA states are not those of the configuration")
	}
	r.dial("127.0.0.1:0", "iqn.2026-01.a:one")
	if r.Server(nqn) != nil || r.Subsystem("iqn.2026-01.a:one") != nil {
		t.Error("a target is both")
	}
}

func TestASubsystemFollowsItsConfiguration(t *testing.T) {
	r := openBoth(t)
	r.must("size: 1Mi", "size: 2Mi")
	if n, err := r.size(1); n != 2<<20 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	r.must("{id: 2, state: non-optimized}", "{id: 2, state: non-optimized}, {id: 1, anaGroup: 2, state: inaccessible}")
	if r.state(1, 2) != nvme.Inaccessible || r.state(1, 1) != nvme.Optimized {
		t.Error("the state has not changed")
	}
	r.must(", {nsid: 2, store: {ram: 64Ki}, anaGroup: 2}", ", {nsid: 3, store: {ram: 64Ki}, anaGroup: 2}")
	if _, err := r.size(2); err == nil {
		t.Error("namespace 2 is still there")
	}
	if n, err := r.size(3); n != 64<<10 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	r.must("  groups:", "  hosts: [{nqn: nqn.2026-01.a:host}]\n  groups:")
	if st := r.connects("127.0.0.2:0", "nqn.2026-01.a:other"); st.Code() != nvme.InvalidHost {
		t.Error(st)
	}
	r.must("{nqn: nqn.2026-01.a:host}", "{nqn: nqn.2026-01.a:host, auth: {secretFile: /good}}")
	if st := r.connects("127.0.0.2:0", "nqn.2026-01.a:host"); st != nvme.AuthRequired {
		t.Error(st)
	}
	r.must("groups: [{id: 2, state: non-optimized}, ", "groups: [")
	r.must(", {address: \"127.0.0.3:0\", group: 2}]", "]")
	if r.Door("127.0.0.3:0") != nil {
		t.Error("the portal is still there")
	}
}

func TestWhatCannotChangeOfANamespaceIsRefused(t *testing.T) {
	r := openBoth(t)
	for old, with := range map[string]string{
		"anaGroup: 2}": "anaGroup: 1}",
		"{ram: 64Ki}":  "{ram: 64Ki}, uuid: 6f1d1c3e-8a5b-4c7d-9e2f-1a2b3c4d5e6f",
		"size: 1Mi}":   "size: 1Mi}, blockSize: 4096",
		"{ram: 64Ki},": "{ram: 32Ki},",
	} {
		if r.change(old, with) == nil {
			t.Errorf("%s became %s", old, with)
		}
	}
	if r.change("  groups:", "  auth: {secretFile: /bad}\n  groups:") == nil {
		t.Error("a secret that cannot be read")
	}
	if _, err := r.size(2); err != nil {
		t.Error("something has changed")
	}
}
