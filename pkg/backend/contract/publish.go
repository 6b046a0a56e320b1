package contract

import (
	"errors"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

var publishChecks = []check{
	{"ARepeatedPublishIsTheSamePublication", eachTransport, aRepeatedPublishIsTheSamePublication},
	{"AnotherPublicationIsAnotherEpoch", eachTransport, anotherPublicationIsAnotherEpoch},
	{"AVolumeOfOneNodeIsRefusedToOthers", eachTransport, aVolumeOfOneNodeIsRefusedToOthers},
	{"ASharedVolumeHasSeveralNodes", eachTransport, aSharedVolumeHasSeveralNodes},
	{"NoNodeMeansAllNodes", eachTransport, noNodeMeansAllNodes},
	{"TheModeOfAPublicationIsKept", eachTransport, theModeOfAPublicationIsKept},
	{"AVolumeHasOneTransportAtATime", 0, aVolumeHasOneTransportAtATime},
	{"SecretsAreChangedInPlace", eachTransport, secretsAreChangedInPlace},
	{"APublishedVolumeIsNotDeleted", eachTransport, aPublishedVolumeIsNotDeleted},
	{"APublicationTellsWhatChanged", eachTransport, aPublicationTellsWhatChanged},
}

func aRepeatedPublishIsTheSamePublication(r *trial) {
	v := r.create(r.asks("vol", 1))
	first := r.publish(r.to(v.ID, "node-1.example"))
	r.wellFormed(first, v)
	r.sameConnection(r.publish(r.to(v.ID, "node-1.example")), first, "published again")
	all := r.publications()
	if len(all) != 1 || all[0].Volume != v.ID || all[0].Node != "node-1.example" || all[0].Transport != r.transport || all[0].Initiator != first.Initiator ||
		all[0].Epoch != first.Epoch || all[0].ReadOnly || all[0].Shared || all[0].Revoking {
		r.Errorf("publications: got %+v", all)
	}
	for range 2 {
		r.unpublish(v.ID, "node-1.example")
		if all := r.publications(); len(all) != 0 {
			r.Errorf("unpublished: got %+v", all)
		}
	}
	r.ok(r.b.DeleteVolume(r.ctx, v.ID), "deleting it")
	r.unpublish(v.ID, "node-1.example")
	r.nothingIsLeft()
}

// wellFormed fails the check if a node could do nothing with a connection.
func (r *trial) wellFormed(c backend.Connection, v backend.Volume) {
	r.Helper()
	if c.Transport != r.transport || c.Target == "" || len(c.Portals) == 0 || c.WWID == "" || c.Initiator == "" || c.Size != v.Size || c.ReadOnly || c.Generation != v.Generation {
		r.Errorf("connection of %s: got %+v", volumeText(v), c)
	}
	if c.Transport == backend.NVMe && (c.NSID == 0 || !identity.MatchString(c.HostID)) {
		r.Errorf("NVMe without namespace or host: got NSID %d, host %q", c.NSID, c.HostID)
	}
	if c.Content == backend.ContentWritten || c.Content == backend.ContentCopy {
		r.Errorf("content of a new volume: got %q", c.Content)
	}
}

func anotherPublicationIsAnotherEpoch(r *trial) {
	v := r.create(r.asks("vol", 1))
	seen := map[string]bool{}
	for range 3 {
		c := r.publish(r.to(v.ID, "node"))
		if c.Epoch != "" && (seen[c.Epoch] || seen[c.Initiator]) {
			r.Errorf("epoch %s, initiator %s came twice", c.Epoch, c.Initiator)
		}
		seen[c.Epoch], seen[c.Initiator] = true, true
		r.unpublish(v.ID, "node")
	}
}

func aVolumeOfOneNodeIsRefusedToOthers(r *trial) {
	v := r.create(r.asks("vol", 1))
	first := r.publish(r.to(v.ID, "a"))
	for what, p := range map[string]backend.Publish{"alone": r.to(v.ID, "b"), "shared": r.shared(v.ID, "b")} {
		_, err := r.b.Publish(r.ctx, p)
		r.inUse(err, what, "a")
	}
	r.sameConnection(r.publish(r.to(v.ID, "a")), first, "after others were refused")
	r.unpublish(v.ID, "b")
	r.sameConnection(r.publish(r.to(v.ID, "a")), first, "after another was unpublished")
	r.unpublish(v.ID, "a")
	r.publish(r.to(v.ID, "b"))
}

// inUse wants ErrInUse that names the node.
func (r *trial) inUse(err error, what, node string) {
	r.Helper()
	var in *backend.InUse
	if !errors.As(err, &in) || in.Node != node {
		r.Errorf("%s: got error %v, want in use by node %s", what, err, node)
	}
}

func aSharedVolumeHasSeveralNodes(r *trial) {
	v := r.create(r.asks("vol", 1))
	a, b := r.publish(r.shared(v.ID, "a")), r.publish(r.shared(v.ID, "b"))
	if a.WWID != b.WWID || a.Initiator == b.Initiator || (a.Epoch == b.Epoch && a.Epoch != "") {
		r.Errorf("two nodes got %s and %s", connectionText(a), connectionText(b))
	}
	_, err := r.b.Publish(r.ctx, r.to(v.ID, "c"))
	r.want(err, "alone, while others share it", backend.ErrInUse)
	r.unpublish(v.ID, "a")
	r.sameConnection(r.publish(r.shared(v.ID, "b")), b, "after the other was unpublished")
	if again := r.publish(r.shared(v.ID, "a")); again.Epoch == a.Epoch && a.Epoch != "" {
		r.Errorf("the other came back with its epoch %s", a.Epoch)
	}
}

func noNodeMeansAllNodes(r *trial) {
	v, other := r.create(r.asks("vol", 1)), r.create(r.asks("other", 1))
	r.publish(r.shared(v.ID, "a"))
	r.publish(r.shared(v.ID, "b"))
	r.publish(r.to(other.ID, "a"))
	r.unpublish(v.ID, "")
	if all := r.publications(); len(all) != 1 || all[0].Volume != other.ID {
		r.Errorf("got %+v", all)
	}
	r.unpublish(v.ID, "")
}

func theModeOfAPublicationIsKept(r *trial) {
	v := r.create(r.asks("vol", 1))
	asked := r.to(v.ID, "node")
	asked.ReadOnly = true
	first := r.publish(asked)
	if !first.ReadOnly {
		r.Error("a read-only publication is not")
	}
	writable, shared, renamed := r.to(v.ID, "node"), asked, asked
	shared.Shared = true
	renamed.Initiator = initiator(r.transport, "another")
	for what, p := range map[string]backend.Publish{"for writing": writable, "shared": shared, "to another initiator": renamed} {
		_, err := r.b.Publish(r.ctx, p)
		r.want(err, what, backend.ErrConflict)
	}
	r.sameConnection(r.publish(asked), first, "after others were refused")
	r.unpublish(v.ID, "node")
	if c := r.publish(writable); c.ReadOnly {
		r.Error("a publication for writing is read-only")
	}
}

func aVolumeHasOneTransportAtATime(r *trial) {
	for _, other := range []backend.Transport{backend.ISCSI, backend.NVMe} {
		if other == r.transport {
			continue
		}
		v := r.create(r.asks("over "+string(other), 1))
		first := r.publish(r.shared(v.ID, "a"))
		for _, node := range []string{"a", "b"} {
			p := r.shared(v.ID, node)
			p.Transport, p.Initiator = other, initiator(other, node)
			_, err := r.b.Publish(r.ctx, p)
			r.want(err, "node "+node+" over "+string(other), backend.ErrConflict, backend.ErrInUse, backend.ErrUnsupported)
		}
		r.sameConnection(r.publish(r.shared(v.ID, "a")), first, "after another transport was refused")
	}
}

// auth are secrets of a transport.
func auth(t backend.Transport, n int) backend.Auth {
	switch {
	case n == 0:
		return backend.Auth{}
	case t == backend.NVMe && n == 1:
		return backend.Auth{DHCHAP: backend.DHCHAP{Host: "DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:"}}
	case t == backend.NVMe:
		return backend.Auth{DHCHAP: backend.DHCHAP{Host: "DHHC-1:00:QEFCQ0RFRkdISUpLTE1OT1BRUlNUVVZXWFlaW1xdXl9YjiZe:"}}
	case n == 1:
		return backend.Auth{CHAP: backend.CHAP{User: "node", Secret: "first-secret-1"}}
	}
	return backend.Auth{CHAP: backend.CHAP{User: "node", Secret: "second-secret2", MutualUser: "target", MutualSecret: "third-secret-3"}}
}

func secretsAreChangedInPlace(r *trial) {
	v := r.create(r.asks("vol", 1))
	p := r.to(v.ID, "node")
	p.Auth = auth(r.transport, 1)
	first := r.publish(p)
	for _, n := range []int{2, 0, 1, 1} {
		p.Auth = auth(r.transport, n)
		r.sameConnection(r.publish(p), first, "published with other secrets")
	}
	if all := r.publications(); len(all) != 1 {
		r.Errorf("got %+v", all)
	}
}

func aPublishedVolumeIsNotDeleted(r *trial) {
	v := r.create(r.asks("vol", 1))
	first := r.publish(r.to(v.ID, "node"))
	r.inUse(r.b.DeleteVolume(r.ctx, v.ID), "deleting it", "node")
	r.sameConnection(r.publish(r.to(v.ID, "node")), first, "after it was not deleted")
	r.unpublish(v.ID, "node")
	r.ok(r.b.DeleteVolume(r.ctx, v.ID), "deleting it")
}

func aPublicationTellsWhatChanged(r *trial) {
	v := r.create(r.asks("vol", 1))
	first := r.publish(r.to(v.ID, "node"))
	grown, err := r.b.ExpandVolume(r.ctx, v.ID, backend.Size{Required: r.size(2)})
	r.ok(err, "expanding it")
	tuned, err := r.b.TuneVolume(r.ctx, v.ID, map[string]string{"polling": "off"})
	r.ok(err, "tuning it")
	c := r.publish(r.to(v.ID, "node"))
	r.sameConnection(c, first, "published again")
	if c.Size != grown.Size || c.Generation != tuned.Generation || c.Tunables["polling"] != "off" {
		r.Errorf("got %d bytes, %s", c.Size, tunablesText(c.Tunables, c.Generation))
	}
}
