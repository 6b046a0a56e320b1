package contract

import (
	gobytes "bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

var dataChecks = []check{
	{"ANewVolumeIsZero", eachTransport | bytes, aNewVolumeIsZero},
	{"WhatWasWrittenOutlivesItsPublication", eachTransport | bytes, whatWasWrittenOutlivesItsPublication},
	{"CopiesKeepWhatTheirSourceHad", eachTransport | bytes, copiesKeepWhatTheirSourceHad},
	{"ASnapshotUnderLoadIsOfOneMoment", eachTransport | bytes, aSnapshotUnderLoadIsOfOneMoment},
	{"AnExpandedVolumeIsZeroAtItsEnd", eachTransport | bytes, anExpandedVolumeIsZeroAtItsEnd},
	{"WhoWasUnpublishedReachesNothing", eachTransport | bytes, whoWasUnpublishedReachesNothing},
	{"AReadOnlyPublicationWritesNothing", eachTransport | bytes, aReadOnlyPublicationWritesNothing},
	{"OnlyTheRightSecretLogsIn", eachTransport | bytes, onlyTheRightSecretLogsIn},
}

const block = 4096 // bytes of one read or write

// attach is a disk that must be there.
func (r *trial) attach(c backend.Connection, a backend.Auth) Disk {
	r.Helper()
	d, err := r.s.Attach(r.ctx, c, a)
	r.ok(err, "attaching")
	r.Cleanup(func() { _ = d.Close() })
	return d
}

// places are where a volume of that many bytes is looked at.
func places(size int64) []int64 { return []int64{0, size / 2 / block * block, size - block} }

// pattern is a block that only seed gives.
func pattern(seed uint64, at int64) []byte {
	b := make([]byte, block)
	src := rand.New(rand.NewPCG(seed, uint64(at)))
	for i := 0; i < block; i += 8 {
		binary.LittleEndian.PutUint64(b[i:], src.Uint64())
	}
	return b
}

// write puts a seed's pattern everywhere.
func (r *trial) write(d Disk, size int64, seed uint64) {
	r.Helper()
	for _, at := range places(size) {
		_, err := d.WriteAt(pattern(seed, at), at)
		r.ok(err, "writing")
	}
	r.ok(d.Flush(), "flushing")
}

// reads wants a seed's pattern, or zeros for seed 0, where a volume of that size
// has it.
func (r *trial) reads(d Disk, size int64, seed uint64, what string) {
	r.Helper()
	for _, at := range places(size) {
		got, want := make([]byte, block), make([]byte, block)
		if seed != 0 {
			want = pattern(seed, at)
		}
		_, err := d.ReadAt(got, at)
		r.ok(err, what)
		if !gobytes.Equal(got, want) {
			r.Errorf("%s: other bytes at %d: got %x..., want %x...", what, at, got[:16], want[:16])
		}
	}
}

// holds wants a volume to have a seed's pattern, and publishes it for that.
func (r *trial) holds(v backend.Volume, size int64, seed uint64, what string) {
	r.Helper()
	d := r.attach(r.publish(r.to(v.ID, "reader")), backend.Auth{})
	r.reads(d, size, seed, what)
	r.ok(d.Close(), "closing")
	r.unpublish(v.ID, "reader")
}

// fill gives a volume a seed's pattern.
func (r *trial) fill(v backend.Volume, seed uint64) {
	r.Helper()
	d := r.attach(r.publish(r.to(v.ID, "writer")), backend.Auth{})
	r.write(d, v.Size, seed)
	r.ok(d.Close(), "closing")
	r.unpublish(v.ID, "writer")
}

func aNewVolumeIsZero(r *trial) {
	for range 2 { // the second gets the space of the first
		v := r.create(r.asks("vol", 1))
		r.holds(v, v.Size, 0, "a new volume")
		r.fill(v, 1)
		r.ok(r.b.DeleteVolume(r.ctx, v.ID), "deleting it")
	}
}

func whatWasWrittenOutlivesItsPublication(r *trial) {
	v := r.create(r.asks("vol", 1))
	r.fill(v, 1)
	r.holds(v, v.Size, 1, "published again")
	if c := r.publish(r.to(v.ID, "node")); c.Content == backend.ContentBlank {
		r.Error("a volume that was written to is called blank")
	}
}

func copiesKeepWhatTheirSourceHad(r *trial) {
	if !r.pool.Snapshots {
		return
	}
	v := r.create(r.asks("vol", 1))
	r.fill(v, 1)
	s := r.snapshot("snap", v.ID)
	clone := r.asks("clone", 2)
	clone.Source.Volume = v.ID
	cloned := r.create(clone)
	r.fill(v, 2)
	restore := r.asks("restore", 1)
	restore.Source.Snapshot = s.ID
	restored := r.create(restore)
	r.holds(v, v.Size, 2, "the volume")
	r.holds(cloned, v.Size, 1, "its clone")
	r.holds(restored, v.Size, 1, "a copy of its snapshot")
	r.fill(restored, 3)
	r.ok(r.b.DeleteVolume(r.ctx, v.ID), "deleting the volume")
	restore.Name = "restore again"
	r.holds(r.create(restore), v.Size, 1, "a second copy of its snapshot, after the first was written to")
	r.ok(r.b.DeleteSnapshot(r.ctx, s.ID), "deleting the snapshot")
	r.holds(restored, v.Size, 3, "the first copy, after its snapshot is gone")
	r.holds(cloned, v.Size, 1, "the clone, after its source is gone")
}

// aSnapshotUnderLoadIsOfOneMoment: a writer counts up in two places, the second
// after the first was acknowledged; no moment has more in the second, nor less by
// more than one.
func aSnapshotUnderLoadIsOfOneMoment(r *trial) {
	if !r.pool.SnapshotsInUse {
		return
	}
	v := r.create(r.asks("vol", 1))
	d := r.attach(r.publish(r.to(v.ID, "node")), backend.Auth{})
	stop, first, second := make(chan struct{}), places(v.Size)[0], places(v.Size)[2]
	began, wg := make(chan struct{}), sync.WaitGroup{}
	wg.Go(func() { r.count(d, first, second, began, stop) })
	<-began
	for _, name := range []string{"a", "b", "c"} {
		ask := r.asks("of "+name, 1)
		ask.Source.Snapshot = r.snapshot(name, v.ID).ID
		copied := r.attach(r.publish(r.to(r.create(ask).ID, "reader")), backend.Auth{})
		var n [2]uint64
		for i, at := range []int64{first, second} {
			b := make([]byte, block)
			_, err := copied.ReadAt(b, at)
			r.ok(err, "reading")
			n[i] = binary.LittleEndian.Uint64(b)
		}
		if n[0] == 0 || n[0] < n[1] || n[0] > n[1]+1 {
			r.Errorf("a snapshot has %d in the first place and %d in the second", n[0], n[1])
		}
	}
	close(stop)
	wg.Wait()
}

// count is the writer.
func (r *trial) count(d Disk, first, second int64, began, stop chan struct{}) {
	b := make([]byte, block)
	for n := uint64(1); ; n++ {
		binary.LittleEndian.PutUint64(b, n)
		for _, at := range []int64{first, second} {
			if _, err := d.WriteAt(b, at); err != nil {
				r.Errorf("writing while a snapshot is made: %v", err)
				if n == 1 {
					close(began)
				}
				return
			}
		}
		if n == 1 {
			close(began)
		}
		select {
		case <-stop:
			return
		default:
		}
	}
}

func anExpandedVolumeIsZeroAtItsEnd(r *trial) {
	v := r.create(r.asks("vol", 1))
	r.fill(v, 1)
	d := r.attach(r.publish(r.to(v.ID, "node")), backend.Auth{})
	grown, err := r.b.ExpandVolume(r.ctx, v.ID, backend.Size{Required: r.size(2)})
	r.ok(err, "expanding it")
	r.reads(d, v.Size, 1, "after it was expanded")
	r.ok(d.Close(), "closing")
	again := r.attach(r.publish(r.to(v.ID, "node")), backend.Auth{})
	b := make([]byte, block)
	_, err = again.ReadAt(b, grown.Size-block)
	r.ok(err, "reading the end")
	if !gobytes.Equal(b, make([]byte, block)) {
		r.Errorf("the end is not zero: %x...", b[:16])
	}
	r.write(again, grown.Size, 2)
	r.reads(again, grown.Size, 2, "written to its end")
}

func whoWasUnpublishedReachesNothing(r *trial) {
	for what, end := range map[string]func(id backend.ID) error{
		"unpublished": func(id backend.ID) error { return r.b.Unpublish(r.ctx, id, "bad") },
		"fenced":      func(backend.ID) error { return r.b.Fence(r.ctx, "bad") },
	} {
		v := r.create(r.asks(what, 1))
		r.fill(v, 1)
		old := r.publish(r.shared(v.ID, "bad"))
		d := r.attach(old, backend.Auth{})
		r.write(d, v.Size, 2)
		r.ok(end(v.ID), what)
		if _, err := d.WriteAt(pattern(3, 0), 0); err == nil {
			r.Errorf("%s: its session wrote", what)
		}
		next := r.attach(r.publish(r.shared(v.ID, "good")), backend.Auth{})
		r.refused(old, backend.Auth{}, what+": the old login")
		r.reads(next, v.Size, 2, what+": what the next node sees")
		r.ok(r.b.Unfence(r.ctx, "bad"), "lifting it")
		back := r.publish(r.shared(v.ID, "bad"))
		r.refused(old, backend.Auth{}, what+", and published again: the old login")
		r.reads(r.attach(back, backend.Auth{}), v.Size, 2, what+", and published again")
	}
}

// refused wants a login to fail, or what it logged in to be of no use.
func (r *trial) refused(c backend.Connection, a backend.Auth, what string) {
	r.Helper()
	d, err := r.s.Attach(r.ctx, c, a)
	if err != nil {
		return
	}
	_, errRead := d.ReadAt(make([]byte, block), 0)
	_, errWrite := d.WriteAt(make([]byte, block), 0)
	_ = d.Close()
	if errRead == nil || errWrite == nil {
		r.Errorf("%s was let in", what)
	}
}

func aReadOnlyPublicationWritesNothing(r *trial) {
	if slices.Contains(r.s.Unenforced, r.transport) {
		r.Skip("its exporter cannot enforce that; the node does (docs/limitations.md)")
	}
	v := r.create(r.asks("vol", 1))
	r.fill(v, 1)
	p := r.to(v.ID, "node")
	p.ReadOnly = true
	d := r.attach(r.publish(p), backend.Auth{})
	if _, err := d.WriteAt(pattern(2, 0), 0); err == nil {
		r.Error("a write succeeded")
	}
	r.reads(d, v.Size, 1, "after a write was refused")
}

func onlyTheRightSecretLogsIn(r *trial) {
	v := r.create(r.asks("vol", 1))
	p := r.to(v.ID, "node")
	p.Auth = auth(r.transport, 1)
	c := r.publish(p)
	r.reads(r.attach(c, p.Auth), v.Size, 0, "with the right secret")
	r.refused(c, auth(r.transport, 2), "another secret")
	r.refused(c, backend.Auth{}, "no secret")
	p.Auth = auth(r.transport, 2)
	c = r.publish(p)
	r.reads(r.attach(c, p.Auth), v.Size, 0, "with the new secret")
	r.refused(c, auth(r.transport, 1), "the secret before")
}
