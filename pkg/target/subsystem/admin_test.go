package subsystem

import (
	"slices"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	"github.com/csi-mpath/csi-mpath/pkg/target"
	"github.com/csi-mpath/csi-mpath/pkg/target/serve"
)

func (h *host) identify(cns uint8, nsid uint32) []byte {
	h.r.t.Helper()
	return h.admin.get(nvme.Identify(cns, nsid), nvme.IdentifyLen)
}

func TestTheControllerSaysWhatItIs(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Quiesce, c.TransferShift = 2*time.Second, 5 })
	h := r.host(1, 1)
	c, err := nvme.ParseController(h.identify(nvme.CNSController, 0))
	if err != nil {
		t.Fatal(err)
	}
	if c.ControllerID != h.id || c.Subsystem != DefaultName || c.MaxTransfer(12) != 128<<10 || c.InCapsuleMax() != DefaultInCapsule ||
		!c.TrafficKeepsAlive() || !c.ReportsANA() || c.QuiesceTime() != 2*time.Second || c.KeepAliveStep != 1 ||
		c.ANATransitionTime() != 10*time.Second || c.Kind != nvme.ControllerIO {
		t.Errorf("%+v", c)
	}
}

func TestNamespacesSayWhatTheyAre(t *testing.T) {
	r := newRig(t, func(c *Config) {
		c.Namespaces = append(c.Namespaces, Namespace{ID: 7, Store: target.NewRAM(1 << 20), ReadOnly: true, ANAGroup: 3,
			Device: Device{BlockSize: 4096, Identity: nvme.Identity{EUI64: "0011223344556677"}}})
	})
	h := r.host(1, 1)
	ids, err := nvme.ParseActive(nil, h.identify(nvme.CNSActive, 0))
	if err != nil || !slices.Equal(ids, []uint32{1, 7}) {
		t.Errorf("%v, %v", ids, err)
	}
	if ids, _ = nvme.ParseActive(nil, h.identify(nvme.CNSActive, 1)); !slices.Equal(ids, []uint32{7}) {
		t.Errorf("behind 1: %v", ids)
	}
	n, err := nvme.ParseNamespace(h.identify(nvme.CNSNamespace, 7))
	if err != nil || n.BlockSize() != 4096 || n.Bytes() != 1<<20 || !n.WriteProtected || n.Group != 3 || !n.Shared {
		t.Errorf("%+v, %v", n, err)
	}
	d, err := nvme.ParseDescriptors(h.identify(nvme.CNSDescriptors, 7))
	if err != nil || d.EUI64 != "0011223344556677" || d.UUID != "" {
		t.Errorf("%+v, %v", d, err)
	}
	if d, _ = nvme.ParseDescriptors(h.identify(nvme.CNSDescriptors, 1)); d.Identity != Derive(DefaultName, 1) {
		t.Errorf("%+v", d)
	}
	if _, err := nvme.ParseNamespace(h.identify(nvme.CNSNamespace, 2)); !nvme.ErrNoNamespace(err) {
		t.Error(err)
	}
	h.admin.bad(h.admin.start(withSGL(nvme.Identify(nvme.CNSDescriptors, 2), nvme.IdentifyLen), nil), nvme.InvalidNamespace.Final())
	h.admin.bad(h.admin.start(withSGL(nvme.Identify(0x77, 0), nvme.IdentifyLen), nil), nvme.InvalidField.Final())
}

func TestFeaturesAreSetAndRead(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Queues = 4 })
	h := r.adminOnly(1, 1, nvme.ConnectCommand{KeepAlive: 4950}, connectData(1))
	get := func(id uint8) uint32 { return uint32(h.admin.good(h.admin.start(nvme.GetFeature(0, id), nil))) }
	if get(nvme.FeatureKeepAlive) != 5000 {
		t.Errorf("KATO %d", get(nvme.FeatureKeepAlive))
	}
	for asked, granted := range map[int]int{9: 4, 2: 2} {
		v := h.admin.good(h.admin.start(nvme.SetFeature(0, nvme.FeatureQueues, nvme.Queues(asked)), nil))
		if nvme.ParseQueues(uint32(v)) != granted || nvme.ParseQueues(get(nvme.FeatureQueues)) != granted {
			t.Errorf("asked for %d, granted %d", asked, nvme.ParseQueues(uint32(v)))
		}
	}
	h.admin.bad(h.admin.start(nvme.SetFeature(0, nvme.FeatureHostID, 1), nil), nvme.SequenceError.Final())
	h.admin.bad(h.admin.start(nvme.SetFeature(0, 0xC0, 1), nil), nvme.InvalidField.Final())
	if id := h.admin.get(withHostID(), 16); [16]byte(id) != connectData(1).HostID {
		t.Errorf("host identifier %x", id)
	}
}

