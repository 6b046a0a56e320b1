//go:build vm

package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/test/node"
	"github.com/csi-mpath/csi-mpath/test/vm/kmsg"
	"github.com/csi-mpath/csi-mpath/test/vm/rig"
)

// fullPool is what the kernel says of a pool that runs full, and its iSCSI target of
// the writes that failed for it: 3 is no space.
var fullPool = regexp.MustCompile(`device-mapper: thin: .*(low water mark|no free data space|out-of-data-space|switching pool)|critical space allocation error|bio error: [0-9a-f]+, +err: 3`)

const (
	mib       = 1 << 20
	poolMiB   = 64
	bystander = 4 // MiB that a volume beside the writer's has
)

// filling is a server over a pool of poolMiB with two volumes that a node has: one
// with something in it, and one that is larger than the pool.
type filling struct {
	t      *testing.T
	g      *group
	b      backend.Backend
	events chan backend.Event
	beside *node.Path
	writer *node.Path
	large  backend.Volume
}

func newFilling(t *testing.T, transport backend.Transport, queue bool) *filling {
	t.Helper()
	f := &filling{t: t, g: newGroup(t, poolMiB), events: make(chan backend.Event, 100)}
	s := start(t, f.g.over(queue, kernels))
	f.b = s.k.For("t")
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = f.b.Watch(ctx, func(e backend.Event) { f.events <- e })
	}()
	t.Cleanup(func() { cancel(); <-ended })
	small := f.create("beside", 16)
	f.large = f.create("writer", 2*poolMiB)
	f.beside, f.writer = f.attach(transport, small), f.attach(transport, f.large)
	for i := range int64(bystander) {
		rig.Must(t, write(f.beside, 100, i))
	}
	rig.Must(t, f.beside.Flush())
	return f
}

func (f *filling) create(name string, size int64) backend.Volume {
	f.t.Helper()
	v, err := f.b.CreateVolume(f.t.Context(), backend.CreateVolume{Name: name, Pool: pool, Size: backend.Size{Required: size * mib}})
	rig.Must(f.t, err)
	return v
}

func (f *filling) attach(transport backend.Transport, v backend.Volume) *node.Path {
	f.t.Helper()
	base := map[backend.Transport]string{backend.ISCSI: "iqn.2026-01.io.csi-mpath:node", backend.NVMe: "nqn.2026-01.io.csi-mpath:node"}[transport]
	c, err := f.b.Publish(f.t.Context(), backend.Publish{Volume: v.ID, Node: "node", Initiator: base, Transport: transport})
	rig.Must(f.t, err)
	p, err := node.Dial(f.t.Context(), c, 0, backend.Auth{})
	rig.Must(f.t, err)
	f.t.Cleanup(p.Close)
	return p
}

// chunk is a MiB that only i gives.
func chunk(i int64) []byte { return bytes.Repeat([]byte(fmt.Sprintf("chunk%010d\n", i)), mib/16) }

// pieces are a transfer in commands of a size that every target takes.
func pieces(op blk.Op, b []byte, off int64) (all []*blk.Command) {
	const piece = 128 << 10
	for at := 0; at < len(b); at += piece {
		all = append(all, &blk.Command{Op: op, Off: uint64(off) + uint64(at), Len: piece, Buf: b[at : at+piece]})
	}
	return all
}

// write writes a chunk to where it belongs; chunks are numbered from base.
func write(p *node.Path, base, i int64) error {
	return p.Do(pieces(blk.Write, chunk(base+i), i*mib)...)
}

// fill writes from the first MiB to the last, and returns the one that failed.
func (f *filling) fill(from, to int64) (failed int64, err error) {
	for i := from; i < to; i++ {
		if err := write(f.writer, 0, i); err != nil {
			return i, err
		}
	}
	return to, nil
}

// holds wants the first n chunks of a path, which are numbered from base.
func (f *filling) holds(what string, p *node.Path, base, n int64) {
	f.t.Helper()
	got := make([]byte, mib)
	for i := range n {
		if err := p.Do(pieces(blk.Read, got, i*mib)...); err != nil || !bytes.Equal(got, chunk(base+i)) {
			f.t.Errorf("%s: chunk %d: %v, %.20q", what, i, err, got)
		}
	}
}

