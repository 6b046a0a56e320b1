package subsystem

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	"github.com/csi-mpath/csi-mpath/pkg/nvmetcp/auth"
	"github.com/csi-mpath/csi-mpath/pkg/nvmetcp/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/target"
	"github.com/csi-mpath/csi-mpath/pkg/target/serve"
)

// wire is a host's connection over TCP: one command at a time.
type wire struct {
	t        *testing.T
	c        net.Conn
	out, inl pdu.Layout
	cid      uint16
}

func dialTCP(t *testing.T, addr string) *wire {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	w := &wire{t: t, c: c}
	req := pdu.ICReq{HeaderDigest: true, DataDigest: true, MaxR2T: 1}
	b := make([]byte, pdu.InitLen)
	req.Put(b)
	w.write(b)
	w.read(b)
	var resp pdu.ICResp
	if err := resp.Decode(b); err != nil {
		t.Fatal(err)
	}
	w.out, w.inl = resp.Layouts(&req)
	return w
}

func (w *wire) write(b []byte) {
	w.t.Helper()
	if _, err := w.c.Write(b); err != nil {
		w.t.Fatal(err)
	}
}

func (w *wire) read(b []byte) {
	w.t.Helper()
	if _, err := io.ReadFull(w.c, b); err != nil {
		w.t.Fatal(err)
	}
}

// do sends a command with data in its capsule, and returns the answer.
func (w *wire) do(cmd nvme.Command, data []byte) (v nvme.Completion, in []byte) {
	w.t.Helper()
	w.cid++
	cmd.CID = w.cid
	if data != nil {
		cmd.SGL = nvme.InCapsule(uint32(len(data)))
	}
	k := client{out: w.out}
	w.write(k.capsule(cmd, data))
	for {
		b := make([]byte, pdu.CommonLen)
		w.read(b)
		h, err := w.inl.Parse(b)
		if err != nil {
			w.t.Fatal(err)
		}
		b = append(b, make([]byte, h.Size-len(b))...)
		w.read(b[pdu.CommonLen:])
		if h.Type == pdu.TypeC2HData {
			in = append(in, b[h.DataOff:h.DataOff+h.Data]...)
			continue
		}
		if err := v.Decode(pdu.Entry(b)); err != nil {
			w.t.Fatal(err)
		}
		return v, in
	}
}

// connect opens a queue, and enables the controller if it is the admin queue.
func (w *wire) connect(subsystem string, id uint16, controller uint16) nvme.Completion {
	w.t.Helper()
	d := connectData(1)
	d.Subsystem, d.ControllerID = subsystem, controller
	b, err := d.Append(nil)
	if err != nil {
		w.t.Fatal(err)
	}
	v, _ := w.do(nvme.ConnectCommand{QueueID: id, SQSize: 31}.Command(), b)
	if id == 0 && v.Status.OK() {
		cc := nvme.ControllerConfig{Enable: true, PageShift: 12, SQShift: 6, CQShift: 4}
		if e, _ := w.do(nvme.SetProperty(nvme.RegCC, uint64(cc.Value())), nil); !e.Status.OK() {
			w.t.Fatal(e.Status)
		}
	}
	return v
}

const one, two = "nqn.2025-01.io.test:one", "nqn.2025-01.io.test:two"