func withHostID() nvme.Command {
	c := nvme.GetFeature(0, nvme.FeatureHostID)
	c.CDW11 = nvme.HostIDExtended
	return c
}

func TestHostsAreToldHowLongToWaitIfTheyUnderstand(t *testing.T) {
	r := newRig(t, nil)
	h := r.host(1, 1)
	full := func() uint16 {
		buf, _ := r.Get(serve.MaxTransfer)
		all := [][]byte{buf}
		for ok := true; ok; {
			if buf, ok = r.Get(serve.MaxTransfer); ok {
				all = append(all, buf)
			}
		}
		cid := h.io.start(withSGL(nvme.Write(1, 0, 1, 0), 512), nil)
		for _, b := range all {
			r.Put(b)
		}
		return cid
	}
	h.io.bad(full(), nvme.CommandInterrupted)
	h.admin.good(h.admin.start(nvme.SetFeature(0, nvme.FeatureHostBehavior, 0), nvme.HostBehavior()))
	h.io.bad(full(), nvme.CommandInterrupted.After(1))
}

func (h *host) listen(mask uint32) {
	h.r.t.Helper()
	h.admin.good(h.admin.start(nvme.SetFeature(0, nvme.FeatureAsyncConfig, mask), nil))
}

func (h *host) log(page uint8, n uint32, retain bool) []byte {
	h.r.t.Helper()
	return h.admin.get(nvme.LogRequest{Page: page, Len: n, Retain: retain, NSID: nvme.AllNamespaces}.Command(), int(n))
}

func TestAnEventIsToldOnceUntilItsLogIsRead(t *testing.T) {
	r := newRig(t, nil)
	h := r.host(1, 1)
	h.listen(nvme.AsyncNamespace | nvme.AsyncANA)
	first, second, third := h.admin.start(nvme.AsyncEvent(), nil), h.admin.start(nvme.AsyncEvent(), nil), h.admin.start(nvme.AsyncEvent(), nil)
	h.admin.start(nvme.AsyncEvent(), nil)
	h.admin.bad(h.admin.start(nvme.AsyncEvent(), nil), nvme.AsyncEventLimitExceeded.Final())
	if err := r.Resize(1, 512<<10); err != nil {
		t.Fatal(err)
	}
	if e := nvme.ParseEvent(h.admin.good(first)); e != nvme.NamespaceChanged {
		t.Fatalf("%+v", e)
	}
	r.NamespaceChanged(0, 9)
	h.admin.open(second) // masked
	r.SetANA(1, 0, nvme.NonOptimized)
	if e := nvme.ParseEvent(h.admin.good(second)); e != nvme.ANAChanged {
		t.Fatalf("%+v", e)
	}
	if ids, all := nvme.ParseChanged(nil, h.log(nvme.LogChangedNamespaces, 4096, true)); all || !slices.Equal(ids, []uint32{1, 9}) {
		t.Errorf("%v", ids)
	}
	r.NamespaceChanged(0, 1)
	h.admin.open(third) // read with RAE: still masked
	if ids, _ := nvme.ParseChanged(nil, h.log(nvme.LogChangedNamespaces, 4096, false)); !slices.Equal(ids, []uint32{1, 9}) {
		t.Errorf("%v", ids)
	}
	h.admin.open(third) // what it would tell of was just read
	if ids, _ := nvme.ParseChanged(nil, h.log(nvme.LogChangedNamespaces, 4096, false)); len(ids) != 0 {
		t.Errorf("still %v", ids)
	}
	r.NamespaceChanged(0, 1)
	if e := nvme.ParseEvent(h.admin.good(third)); e != nvme.NamespaceChanged {
		t.Errorf("%+v", e)
	}
}