// told waits for an event of the pool.
func (f *filling) told(kind backend.EventKind) {
	f.t.Helper()
	late := time.NewTimer(rig.Patience)
	defer late.Stop()
	for {
		select {
		case e := <-f.events:
			if e.Kind == kind && e.Pool == pool {
				return
			}
		case <-late.C:
			f.t.Fatalf("no event %s", kind)
		}
	}
}

// refused wants everything to be refused that promises more.
func (f *filling) refused() {
	f.t.Helper()
	ctx := f.t.Context()
	_, err := f.b.CreateVolume(ctx, backend.CreateVolume{Name: "more", Pool: pool, Size: backend.Size{Required: mib}})
	_, err2 := f.b.CreateSnapshot(ctx, backend.CreateSnapshot{Name: "more", Of: f.large.ID})
	_, err3 := f.b.ExpandVolume(ctx, f.large.ID, backend.Size{Required: 3 * poolMiB * mib})
	for what, err := range map[string]error{"a volume": err, "a snapshot": err2, "an expansion": err3} {
		if !errors.Is(err, backend.ErrNoSpace) {
			f.t.Errorf("%s in a pool that is filling: %v", what, err)
		}
	}
	if c, err := f.b.Capacity(ctx, pool); err != nil || c.Available != 0 {
		f.t.Errorf("capacity: %+v, %v", c, err)
	}
}

// undisturbed wants the volume beside the writer's to work.
func (f *filling) undisturbed() {
	f.t.Helper()
	f.holds("beside a full pool", f.beside, 100, bystander)
	rig.Must(f.t, write(f.beside, 100, 0)) // in place
	rig.Must(f.t, f.beside.Flush())
}

func (f *filling) extend() { f.g.LVM(fmt.Sprintf("lvextend -q -y -L +%dM %s/%s", poolMiB, vg, thin)) }

// recovered wants all to be well after the pool was extended.
func (f *filling) recovered(written int64) {
	f.t.Helper()
	f.told(backend.PoolRecovered)
	f.create("more", 4)
	f.holds("the writer's volume", f.writer, 0, written)
	f.holds("the other volume", f.beside, 100, bystander)
}

// marks is a chunk with which the pool is above its mark, and not full.
const marks = poolMiB*85/100 + 2 - bystander

func TestAFullThinPoolFailsWritersAndNobodyElse(t *testing.T) {
	for _, transport := range []backend.Transport{backend.ISCSI, backend.NVMe} {
		t.Run(string(transport), func(t *testing.T) {
			kmsg.Watch(t, memoryDisk, fullPool)
			f := newFilling(t, transport, false)
			_, err := f.fill(0, marks)
			rig.Must(t, err)
			f.refused()
			f.told(backend.PoolFilling)
			begun := time.Now()
			failed, err := f.fill(marks, 2*poolMiB)
			var status *node.StatusError
			if !errors.As(err, &status) {
				t.Fatalf("writing into a full pool: %v; want the target's answer", err)
			}
			t.Logf("MiB %d failed %v after the mark: %v", failed, time.Since(begun), err)
			f.told(backend.PoolFull)
			f.refused()
			f.undisturbed()
			f.holds("the writer's volume", f.writer, 0, failed)
			f.extend()
			rig.Must(t, rig.Wait("the write to succeed", func() error { return write(f.writer, 0, failed) }))
			f.recovered(failed + 1)
		})
	}
}

func TestAFullThinPoolHoldsWritersWhereThatIsAskedFor(t *testing.T) {
	kmsg.Watch(t, memoryDisk, fullPool)
	// The kernel ends the wait after a minute, which an emulated machine needs.
	rig.Sh(t, "echo 600 >/sys/module/dm_thin_pool/parameters/no_space_timeout")
	f := newFilling(t, backend.ISCSI, true)
	type result struct {
		failed int64
		err    error
	}
	done := make(chan result, 1)
	const last = poolMiB + 8
	go func() {
		failed, err := f.fill(0, last)
		done <- result{failed, err}
	}()
	f.told(backend.PoolFull)
	f.refused()
	f.undisturbed()
	select {
	case r := <-done:
		t.Errorf("the writer ended before the pool was extended: %+v", r)
	default:
	}
	f.extend()
	if r := <-done; r.err != nil || r.failed != last {
		t.Errorf("the writer that waited: %+v", r)
	}
	f.recovered(last)
}