// shared is a hub with two subsystems behind one door; two is behind another as well.
func shared(t *testing.T) (h *Hub, doors [2]*serve.Door, all map[string]*Server) {
	t.Helper()
	h, err := NewHub(auth.Credentials{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	for i := range doors {
		if doors[i], err = h.Listen("127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
	}
	all = map[string]*Server{}
	for _, name := range []string{one, two} {
		s, err := New(Config{Name: name, Namespaces: []Namespace{{ID: 1, Store: target.NewRAM(1 << 20)}}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		if err := h.Add(s); err != nil {
			t.Fatal(err)
		}
		if _, err := doors[0].Add(s, serve.PortalConfig{}); err != nil {
			t.Fatal(err)
		}
		all[name] = s
	}
	if _, err := doors[1].Add(all[two], serve.PortalConfig{}); err != nil {
		t.Fatal(err)
	}
	return h, doors, all
}

func (w *wire) records() []nvme.Record {
	w.t.Helper()
	v, b := w.do(nvme.LogRequest{Page: nvme.LogDiscovery, Len: 8 << 10}.Command(), nil)
	if !v.Status.OK() {
		w.t.Fatal(v.Status)
	}
	h, err := nvme.ParseDiscoveryHeader(b)
	if err != nil {
		w.t.Fatal(err)
	}
	return nvme.ParseRecords(nil, b[nvme.DiscoveryHeaderLen:nvme.DiscoveryHeaderLen+h.Records*nvme.RecordLen])
}

func TestSubsystemsShareAnAddress(t *testing.T) {
	_, doors, all := shared(t)
	for name, s := range all {
		admin := dialTCP(t, doors[0].Addr())
		v := admin.connect(name, 0, nvme.AnyController)
		if !v.Status.OK() {
			t.Fatal(v.Status)
		}
		w := dialTCP(t, doors[0].Addr())
		if v = w.connect(name, 1, nvme.ParseConnectResult(v.Result).ControllerID); !v.Status.OK() {
			t.Fatal(v.Status)
		}
		if v, _ = w.do(nvme.Write(1, 0, 8, 0), pattern(1, 4096)); !v.Status.OK() {
			t.Fatal(v.Status)
		}
		if got := s.Stats(); got.Writes != 1 || got.Connects != 1 {
			t.Errorf("%s: %+v", name, got)
		}
	}
	w := dialTCP(t, doors[0].Addr())
	if v := w.connect("nqn.2025-01.io.test:three", 0, nvme.AnyController); v.Status != nvme.ConnectInvalid.Final() || v.Result != badSubsystem.Value() {
		t.Errorf("a subsystem that is not there: %v", v.Status)
	}
	w = dialTCP(t, doors[1].Addr())
	if v := w.connect(one, 0, nvme.AnyController); v.Status != nvme.ConnectInvalid.Final() {
		t.Errorf("a subsystem at another door: %v", v.Status)
	}
}

func TestDiscoveryTellsOfAllThatLetTheHostIn(t *testing.T) {
	h, doors, all := shared(t)
	w := dialTCP(t, doors[1].Addr())
	if v := w.connect(nvme.DiscoveryNQN, 0, nvme.AnyController); !v.Status.OK() {
		t.Fatal(v.Status)
	}
	if got := w.records(); len(got) != 3 || got[0].Subsystem != one || got[2].Subsystem != two || net.JoinHostPort(got[2].Address, got[2].Service) != doors[1].Addr() {
		t.Fatalf("%+v", got)
	}
	if v, _ := w.do(nvme.SetFeature(0, nvme.FeatureAsyncConfig, nvme.AsyncDiscovery), nil); !v.Status.OK() {
		t.Fatal(v.Status)
	}
	if err := all[two].SetAccess([]string{"nqn.2025-01.io.test:other"}, auth.Credentials{}, nil); err != nil {
		t.Fatal(err)
	}
	h.Changed()
	if v, _ := w.do(nvme.AsyncEvent(), nil); nvme.ParseEvent(v.Result) != nvme.DiscoveryChanged {
		t.Errorf("%v", v)
	}
	if got := w.records(); len(got) != 1 || got[0].Subsystem != one {
		t.Errorf("%+v", got)
	}
}

func TestADoorThatIsKilledComesBack(t *testing.T) {
	_, doors, _ := shared(t)
	w := dialTCP(t, doors[0].Addr())
	if v := w.connect(one, 0, nvme.AnyController); !v.Status.OK() {
		t.Fatal(v.Status)
	}
	waiting := dialTCP(t, doors[0].Addr()) // has not said for whom it is
	doors[0].Kill()
	for _, c := range []net.Conn{w.c, waiting.c} {
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("the connection lives")
		}
	}
	if err := doors[0].Start(); err != nil {
		t.Fatal(err)
	}
	if v := dialTCP(t, doors[0].Addr()).connect(one, 0, nvme.AnyController); !v.Status.OK() {
		t.Error(v.Status)
	}
}

func TestAFirstCommandThatIsNoConnectIsAnswered(t *testing.T) {
	_, doors, _ := shared(t)
	w := dialTCP(t, doors[0].Addr())
	if v, _ := w.do(nvme.KeepAlive(), nil); v.Status != nvme.SequenceError.Final() {
		t.Error(v.Status)
	}
	c, err := net.Dial("tcp", doors[0].Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := c.Write(make([]byte, pdu.InitLen)); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(c)
	var term pdu.TermReq
	if err != nil || term.Decode(b) != nil {
		t.Errorf("%x, %v", b, err)
	}
}
