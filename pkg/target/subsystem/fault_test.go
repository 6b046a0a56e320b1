package subsystem

import (
	"bytes"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	"github.com/csi-mpath/csi-mpath/pkg/nvmetcp/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/target/serve"
)

func TestAHeldCommandExecutesWhenItIsReleased(t *testing.T) {
	r := newRig(t, nil)
	h := r.host(1, 1)
	arrived := 0
	held, _ := r.Hold(serve.Match{Kind: serve.Writes, First: 8, Last: 15, Count: 1}, false, func() { arrived++ })
	h.io.good(h.io.write1(0, pattern(1, 512)))
	first := h.io.write1(8, pattern(2, 512))
	h.io.good(h.io.write1(9, pattern(3, 512)))
	h.io.open(first)
	if arrived != 1 || held.Len() != 1 || r.first(8) != 0 {
		t.Fatalf("%d arrived, %d held", arrived, held.Len())
	}
	held.Release()
	h.io.good(first)
	if r.first(8) != 2 {
		t.Error("not executed")
	}
}

func TestADelayedCommandExecutesLater(t *testing.T) {
	r := newRig(t, nil)
	h := r.host(1, 1)
	_ = r.Delay(serve.Match{Kind: serve.Reads, Count: 1}, time.Second)
	cid := h.io.start(withSGL(nvme.Read(1, 0, 1, 0), 512), nil)
	h.io.open(cid)
	if at, ok := r.Next(); !ok || at != epoch.Add(time.Second) {
		t.Fatalf("%v, %t", at, ok)
	}
	r.pass(time.Second)
	h.io.good(cid)
}

func TestAnAnswerMayBeDropped(t *testing.T) {
	r := newRig(t, nil)
	h := r.host(1, 1)
	_ = r.DropAnswer(serve.Match{Kind: serve.Writes, Count: 1})
	cid := h.io.write1(0, pattern(1, 512))
	h.io.open(cid)
	if r.first(0) != 1 {
		t.Error("not executed")
	}
}

func TestAnAnswerMayBeMadeUp(t *testing.T) {
	r := newRig(t, nil)
	h := r.host(1, 1)
	_ = r.Answer(serve.Match{Portal: 1, Count: 2}, nvme.InternalPathError)
	h.admin.good(h.admin.start(nvme.KeepAlive(), nil)) // Any means no admin command
	h.io.bad(h.io.write1(0, pattern(1, 512)), nvme.InternalPathError)
	other := r.host(2, 2)
	other.io.good(other.io.write1(0, pattern(2, 512)))
	h.io.bad(h.io.start(nvme.Flush(1), nil), nvme.InternalPathError)
	h.io.good(h.io.write1(0, pattern(1, 512)))
	_ = r.Answer(serve.Match{Kind: serve.Admin, Count: 1}, nvme.InternalError)
	h.admin.bad(h.admin.start(nvme.KeepAlive(), nil), nvme.InternalError)
}

func TestAnAnswerMayComeTwiceOrFlipped(t *testing.T) {
	r := newRig(t, nil)
	h := r.adminOnly(1, 1, nvme.ConnectCommand{}, connectData(1))
	c := h.queue(1, 1, pdu.ICReq{DataDigest: true, HeaderDigest: true, MaxR2T: 1}, nvme.ConnectNoFlowControl)
	_, _ = r.SpoilAnswers(serve.Match{Kind: serve.Reads, Count: 1}, serve.Twist{Data: serve.Flip{At: 3, Mask: 0x10}})
	if got := c.read1(0, 1); got[3] != 0x10 {
		t.Errorf("byte 3 is %#x", got[3])
	}
	kept, _ := r.SpoilAnswers(serve.Match{Kind: serve.Reads, Count: 1}, serve.Twist{Keep: true})
	cid := c.start(withSGL(nvme.Read(1, 0, 1, 0), 512), nil)
	c.open(cid)
	if kept.Len() != 1 {
		t.Fatalf("%d kept", kept.Len())
	}
	kept.Release()
	c.good(cid)
	_, _ = r.SpoilAnswers(serve.Match{Kind: serve.Reads, Count: 1}, serve.Twist{Wire: serve.Flip{At: 0, Mask: 1}})
	c.start(withSGL(nvme.Read(1, 0, 1, 0), 512), nil)
	c.drain()
	hd, _, err := c.inl.Open(c.in)
	if err != nil {
		t.Fatal(err)
	}
	d := c.in[hd.DataOff : hd.DataOff+hd.Data]
	if c.inl.CheckTrailer(c.in[hd.DataOff+hd.Data:hd.Size], hd.Data, pdu.CRC(0, d)) == nil {
		t.Error("the digest fits the flipped data")
	}
	c.in = nil
	_, _ = r.SpoilAnswers(serve.Match{Kind: serve.Writes, Count: 1}, serve.Twist{Twice: true})
	c.write1(0, pattern(1, 512))
	if c.drain(); len(c.in) != 2*(pdu.HeaderLen+pdu.DigestLen) {
		t.Errorf("%d bytes of answers", len(c.in))
	}
}

