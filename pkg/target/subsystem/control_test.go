package subsystem

import (
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	"github.com/csi-mpath/csi-mpath/pkg/nvmetcp/auth"
	"github.com/csi-mpath/csi-mpath/pkg/target/serve"
)

func TestEachControllerHasANumberOfItsOwn(t *testing.T) {
	r := newRig(t, nil)
	seen := map[uint16]bool{}
	for i := range byte(5) {
		h := r.adminOnly(1+int(i)%2, i+1, nvme.ConnectCommand{}, connectData(i+1))
		if h.id == 0 || h.id > maxController || seen[h.id] {
			t.Fatalf("controller %d", h.id)
		}
		seen[h.id] = true
	}
	if r.Controllers(0) != 5 || r.Controllers(1) != 3 {
		t.Errorf("%d and %d controllers", r.Controllers(0), r.Controllers(1))
	}
}

// Long: a table of refusals.
func TestWhatConnectRefuses(t *testing.T) {
	other := "nqn.2025-01.io.test:other"
	for name, c := range map[string]struct {
		cfg    func(*Config)
		cc     nvme.ConnectCommand
		data   func(*nvme.ConnectData)
		status nvme.Status
		result nvme.ConnectRefusal
	}{
		"another subsystem":     {nil, nvme.ConnectCommand{}, func(d *nvme.ConnectData) { d.Subsystem = other }, nvme.ConnectInvalid, badSubsystem},
		"no host identifier":    {nil, nvme.ConnectCommand{}, func(d *nvme.ConnectData) { d.HostID = [16]byte{} }, nvme.ConnectInvalid, badHostID},
		"a static controller":   {nil, nvme.ConnectCommand{}, func(d *nvme.ConnectData) { d.ControllerID = 3 }, nvme.ConnectInvalid, badController},
		"a host not let in":     {func(c *Config) { c.Hosts = []string{other} }, nvme.ConnectCommand{}, nil, nvme.InvalidHost, nvme.ConnectRefusal{}},
		"a keep alive too long": {nil, nvme.ConnectCommand{KeepAlive: 1 << 31}, nil, nvme.KeepAliveInvalid, nvme.ConnectRefusal{}},
		"an I/O queue first":    {nil, nvme.ConnectCommand{QueueID: 1}, nil, nvme.ConnectInvalid, badController},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, c.cfg)
			d := connectData(1)
			if c.data != nil {
				c.data(&d)
			}
			v := r.dial(1, plain).tries(c.cc, d)
			if v.Status != c.status.Final() || v.Result != c.result.Value() {
				t.Errorf("%v, %v", v.Status, nvme.ParseConnectRefusal(v.Result))
			}
			if len(r.controllers) != 0 {
				t.Errorf("%d controllers are left", len(r.controllers))
			}
		})
	}
}

func TestAnIOQueueBelongsToItsController(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Queues, c.Depth = 2, 16 })
	h := r.adminOnly(1, 1, nvme.ConnectCommand{}, connectData(1))
	d := h.data
	d.ControllerID = h.id
	good := nvme.ConnectCommand{QueueID: 1, SQSize: 15}
	for name, c := range map[string]struct {
		portal int
		cc     nvme.ConnectCommand
		data   func(*nvme.ConnectData)
		want   nvme.ConnectRefusal
	}{
		"another portal":         {2, good, nil, badController},
		"another controller":     {1, good, func(d *nvme.ConnectData) { d.ControllerID = 77 }, badController},
		"another host":           {1, good, func(d *nvme.ConnectData) { d.Host += "x" }, badHost},
		"another identifier":     {1, good, func(d *nvme.ConnectData) { d.HostID[0]++ }, badHostID},
		"beyond what is granted": {1, nvme.ConnectCommand{QueueID: 3, SQSize: 15}, nil, badQueueID},
		"too many entries":       {1, nvme.ConnectCommand{QueueID: 1, SQSize: 16}, nil, badQueueSize},
	} {
		x := d
		if c.data != nil {
			c.data(&x)
		}
		if v := r.dial(c.portal, plain).tries(c.cc, x); v.Status != nvme.ConnectInvalid.Final() || v.Result != c.want.Value() {
			t.Errorf("%s: %v, %v", name, v.Status, nvme.ParseConnectRefusal(v.Result))
		}
	}
	first := r.dial(1, plain)
	first.tries(good, d)
	if v := r.dial(1, plain).tries(good, d); v.Result != badQueueID.Value() {
		t.Errorf("a queue twice: %v", v.Status)
	}
	first.c.Gone()
	if v := r.dial(1, plain).tries(good, d); !v.Status.OK() {
		t.Errorf("a queue whose connection is gone: %v", v.Status)
	}
}