func TestAnEventWaitsForARequestAndForItsMask(t *testing.T) {
	r := newRig(t, nil)
	h := r.host(1, 1)
	aer := h.admin.start(nvme.AsyncEvent(), nil)
	r.NamespaceChanged(0, 1)
	h.admin.open(aer)
	h.listen(nvme.AsyncNamespace)
	h.admin.good(aer)
	h.log(nvme.LogChangedNamespaces, 4096, false)
	r.NamespaceChanged(0, 1)
	h.admin.good(h.admin.start(nvme.AsyncEvent(), nil))
}

func TestNamespacesComeAndGo(t *testing.T) {
	r := newRig(t, nil)
	h := r.host(1, 1)
	h.listen(nvme.AsyncNamespace)
	aer := h.admin.start(nvme.AsyncEvent(), nil)
	if err := r.AddNamespace(Namespace{ID: 2, Store: target.NewRAM(4096)}); err != nil {
		t.Fatal(err)
	}
	h.admin.good(aer)
	h.io.good(h.io.start(withSGL(nvme.Read(2, 0, 8, 0), 4096), nil))
	held, _ := r.Hold(serve.Match{}, false, nil)
	read := h.io.start(withSGL(nvme.Read(2, 0, 8, 0), 4096), nil)
	asked := h.io.start(withSGL(nvme.Write(2, 0, 1, 0), 512), nil)
	h.io.read()
	if err := r.RemoveNamespace(2); err != nil {
		t.Fatal(err)
	}
	h.io.bad(read, nvme.InvalidNamespace.Final())
	held.Release()
	h.io.h2c(h.io.r2ts[0], pattern(1, 512))
	h.io.bad(asked, nvme.InvalidNamespace.Final())
	h.io.bad(h.io.start(withSGL(nvme.Read(2, 0, 8, 0), 4096), nil), nvme.InvalidNamespace.Final())
}

func TestANAStatesAreThoseOfThePortalsGroup(t *testing.T) {
	r := newRig(t, func(c *Config) {
		c.Namespaces = append(c.Namespaces, Namespace{ID: 2, Store: target.NewRAM(1 << 20), ANAGroup: 2})
	})
	a, b := r.host(1, 1), r.host(2, 2)
	for state, want := range map[nvme.AccessState]nvme.Status{nvme.Inaccessible: nvme.ANAInaccessible,
		nvme.PersistentLoss: nvme.ANAPersistentLoss, nvme.Changing: nvme.ANATransition, nvme.NonOptimized: nvme.Success} {
		r.SetANA(1, 1, state)
		a.io.bad(a.io.write1(0, pattern(1, 512)), want)
		a.io.good(a.io.start(withSGL(nvme.Read(2, 0, 1, 0), 512), nil))
		b.io.good(b.io.write1(0, pattern(1, 512)))
		l, err := nvme.ParseANA(a.log(nvme.LogANA, 512, false), MaxANAGroup)
		if err != nil || l.Group(1).State != state || l.Group(2).State != nvme.Optimized || !slices.Equal(l.Group(2).NSIDs, []uint32{2}) {
			t.Errorf("%+v, %v", l, err)
		}
		if l, _ = nvme.ParseANA(b.log(nvme.LogANA, 512, false), MaxANAGroup); l.Group(1).State != nvme.Optimized {
			t.Errorf("the other portal: %+v", l)
		}
	}
	if taken, refused := r.Load(1); taken != 5 || refused != 3 {
		t.Errorf("%d taken, %d refused", taken, refused)
	}
	if taken, refused := r.Load(2); taken != 4 || refused != 0 {
		t.Errorf("%d taken, %d refused at the other", taken, refused)
	}
}