func TestAnAnswerMayComeElsewhere(t *testing.T) {
	r := newRig(t, nil)
	a := r.host(1, 1)
	b := r.host(2, 1)
	_, _ = r.SpoilAnswers(serve.Match{Portal: 1, Count: 1}, serve.Twist{Elsewhere: true})
	cid := a.io.write1(0, pattern(1, 512))
	a.io.open(cid)
	b.io.good(cid)
}

func TestAStoreThatIsFullSaysSo(t *testing.T) {
	r := newRig(t, nil)
	h := r.host(1, 1)
	r.ram.SetSpace(4096)
	h.io.good(h.io.write1(0, pattern(1, 4096)))
	h.io.bad(h.io.write1(8, pattern(1, 4096)), nvme.CapacityExceeded.Final())
	h.io.good(h.io.start(nvme.Dataset(1, 1, nvme.DatasetDeallocate), nvme.Range{Blocks: 8}.Append(nil)))
	h.io.good(h.io.write1(8, pattern(1, 4096)))
}

func TestZeroesAndTrims(t *testing.T) {
	r := newRig(t, func(c *Config) {
		c.Namespaces = append(c.Namespaces, Namespace{ID: 2, Store: c.Namespaces[0].Store, Thick: true, ReadOnly: true})
	})
	h := r.host(1, 1)
	for name, cmd := range map[string]func() uint16{
		"zeroes": func() uint16 { return h.io.start(nvme.WriteZeroes(1, 2, 4, nvme.Deallocate), nil) },
		"trim": func() uint16 {
			return h.io.start(nvme.Dataset(1, 2, nvme.DatasetDeallocate), nvme.Range{LBA: 4, Blocks: 2}.Append(nvme.Range{LBA: 2, Blocks: 2}.Append(nil)))
		},
	} {
		h.io.good(h.io.write1(0, pattern(1, 4096)))
		h.io.good(cmd())
		want := pattern(1, 4096)
		clear(want[1024:3072])
		if !bytes.Equal(h.io.read1(0, 8), want) {
			t.Error(name)
		}
	}
	h.io.bad(h.io.start(nvme.WriteZeroes(2, 0, 1, 0), nil), nvme.WriteProtected.Final())
	h.io.bad(h.io.start(nvme.WriteZeroes(1, 2047, 2, 0), nil), nvme.LBAOutOfRange.Final())
	h.io.good(h.io.start(nvme.Dataset(2, 1, nvme.DatasetDeallocate), nvme.Range{Blocks: 8}.Append(nil)))
	if r.first(0) == 0 {
		t.Error("a thick namespace was trimmed")
	}
}

func TestCompareFindsADifference(t *testing.T) {
	r := newRig(t, nil)
	h := r.host(1, 1)
	h.io.good(h.io.write1(0, pattern(1, 4096)))
	h.io.good(h.io.start(nvme.Compare(1, 0, 8), pattern(1, 4096)))
	h.io.bad(h.io.start(nvme.Compare(1, 0, 8), pattern(2, 4096)), nvme.CompareFailure.Final())
	verify := nvme.Read(1, 0, 8, 0)
	verify.Opcode = nvme.OpVerify
	h.io.good(h.io.start(verify, nil))
}