func TestNothingIsDoneBeforeItsTime(t *testing.T) {
	r := newRig(t, nil)
	c := r.dial(1, plain)
	c.bad(c.start(nvme.KeepAlive(), nil), nvme.SequenceError.Final())
	c.tries(nvme.ConnectCommand{}, connectData(1))
	c.bad(c.start(nvme.Identify(nvme.CNSController, 0), nil), nvme.SequenceError.Final())
	d := connectData(1)
	d.ControllerID = 1
	io := r.dial(1, plain)
	if v := io.tries(nvme.ConnectCommand{QueueID: 1}, d); v.Status != nvme.SequenceError.Final() {
		t.Error(v.Status)
	}
}

func TestPropertiesAreRead(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Depth = 16 })
	h := r.host(1, 1)
	caps := nvme.ParseCaps(h.admin.good(h.admin.start(nvme.GetProperty(nvme.RegCAP), nil)))
	if caps.MaxEntries != 16 || caps.CommandSets != 1 || caps.MinPageShift != 12 {
		t.Errorf("%+v", caps)
	}
	if v := h.admin.good(h.admin.start(nvme.GetProperty(nvme.RegVS), nil)); uint32(v) != version {
		t.Errorf("version %x", v)
	}
	h.admin.bad(h.admin.start(nvme.GetProperty(0x40), nil), nvme.InvalidField.Final())
	h.admin.bad(h.admin.start(nvme.SetProperty(nvme.RegVS, 0), nil), nvme.InvalidField.Final())
	h.io.bad(h.io.start(nvme.GetProperty(nvme.RegVS), nil), nvme.InvalidField.Final())
}

// I3: hosts take CSTS.SHST for proof that nothing of the controller runs.
func TestShutdownIsOverWhenItsJobsAre(t *testing.T) {
	b := newBench(t, nil)
	h := b.host(1, 1)
	held, _ := b.Hold(serve.Match{Kind: serve.Writes, First: 8, Last: 9}, true, nil)
	h.io.write1(0, pattern(1, 512))
	h.io.write1(8, pattern(2, 512))
	collecting := h.io.start(withSGL(nvme.Write(1, 16, 1, 0), 512), nil)
	b.has(1)
	h.set(nvme.ControllerConfig{Enable: true, PageShift: 12, SQShift: 6, CQShift: 4, Shutdown: nvme.ShutdownNormal})
	if s := h.state(); s.Shutdown != nvme.ShutdownRunning {
		t.Fatalf("%+v while a job runs", s)
	}
	h.io.read()
	h.io.h2c(h.io.r2ts[0], pattern(3, 512)) // nobody waits for it any more
	h.io.bad(h.io.write1(24, pattern(4, 512)), nvme.SQDeleted)
	b.work(0)
	if s := h.state(); s.Shutdown != nvme.ShutdownComplete {
		t.Fatalf("%+v", s)
	}
	held.Release()
	for lba, want := range map[int]byte{0: 1, 8: 0, 16: 0, 24: 0} {
		if got := b.first(lba); got != want {
			t.Errorf("block %d begins with %d, want %d", lba, got, want)
		}
	}
	h.io.open(collecting)
	if b.Stats().Shutdowns != 1 {
		t.Errorf("%+v", b.Stats())
	}
}

func TestAResetEndsIOQueues(t *testing.T) {
	b := newBench(t, nil)
	h := b.host(1, 1)
	h.io.write1(0, pattern(1, 512))
	h.set(nvme.ControllerConfig{PageShift: 12})
	if !h.state().Ready {
		t.Fatal("RDY is cleared while a job runs")
	}
	b.work(0)
	if h.state().Ready || !h.io.c.Closing() {
		t.Fatal("the controller is ready, or its queue open")
	}
	h.enable()
	h.queue(1, 1, plain, 0)
}

