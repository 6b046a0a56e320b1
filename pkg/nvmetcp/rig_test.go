package nvmetcp

import (
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	"github.com/csi-mpath/csi-mpath/pkg/nvmetcp/pdu"
)

// rig drives the codec of one I/O queue without a socket: bytes in, bytes and
// completions out.
type rig struct {
	t    testing.TB
	q    *queue
	n    *Namespace
	sink *recorder
}

// recorder is a sink that remembers.
type recorder struct {
	done     []*blk.Command
	evidence blk.Evidence
	lost     []*blk.Command
}

func (r *recorder) Complete(c *blk.Command) { r.done = append(r.done, c) }
func (r *recorder) BatchEnd(uint64)         {}
func (r *recorder) Evidence(e blk.Evidence) { r.evidence |= e }
func (r *recorder) Lost(first *blk.Command, _ error) {
	for c := first; c != nil; c = c.Next {
		r.lost = append(r.lost, c)
	}
}

func testProfile() *nvme.Profile {
	p := &nvme.Profile{NSID: 1, State: nvme.Optimized}
	p.ONCS = nvme.ONCSDataset | nvme.ONCSWriteZeroes
	p.Namespace = nvme.Namespace{Size: 1 << 20, BlockShift: 9}
	return p
}

// newRig makes a queue whose capsules hold 4 KiB, with 32 KiB in each H2CData.
func newRig(t testing.TB, l pdu.Layout) *rig {
	t.Helper()
	c := newController(Config{Portal: "192.0.2.1:4420", Subsystem: someSubsystem})
	q := newQueue(c, shape{id: 1, depth: 64, controls: 4, capsule: 4096}, 32<<10, l, l, c.clock)
	c.queues = []*queue{q}
	r := &rig{t: t, q: q, sink: &recorder{}}
	r.n = c.Namespace(1, 64, r.sink)
	r.n.SetProfile(testProfile())
	return r
}

func (r *rig) submit(cmds ...*blk.Command) {
	r.t.Helper()
	for _, c := range cmds {
		if !r.n.Submit(c, 0) {
			r.t.Fatalf("%v was not taken", c.Op)
		}
	}
}

func bytesOf(iov []unix.Iovec) []byte {
	var out []byte
	for _, v := range iov {
		out = append(out, unsafe.Slice(v.Base, v.Len)...)
	}
	return out
}

// sent is one PDU of ours.
type sent struct {
	pdu.Header
	b []byte
}

// take gathers and "sends" everything there is, and cuts it into PDUs.
func (r *rig) take() (out []sent) {
	r.t.Helper()
	var b []byte
	for iov := r.q.Gather(); len(iov) > 0; iov = r.q.Gather() {
		p := bytesOf(iov)
		b = append(b, p...)
		r.q.Accept(len(p))
	}
	for len(b) > 0 {
		h, more, err := r.q.send.Open(b)
		if err != nil || more > 0 || len(b) < h.Size {
			r.t.Fatalf("%+v of %d bytes: %v", h, len(b), err)
		}
		if err := r.q.send.CheckTrailer(b[h.DataOff+h.Data:], h.Data, pdu.CRC(0, b[h.DataOff:h.DataOff+h.Data])); err != nil {
			r.t.Fatal(err)
		}
		out = append(out, sent{h, b[:h.Size]})
		b = b[h.Size:]
	}
	return out
}

// feed gives bytes to the receiver in pieces of n bytes, as the reader does.
func (r *rig) feed(b []byte, n int) error {
	for len(b) > 0 {
		x, y := r.q.In.Space()
		k := copy(x, b[:min(n, len(b))])
		k += copy(y, b[k:min(n, len(b))])
		err := r.q.In.Fed(k)
		r.q.CompleteEarly()
		r.q.EndBatch()
		if err != nil {
			return err
		}
		b = b[k:]
	}
	return nil
}

func (r *rig) mustFeed(b []byte) {
	r.t.Helper()
	if err := r.feed(b, 1<<20); err != nil {
		r.t.Fatal(err)
	}
}

// response is a response capsule.
func (r *rig) response(tag uint32, st nvme.Status) []byte {
	b := make([]byte, pdu.MaxHeader)
	c := nvme.Completion{CID: uint16(tag), Status: st}
	c.Put(pdu.ResponseSpace(b))
	return b[:r.q.recv.PutCapsuleResp(b)]
}

func (r *rig) c2h(d pdu.Data, payload []byte) []byte {
	b := make([]byte, pdu.MaxHeader+len(payload)+pdu.DigestLen)
	d.Len = uint32(len(payload))
	n := d.PutC2H(b, r.q.recv)
	n += copy(b[n:], payload)
	return b[:n+r.q.recv.PutTrailer(b[n:], len(payload), pdu.CRC(0, payload))]
}

func (r *rig) r2t(tag uint32, ttag uint16, off, n uint32) []byte {
	b := make([]byte, pdu.MaxHeader)
	p := pdu.R2T{CID: uint16(tag), Tag: ttag, Offset: off, Len: n}
	return b[:p.Put(b, r.q.recv)]
}
