package nvmetcp

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"sync/atomic"

	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	"github.com/csi-mpath/csi-mpath/pkg/nvmetcp/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/poll"
	"github.com/csi-mpath/csi-mpath/pkg/wire"
)

// queue is a queue pair of a controller on its connection: a wire.Flow and the
// codec of it, a wire.Link, and what ICResp and Connect agreed on. Command and
// Data belong to the holder of the sender flag, Header and what follows it to
// the reader.
type queue struct {
	*wire.Flow
	c    *Controller
	id   uint16
	link *wire.Link

	send, recv pdu.Layout
	capsule    int // the most data in a capsule, bytes
	depth      int // blk.Commands at most
	// reviewWanted asks the reader for review. Written by the ticker and the reader.
	reviewWanted atomic.Bool
	// fate says whether the controller needs the queue. Written by whoever brings
	// the controller up, and by whoever sees the connection end before that is done.
	fate  atomic.Uint32
	cause atomic.Pointer[error] // first cause of its end
	over  chan struct{}         // closed when reader and sender are gone
	// extra is what only NVMe knows of each task, by its index.
	extra []extra

	// Reader's: the C2HData that lands, and its task.
	head    pdu.Data
	landing *wire.Task
}

// Fates of a queue.
const (
	queueNew     = iota // not connected yet: an I/O queue may be refused
	queueJoined         // its end is the controller's
	queueDropped        // the controller goes on without it
)

// extra is a task's part that only NVMe has. The holder of the tag sets ns or
// req; the sender small, before it publishes the task; the rest is the reader's.
type extra struct {
	ns    *Namespace
	req   *request
	small [nvme.RangeLen]byte
	last  bool // all data has come
	bad   bool // with a wrong digest
	// aborting: an Abort for it is out, or was answered.
	aborting bool
}

// shape is what a queue is made with.
type shape struct {
	id                        uint16
	depth, controls, standing int
	capsule                   int
}

// newQueue makes the codec of a connection that agreed on send and recv.
func newQueue(c *Controller, sh shape, maxData uint32, send, recv pdu.Layout, clock *wire.Clock) *queue {
	q := &queue{c: c, id: sh.id, send: send, recv: recv, capsule: sh.capsule, depth: sh.depth, over: make(chan struct{})}
	if sh.id == 0 {
		q.fate.Store(queueJoined)
	}
	homes := (runtime.GOMAXPROCS(0)-1)/max(c.cfg.Queues, 1) + 1 // lanes that share it
	tasks := wire.NewTasks(wire.IDs{Bits: 16, None: 0xFFFF}, sh.depth, homes, sh.controls, sh.standing)
	q.extra = make([]extra, tasks.Len())
	set := wire.Setup{Tasks: tasks, Clock: clock, Codec: q, MaxData: int(min(maxData, pdu.MaxData)), Overhead: pdu.MaxHeader + pdu.DigestLen}
	if send.DataDigest {
		set.Sum = pdu.CRC
	}
	q.Flow = wire.NewFlow(set)
	return q
}

// of is the part of k that only NVMe has.
func (q *queue) of(k *wire.Task) *extra { return &q.extra[k.Index] }

// renew makes k's part ready for a new holder of the tag.
func (q *queue) renew(k *wire.Task, ns *Namespace, r *request) {
	x := q.of(k)
	x.ns, x.req, x.last, x.bad, x.aborting = ns, r, false, false, false
}

// Fail implements wire.Owner: a connection takes the whole controller with it,
// unless the controller can do without the queue.
func (q *queue) Fail(cause error) {
	q.cause.CompareAndSwap(nil, &cause)
	if q.fate.CompareAndSwap(queueNew, queueDropped) || q.fate.Load() == queueDropped {
		q.link.Stop()
		return
	}
	if q.id != 0 {
		cause = fmt.Errorf("I/O queue %d: %w", q.id, cause)
	}
	q.c.fail(cause)
}

// Retired implements wire.Owner.
func (q *queue) Retired() {
	close(q.over)
	q.c.retired()
}

// address is where the next connection goes. I/O queues go where the admin queue
// went: a name may stand for several ports, and the controller is at one of them
// (B-17).
func (c *Controller) address() string {
	if a, ok := c.info.Remote.(*net.TCPAddr); ok && c.cfg.Dial == nil {
		return a.String()
	}
	return c.cfg.Portal
}

// connect makes a connection and agrees on its parameters.
func (c *Controller) connect(ctx context.Context) (net.Conn, pdu.ICResp, *pdu.ICReq, error) {
	req := &pdu.ICReq{HeaderDigest: c.cfg.HeaderDigest, DataDigest: c.cfg.DataDigest, MaxR2T: openR2T}
	d := wire.Dialer{Portal: c.address(), Source: c.cfg.Source, Dial: c.cfg.Dial, Timeout: c.cfg.ConnectTimeout,
		Unacknowledged: c.cfg.PathTimeout, Probe: true}
	conn, err := d.Connect(ctx)
	if err != nil {
		return nil, pdu.ICResp{}, nil, err
	}
	var resp pdu.ICResp
	if err = wire.Blocking(ctx, conn, c.cfg.LoginTimeout, func() (err error) { resp, err = greet(conn, req); return err }); err != nil {
		_ = conn.Close()
		return nil, resp, nil, fmt.Errorf("initialize the connection: %w", err)
	}
	return conn, resp, req, nil
}

// greet exchanges ICReq and ICResp (3.6.2.2, 3.6.2.3).
func greet(conn net.Conn, req *pdu.ICReq) (resp pdu.ICResp, err error) {
	var b [pdu.InitLen + pdu.MaxHeader]byte
	req.Put(b[:])
	if _, err := conn.Write(b[:pdu.InitLen]); err != nil {
		return resp, err
	}
	if err := wire.ReadFull(conn, b[:pdu.CommonLen]); err != nil {
		return resp, err
	}
	h, err := pdu.Layout{}.Parse(b[:pdu.CommonLen])
	if err != nil {
		return resp, broken(err)
	}
	if h.Size > len(b) || h.Type != pdu.TypeICResp && h.Type != pdu.TypeC2HTerm {
		return resp, violation("%v instead of ICResp", h.Type)
	}
	if err := wire.ReadFull(conn, b[pdu.CommonLen:h.Size]); err != nil {
		return resp, err
	}
	if h.Type == pdu.TypeC2HTerm {
		return resp, terminated(b[:h.Size])
	}
	if err := resp.Decode(b[:h.Size]); err != nil {
		return resp, broken(err)
	}
	return resp, nil
}

// terminated is what a C2HTermReq says.
func terminated(b []byte) error {
	var p pdu.TermReq
	if err := p.Decode(b); err != nil {
		return broken(err)
	}
	return fmt.Errorf("%w: %w", ErrTerminated, p.Fault())
}

// open connects one queue, and runs it. Connect itself is the caller's.
func (c *Controller) open(ctx context.Context, sh shape) (*queue, error) {
	conn, resp, req, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	send, recv, err := resp.Accept(req)
	if err != nil {
		_ = conn.Close()
		return nil, broken(err)
	}
	sock, err := poll.NewSocket(conn)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	q := newQueue(c, sh, resp.MaxH2CData, send, recv, c.clock)
	q.link = wire.NewLink(sock, q.Flow, q)
	if sh.id != 0 {
		sock.SetPolling(c.cfg.Polling)
	}
	if err := c.adopt(q); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return q, nil
}