// Long: a table.
func TestWhatDoesNotFitIsRefused(t *testing.T) {
	r := newRig(t, func(c *Config) { c.TransferShift, c.InCapsule = 1, 1024 })
	h := r.host(1, 1)
	for name, c := range map[string]struct {
		cmd  nvme.Command
		data []byte
		want nvme.Status
	}{
		"beyond MDTS":          {withSGL(nvme.Read(1, 0, 17, 0), 17*512), nil, nvme.InvalidField.Final()},
		"beyond the end":       {withSGL(nvme.Read(1, 2047, 2, 0), 1024), nil, nvme.LBAOutOfRange.Final()},
		"another namespace":    {withSGL(nvme.Read(9, 0, 1, 0), 512), nil, nvme.InvalidNamespace.Final()},
		"too short a buffer":   {withSGL(nvme.Read(1, 0, 2, 0), 512), nil, nvme.SGLLengthInvalid.Final()},
		"too little data":      {nvme.Write(1, 0, 2, 0), pattern(1, 512), nvme.SGLLengthInvalid.Final()},
		"too much in capsule":  {nvme.Write(1, 0, 4, 0), pattern(1, 2048), nvme.SGLLengthInvalid.Final()},
		"no such opcode":       {nvme.Command{Opcode: 0x4E, Flags: 0x40, SGL: nvme.ByTransport(0), NSID: 1}, nil, nvme.InvalidOpcode.Final()},
		"PRPs":                 {nvme.Command{Opcode: nvme.OpFlush, NSID: 1, SGL: nvme.ByTransport(0)}, nil, nvme.InvalidField.Final()},
		"a fused command":      {nvme.Command{Opcode: nvme.OpFlush, Flags: 0x41, NSID: 1, SGL: nvme.ByTransport(0)}, nil, nvme.InvalidField.Final()},
		"read into a capsule":  {nvme.Read(1, 0, 1, 0), pattern(1, 512), nvme.SGLTypeInvalid.Final()},
		"Connect once more":    {nvme.ConnectCommand{SQSize: 7}.Command(), pattern(1, 1024), nvme.SequenceError.Final()},
		"protection":           {protected(nvme.Write(1, 0, 1, 0)), pattern(1, 512), nvme.InvalidField.Final()},
		"too large a report":   {nvme.ReserveReport(1, 8<<20, true), nil, nvme.InvalidField.Final()},
		"a reservation's type": {nvme.ReserveCommand{Op: nvme.OpReserveAcquire, Type: 9}.Command(1), pattern(1, 16), nvme.InvalidField.Final()},
	} {
		t.Run(name, func(t *testing.T) { h.io.t = t; h.io.bad(h.io.start(c.cmd, c.data), c.want) })
	}
}

func protected(c nvme.Command) nvme.Command {
	c.CDW12 |= 1 << 29
	return c
}

func TestADigestThatDoesNotFitFailsTheCommandAlone(t *testing.T) {
	r := newRig(t, nil)
	h := r.adminOnly(1, 1, nvme.ConnectCommand{}, connectData(1))
	c := h.queue(1, 1, pdu.ICReq{DataDigest: true, MaxR2T: 1}, 0)
	c.cid++
	cmd := nvme.Write(1, 0, 1, 0)
	cmd.CID, cmd.SGL = c.cid, nvme.InCapsule(512)
	b := c.capsule(cmd, pattern(1, 512))
	b[len(b)-1] ^= 1
	c.write(b)
	c.bad(c.cid, nvme.TransientTransport)
	cid := c.start(withSGL(nvme.Write(1, 0, 64, 0), 32<<10), nil)
	c.read()
	p := pdu.Data{CID: cid, Tag: c.r2ts[0].Tag, Len: 32 << 10, Last: true}
	b = make([]byte, c.out.DataStart(pdu.HeaderLen))
	p.PutH2C(b, c.out)
	b = c.trail(append(b, pattern(1, 32<<10)...), pattern(2, 32<<10))
	c.write(b[:100]) // so that the rest lands in place
	c.write(b[100:])
	c.bad(cid, nvme.TransientTransport)
	if r.first(0) != 0 {
		t.Error("spoilt data was written")
	}
	c.good(c.write1(0, pattern(1, 512)))
}

