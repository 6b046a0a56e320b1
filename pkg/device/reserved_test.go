package device_test

import (
	"context"
	"fmt"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/device"
	"github.com/csi-mpath/csi-mpath/pkg/iscsi"
	"github.com/csi-mpath/csi-mpath/pkg/nvme"
	"github.com/csi-mpath/csi-mpath/pkg/nvmetcp"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
)

// reserved is a configuration of node n, which reserves the volume.
func (r *rig) reserved(n int) device.Config {
	cfg := r.config()
	cfg.Reserve = true
	switch p := cfg.Protocol.(type) {
	case device.ISCSI:
		p.Initiator = fmt.Sprintf("iqn.2026-01.test:node%d", n)
		cfg.Protocol = p
	case device.NVMe:
		p.HostNQN = fmt.Sprintf("nqn.2026-01.test:node%d", n)
		cfg.Protocol = p
	}
	return cfg
}

// node is another node, with the volume open.
func (r *rig) node(cfg device.Config, paths int) *rig {
	r.Helper()
	n := newRigOver(r)
	cfg.Events = n.event
	n.open(cfg, paths)
	return n
}

// outcome waits for the answer to a request.
func (r *rig) outcome(q *blk.Request) (st blk.Status) {
	r.Helper()
	r.until("an answer", func() (ok bool) { st, ok = r.answered(q); return ok })
	return st
}

func (r *rig) writes(off, v uint64) {
	r.Helper()
	if st := r.outcome(r.send(blk.Write, off, 4096, v)); st != blk.OK {
		r.Fatalf("a write is answered with %v; %s", st, r.dev.Lost())
	}
}

// over ends the device as at Unstage.
func (r *rig) over() error {
	r.Helper()
	r.lane.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return r.dev.Close(ctx)
}

// killed is what the next process finds after a kill -9 of this one, whose sessions
// end without a word.
func (r *rig) killed(cfg device.Config) device.Config {
	r.Helper()
	cfg.StateDir, cfg.Patient = r.killedState(cfg), true
	r.dev.Keep()
	_ = r.over()
	return cfg
}

// table is who is registered at the target, and who of them holds the volume, asked
// by somebody who is not.
func (r *rig) table() (keys []uint64, held bool) {
	r.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if r.sub != nil {
		ns := r.stranger(ctx)
		st, err := ns.Reservations(ctx)
		r.check(err)
		for _, o := range st.Registrants {
			keys = append(keys, o.Key)
		}
		return keys, st.Type != nvme.NoReservation
	}
	s := r.strangeSession(ctx)
	keys, v, err := s.Reservations(ctx, mustLUN(r.T, "1"))
	r.check(err)
	return keys, v.Held
}

// clear has somebody else remove all registrations.
func (r *rig) clear() {
	r.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if r.sub != nil {
		ns := r.stranger(ctx)
		r.check(ns.Reserve(ctx, nvme.ReserveCommand{Op: nvme.OpReserveRegister}, 0, 7))
		r.check(ns.Reserve(ctx, nvme.ReserveCommand{Op: nvme.OpReserveRelease, Action: nvme.ActionClear}, 7, 0))
		return
	}
	s := r.strangeSession(ctx)
	r.check(s.Reserve(ctx, mustLUN(r.T, "1"), scsi.ActionRegisterAndIgnore, 0, 0, 7))
	r.check(s.Reserve(ctx, mustLUN(r.T, "1"), scsi.ActionClear, 0, 7, 0))
}

func (r *rig) strangeSession(ctx context.Context) *iscsi.Session {
	r.Helper()
	s, err := iscsi.Dial(ctx, iscsi.Config{Portal: r.addresses()[0], TargetName: r.name(), InitiatorName: "iqn.2026-01.test:stranger", ISID: [6]byte{0x80, 9}})
	r.check(err)
	r.Cleanup(func() { s.Abort(nil) })
	return s
}

func (r *rig) stranger(ctx context.Context) *nvmetcp.Namespace {
	r.Helper()
	c, err := nvmetcp.Dial(ctx, nvmetcp.Config{Portal: r.portals[0].Addr(), Subsystem: r.sub.Name(), HostNQN: "nqn.2026-01.test:stranger", HostID: [16]byte{9}})
	r.check(err)
	r.Cleanup(func() { c.Abort(nil) })
	return c.Namespace(1, 1, deaf{})
}

// deaf is a sink that nobody listens to.
type deaf struct{}

func (deaf) Complete(*blk.Command)    {}
func (deaf) BatchEnd(uint64)          {}
func (deaf) Evidence(blk.Evidence)    {}
func (deaf) Lost(*blk.Command, error) {}

func (r *rig) check(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}