func TestAControllerEndsWithItsKeepAliveTimer(t *testing.T) {
	for name, traffic := range map[string]bool{"traffic": true, "keep alive alone": false} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(c *Config) { c.NoTBKAS = !traffic })
			h := r.adminOnly(1, 1, nvme.ConnectCommand{KeepAlive: 4950}, connectData(1))
			h.io = h.queue(1, 1, plain, 0)
			held, _ := r.Hold(serve.Match{Kind: serve.Writes}, true, nil)
			h.io.write1(0, pattern(1, 512))
			r.pass(4 * time.Second)
			h.io.read1(8, 1)
			r.pass(2 * time.Second)
			if traffic != (r.Controllers(0) == 1) {
				t.Fatalf("%d controllers", r.Controllers(0))
			}
			if traffic {
				h.admin.good(h.admin.start(nvme.KeepAlive(), nil))
				r.pass(5 * time.Second)
			}
			if !h.admin.c.Aborting() || !h.io.c.Aborting() || r.Controllers(0) != 0 || r.Stats().Expired != 1 {
				t.Fatalf("the controller lives: %+v", r.Stats())
			}
			held.Release()
			if r.first(0) != 0 {
				t.Error("a write of a controller that had ended was executed")
			}
		})
	}
}

// I3: as a target that has not noticed that a connection is gone.
func TestALateWriteIsExecutedUntilKeepAliveEndsIt(t *testing.T) {
	for name, wait := range map[string]time.Duration{"in time": 4 * time.Second, "too late": 6 * time.Second} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			h := r.adminOnly(1, 1, nvme.ConnectCommand{KeepAlive: 5000}, connectData(1))
			h.io = h.queue(1, 1, plain, 0)
			held, _ := r.Hold(serve.Match{Kind: serve.Writes}, true, nil)
			h.io.write1(0, pattern(1, 512))
			h.admin.c.Gone()
			h.io.c.Gone()
			if r.Late() != 1 || r.Controllers(0) != 0 {
				t.Fatalf("%d late, %d controllers", r.Late(), r.Controllers(0))
			}
			r.pass(wait)
			held.Release()
			want := map[string]byte{"in time": 1, "too late": 0}[name]
			if r.first(0) != want || r.Late() != 0 || len(r.controllers) != 0 || r.Buffers.Held() != 0 {
				t.Errorf("block begins with %d; %d late, %d controllers, %d bytes", r.first(0), r.Late(), len(r.controllers), r.Buffers.Held())
			}
		})
	}
}

func TestTasksEndWithTheirConnection(t *testing.T) {
	r := newRig(t, nil)
	h := r.host(1, 1)
	held, _ := r.Hold(serve.Match{}, false, nil)
	h.io.write1(0, pattern(1, 512))
	h.io.c.Gone()
	held.Release()
	if r.first(0) != 0 || r.Stats().Aborted != 1 {
		t.Errorf("executed: %+v", r.Stats())
	}
	if !h.state().Ready {
		t.Error("an I/O queue took the controller with it")
	}
}

func TestAConnectionMustConnectInTime(t *testing.T) {
	r := newRig(t, nil)
	c := r.dial(1, plain)
	if at, ok := r.Next(); !ok || at != epoch.Add(serve.LoginTimeout) {
		t.Fatalf("%v, %t", at, ok)
	}
	r.pass(serve.LoginTimeout)
	if !c.c.Closing() {
		t.Error("it waits for ever")
	}
}

func TestWhoIsPutOutHasNothingLeft(t *testing.T) {
	r := newRig(t, nil)
	h := r.host(1, 1)
	held, _ := r.Hold(serve.Match{}, true, nil)
	h.io.write1(0, pattern(1, 512))
	if err := r.SetAccess([]string{"nqn.2025-01.io.test:other"}, auth.Credentials{}, nil); err != nil {
		t.Fatal(err)
	}
	held.Release()
	if !h.io.c.Aborting() || r.first(0) != 0 {
		t.Error("the host is still in")
	}
}

func TestARefusingPortalSaysWhy(t *testing.T) {
	r := newRig(t, nil)
	if err := r.RefuseConnects(1, nvme.ControllerBusy); err != nil {
		t.Fatal(err)
	}
	if v := r.dial(1, plain).tries(nvme.ConnectCommand{}, connectData(1)); v.Status != nvme.ControllerBusy {
		t.Error(v.Status)
	}
	if err := r.RefuseConnects(1, nvme.Success); err != nil {
		t.Fatal(err)
	}
	r.host(1, 1)
}

// withSGL has the transport move n bytes.
func withSGL(c nvme.Command, n uint32) nvme.Command {
	c.SGL = nvme.ByTransport(n)
	return c
}