// Long: a table of breaches.
func TestABreachOfTheTransportEndsTheConnection(t *testing.T) {
	for name, breach := range map[string]struct {
		do   func(c *client)
		want uint16
	}{
		"ICReq twice":            {func(c *client) { b := make([]byte, 128); plain.Put(b); c.write(b) }, pdu.SequenceError},
		"a type nobody knows":    {func(c *client) { c.write([]byte{0x55, 0, 24, 0, 24, 0, 0, 0}) }, pdu.InvalidField},
		"what controllers send":  {func(c *client) { b := make([]byte, 28); (&pdu.R2T{Len: 4}).Put(b, c.out); c.write(b[:24]) }, pdu.InvalidField},
		"H2CData for nothing":    {func(c *client) { c.h2c(pdu.R2T{CID: 9, Len: 512}, pattern(1, 512)) }, pdu.InvalidField},
		"H2CData of another tag": {func(c *client) { c.asked(func(r *pdu.R2T) { r.Tag++ }) }, pdu.InvalidField},
		"H2CData beyond the R2T": {func(c *client) { c.asked(func(r *pdu.R2T) { r.Len = 1024 }) }, pdu.OutOfRange},
		"H2CData out of order":   {func(c *client) { c.asked(func(r *pdu.R2T) { r.Offset, r.Len = 256, 256 }) }, pdu.OutOfRange},
		"H2CData too early last": {func(c *client) { c.asked(func(r *pdu.R2T) { r.Len = 256 }) }, pdu.InvalidField},
		"H2CData too long":       {func(c *client) { c.maxH = 8192; c.large = true; c.h2c(pdu.R2T{Len: 8192}, pattern(1, 8192)) }, pdu.TransferLimit},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(c *Config) { c.MaxH2CData = 4096 })
			h := r.host(1, 1)
			h.io.t = t
			breach.do(h.io)
			h.io.read()
			if h.io.term == nil || h.io.term.Status != breach.want || !h.io.c.Closing() || h.io.c.Cause() == "" {
				t.Errorf("%+v, %q", h.io.term, h.io.c.Cause())
			}
			h.io.c.Gone()
			if h.state(); r.Buffers.Held() != 0 {
				t.Errorf("%d bytes are left", r.Buffers.Held())
			}
		})
	}
}

// asked writes a block by R2T, and changes what it sends for it.
func (c *client) asked(change func(r *pdu.R2T)) {
	c.start(withSGL(nvme.Write(1, 0, 1, 0), 512), nil)
	c.read()
	p := c.r2ts[0]
	change(&p)
	c.h2c(p, pattern(1, 2048))
}

func TestAQueueHasNoMoreCommandsThanEntries(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Depth = 4 })
	h := r.host(1, 1)
	_, _ = r.Hold(serve.Match{}, false, nil)
	for range 4 {
		h.io.start(nvme.Flush(1), nil)
	}
	if h.io.c.Closing() {
		t.Fatal("too early")
	}
	h.io.start(nvme.Flush(1), nil)
	if !h.io.c.Closing() {
		t.Error("a fifth command of four entries")
	}
}

func TestACommandIDIsOneCommands(t *testing.T) {
	r := newRig(t, nil)
	h := r.host(1, 1)
	held, _ := r.Hold(serve.Match{}, false, nil)
	first := h.io.start(nvme.Flush(1), nil)
	h.io.cid--
	h.io.start(nvme.Flush(1), nil)
	h.io.bad(first, nvme.CIDConflict.Final())
	delete(h.io.done, first)
	held.Release()
	h.io.good(first)
}

func TestAJobThatIsOverFindsItsConnectionGone(t *testing.T) {
	b := newBench(t, nil)
	h := b.host(1, 1)
	h.io.start(withSGL(nvme.Read(1, 0, 64, 0), 32<<10), nil)
	h.io.send(nvme.Write(1, 0, 64, 0), pattern(1, 32<<10))
	b.has(2)
	h.gone()
	b.work(1)
	b.work(0)
	if b.Buffers.Held() != 0 || b.Conns() != 0 || len(b.controllers) != 0 || b.Jobs() != 0 {
		t.Errorf("%d bytes, %d connections, %d controllers are left", b.Buffers.Held(), b.Conns(), len(b.controllers))
	}
}

func TestReadsOfASlowStoreAreSentFromTheirBuffer(t *testing.T) {
	b := newBench(t, nil)
	h := b.host(1, 1)
	_ = b.ram.WriteAt(pattern(7, 64<<10), 0)
	for _, n := range []int{512, 64 << 10} {
		cid := h.io.start(withSGL(nvme.Read(1, 0, uint32(n/512), 0), uint32(n)), nil)
		b.work(0)
		h.io.good(cid)
		if !bytes.Equal(h.io.data[cid], pattern(7, n)) {
			t.Errorf("%d bytes differ", n)
		}
	}
	if b.Buffers.Held() != 0 {
		t.Errorf("%d bytes are held", b.Buffers.Held())
	}
}
