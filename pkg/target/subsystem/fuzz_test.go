package subsystem

import (
	"bytes"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	"github.com/csi-mpath/csi-mpath/pkg/nvmetcp/auth"
	"github.com/csi-mpath/csi-mpath/pkg/nvmetcp/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/target/serve"
)

// survives checks what must hold whatever the peer sent.
func survives(t *testing.T, r *rig, all ...*client) {
	t.Helper()
	for _, c := range all {
		c.drain()
		if c.total > 64<<20 {
			t.Fatalf("%d bytes of answers", c.total)
		}
		c.c.Gone()
	}
	if r.Buffers.Held() != 0 || r.Late() != 0 || r.Conns() != 0 || len(r.controllers) != 0 || r.Jobs() != 0 {
		t.Fatalf("%d bytes of buffers, %d late tasks, %d connections, %d controllers are left",
			r.Buffers.Held(), r.Late(), r.Conns(), len(r.controllers))
	}
	ok := r.host(2, 77) // the target still works
	ok.io.read1(0, 1)
}

// recorded is what a host says in do, on a queue that is connected already.
func recorded(admin bool, do func(h *host, c *client)) []byte {
	h := newRig(&testing.T{}, nil).host(1, 1)
	c := h.io
	if admin {
		c = h.admin
	}
	c.sent = nil
	do(h, c)
	return c.sent
}

func FuzzIOQueue(f *testing.F) {
	f.Add(recorded(false, func(_ *host, c *client) {
		// Short, because the fuzzer shrinks what it finds byte by byte.
		c.read1(0, 2)
		c.send(nvme.Write(1, 64, 1, nvme.FUA), pattern(2, 512))
		c.start(nvme.Dataset(1, 1, nvme.DatasetDeallocate), nvme.Range{Blocks: 2}.Append(nil))
	}), uint16(72), false)
	f.Add(recorded(false, func(h *host, c *client) {
		h.register(1)
		h.acquire(nvme.ActionPreemptAbort, nvme.ExclusiveAccess, 1, 1)
		c.start(nvme.ReserveReport(1, 512, true), nil)
		c.start(withSGL(nvme.Write(1, 0, 128, 0), 64<<10), nil)
	}), uint16(1), true)
	f.Fuzz(func(t *testing.T, wire []byte, cut uint16, hold bool) {
		r := newRig(t, nil)
		h := r.host(1, 1)
		var held *serve.Held
		if hold {
			held, _ = r.Hold(serve.Match{Kind: serve.Writes}, true, nil)
		}
		h.io.split = int(cut)
		h.io.write(wire)
		if hold {
			h.gone()
			held.Release()
		}
		survives(t, r, h.io, h.admin)
	})
}

func FuzzAdminQueue(f *testing.F) {
	f.Add(recorded(true, func(h *host, c *client) {
		h.identify(nvme.CNSController, 0)
		h.log(nvme.LogANA, 64, false)
		h.listen(nvme.AsyncANA)
		c.start(nvme.AsyncEvent(), nil)
		c.start(nvme.Abort(1, 1), nil)
	}), uint16(72))
	f.Add(recorded(true, func(h *host, c *client) {
		c.start(nvme.GetProperty(nvme.RegCAP), nil)
		c.start(nvme.SetFeature(0, nvme.FeatureKeepAlive, 1000), nil)
		h.set(nvme.ControllerConfig{PageShift: 12, Shutdown: nvme.ShutdownNormal})
	}), uint16(0))
	f.Fuzz(func(t *testing.T, wire []byte, cut uint16) {
		r := newRig(t, nil)
		h := r.host(1, 1)
		h.admin.split = int(cut)
		h.admin.write(wire)
		survives(t, r, h.io, h.admin)
	})
}

func FuzzConnection(f *testing.F) {
	c := newRig(&testing.T{}, nil).dial(1, plain)
	c.tries(nvme.ConnectCommand{}, connectData(1))
	c.start(nvme.SendAuth(16), pattern(1, 16))
	f.Add(c.sent, uint16(0), false)
	f.Add(c.sent, uint16(3), true)
	f.Fuzz(func(t *testing.T, wire []byte, cut uint16, secret bool) {
		r := newRig(t, func(c *Config) {
			if secret {
				c.HostAuth = map[string]auth.Credentials{hostNQN: {Secret: secretOf(1), Groups: auth.GroupSet(auth.Null)}}
			}
			c.Hosts = []string{hostNQN, connectData(1).Host}
		})
		x := r.raw(1)
		x.split = int(cut)
		x.write(wire)
		x.drain()
		x.c.Gone()
		if r.Conns() != 0 || r.Buffers.Held() != 0 || len(r.controllers) != 0 {
			t.Fatalf("%d connections, %d bytes, %d controllers", r.Conns(), r.Buffers.Held(), len(r.controllers))
		}
	})
}

func FuzzGreeting(f *testing.F) {
	c := newRig(&testing.T{}, nil).dial(1, plain)
	c.sent = nil
	c.tries(nvme.ConnectCommand{}, connectData(1))
	f.Add(c.sent, false)
	f.Add(c.sent[:80], true)
	f.Fuzz(func(t *testing.T, wire []byte, digests bool) {
		r := newRig(t, nil)
		said := &initialized{req: pdu.ICReq{HeaderDigest: digests, DataDigest: digests, MaxR2T: 1}}
		said.resp = r.accept(&said.req)
		first, name, err := readConnect(bytes.NewReader(wire), said)
		if err != nil {
			return
		}
		x := r.raw(1)
		x.c.Wire().(serve.Resumer).Resume(said)
		x.write(first)
		if name != "" && nvme.CheckNQN(name) != nil {
			t.Fatalf("a name %q", name)
		}
		x.c.Gone()
		if r.Conns() != 0 || r.Buffers.Held() != 0 || len(r.controllers) != 0 {
			t.Fatal("something is left")
		}
	})
}

// The same bytes mean the same, wherever they are cut.
func TestWhereAStreamIsCutMakesNoDifference(t *testing.T) {
	wire := recorded(false, func(_ *host, c *client) {
		c.send(nvme.Write(1, 0, 2, 0), pattern(2, 1024))
		c.write1(20, pattern(1, 512))
		c.read1(0, 30)
	})
	var want []byte
	h := newRig(t, nil).host(1, 1)
	for at := range len(wire) {
		h.io.c.Gone()
		h.io = h.queue(1, 1, plain, 0)
		h.io.write(wire[:at])
		h.io.write(wire[at:])
		h.io.drain()
		if at == 0 {
			want = h.io.in
		}
		if !bytes.Equal(h.io.in, want) {
			t.Fatalf("cut at %d: other answers", at)
		}
	}
}

func TestTheHotPathAllocatesNothing(t *testing.T) {
	r := newRig(t, nil)
	h := r.host(1, 1)
	data := pattern(1, 4096)
	write, read := nvme.Write(1, 0, 8, 0), nvme.Read(1, 0, 8, 0)
	write.SGL, read.SGL = nvme.InCapsule(4096), nvme.ByTransport(4096)
	both := append(h.io.capsule(write, data), h.io.capsule(read, nil)...)
	var batch serve.Batch
	got := 0
	if n := testing.AllocsPerRun(200, func() {
		h.io.c.Input(epoch, both)
		for h.io.c.Take(&batch) {
			got += batch.Len()
			batch.Vectors()
			batch.Reset()
		}
		r.Dirty()
	}); n > 0 {
		t.Errorf("%v allocations for a write and a read", n)
	}
	if want := 201 * (4096 + 3*pdu.HeaderLen); got != want {
		t.Errorf("%d bytes, want %d", got, want)
	}
}