func TestAPortalMayShowAnotherNamespace(t *testing.T) {
	r := newRig(t, nil)
	if err := r.SetDevice(2, 1, Device{Identity: Derive("another", 1), Size: 512 << 10}); err != nil {
		t.Fatal(err)
	}
	a, b := r.host(1, 1), r.host(2, 2)
	one, _ := nvme.ParseDescriptors(a.identify(nvme.CNSDescriptors, 1))
	two, _ := nvme.ParseDescriptors(b.identify(nvme.CNSDescriptors, 1))
	if one.UUID == two.UUID || two.Identity != Derive("another", 1) {
		t.Errorf("%+v and %+v", one, two)
	}
	b.io.bad(b.io.write1(1024, pattern(1, 512)), nvme.LBAOutOfRange.Final())
	a.io.good(a.io.write1(1024, pattern(1, 512)))
}

func TestErrorsAreLogged(t *testing.T) {
	r := newRig(t, nil)
	h := r.host(1, 1)
	cid := h.io.write1(1<<20, pattern(1, 512))
	h.io.bad(cid, nvme.LBAOutOfRange.Final())
	e := nvme.ParseErrors(nil, h.log(nvme.LogError, maxErrors*nvme.ErrorEntryLen, false))
	if len(e) != 1 || e[0].CID != cid || e[0].SQID != 1 || e[0].LBA != 1<<20 || e[0].Status.Code() != nvme.LBAOutOfRange {
		t.Errorf("%+v", e)
	}
}

func TestAnAbortEndsWhatWaits(t *testing.T) {
	r := newRig(t, nil)
	h := r.host(1, 1)
	held, _ := r.Hold(serve.Match{}, false, nil)
	cid := h.io.write1(0, pattern(1, 512))
	if !nvme.Aborted(h.admin.good(h.admin.start(nvme.Abort(1, cid), nil))) {
		t.Error("not aborted")
	}
	h.io.bad(cid, nvme.AbortRequested)
	held.Release()
	if nvme.Aborted(h.admin.good(h.admin.start(nvme.Abort(1, 999), nil))) || r.first(0) != 0 {
		t.Error("aborted nothing, or the write was executed")
	}
}

func TestTheDirectoryOfOneSubsystem(t *testing.T) {
	r := newRig(t, nil)
	d := connectData(1)
	d.Subsystem = nvme.DiscoveryNQN
	h := r.adminOnly(1, 1, nvme.ConnectCommand{}, d)
	b := h.admin.get(nvme.LogRequest{Page: nvme.LogDiscovery, Len: nvme.DiscoveryHeaderLen + 2*nvme.RecordLen}.Command(), nvme.DiscoveryHeaderLen+2*nvme.RecordLen)
	head, err := nvme.ParseDiscoveryHeader(b)
	if err != nil || head.Records != 2 {
		t.Fatalf("%+v, %v", head, err)
	}
	records := nvme.ParseRecords(nil, b[nvme.DiscoveryHeaderLen:])
	if records[1].Address != "10.0.0.2" || records[1].Service != "4420" || records[1].Subsystem != DefaultName || records[1].PortID != 2 {
		t.Errorf("%+v", records[1])
	}
	if records[0].Requirements != nvme.NoFlowControl || records[0].Security != nvme.SecurityNone {
		t.Errorf("nvme-cli would try TLS for %+v", records[0])
	}
	h.admin.good(h.admin.start(nvme.SetFeature(0, nvme.FeatureAsyncConfig, nvme.AsyncDiscovery), nil))
	aer := h.admin.start(nvme.AsyncEvent(), nil)
	h.admin.open(aer)
	if err := r.RemovePortal(2); err != nil {
		t.Fatal(err)
	}
	if e := nvme.ParseEvent(h.admin.good(aer)); e != nvme.DiscoveryChanged {
		t.Errorf("%+v", e)
	}
	b = h.admin.get(nvme.LogRequest{Page: nvme.LogDiscovery, Len: nvme.DiscoveryHeaderLen}.Command(), nvme.DiscoveryHeaderLen)
	if after, _ := nvme.ParseDiscoveryHeader(b); after.Records != 1 || after.Generation == head.Generation {
		t.Errorf("%+v", after)
	}
}
