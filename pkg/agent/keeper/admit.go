package keeper

import (
	"fmt"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// admit decides about a publication (pure): the record as it should be, and
// whether it differs from r. Epoch is what a new publication gets.
func admit(r record, q backend.Publish, epoch string) (next record, changed bool, err error) {
	old, again := r.of(q.Node)
	if again {
		return readmit(r, old, q)
	}
	for _, p := range r.pubs {
		if err := admitBeside(p, q); err != nil {
			return r, false, err
		}
	}
	if len(r.pubs) >= maxPublications {
		return r, false, fmt.Errorf("%w: volume %s has %d publications, the most there may be", backend.ErrNoSpace, q.Volume, len(r.pubs))
	}
	return r.with(publication{node: q.Node, base: q.Initiator, epoch: epoch, transport: q.Transport,
		readOnly: q.ReadOnly, shared: q.Shared, auth: q.Auth}), true, nil
}

// admitBeside: p is another node's.
func admitBeside(p publication, q backend.Publish) error {
	why := "it is not shared"
	switch {
	case !p.shared || !q.Shared:
		if p.revoking {
			why = "its revocation is not over"
		}
	case p.transport != q.Transport:
		why = fmt.Sprintf("over %s; a volume has one transport at a time", p.transport)
	default:
		return nil
	}
	return &backend.InUse{Object: "volume " + q.Volume.String(), Node: p.node, Why: why}
}

// readmit: the node has the volume already. The epoch stays (never reused, never
// changed before Unpublish); secrets may change.
func readmit(r record, old publication, q backend.Publish) (record, bool, error) {
	if old.revoking {
		return r, false, fmt.Errorf("%w: volume %s is being unpublished from node %s: try again when that is over", backend.ErrBusy, q.Volume, q.Node)
	}
	if old.readOnly != q.ReadOnly || old.shared != q.Shared || old.transport != q.Transport || old.base != q.Initiator {
		return r, false, fmt.Errorf("%w: node %s has volume %s over %s as %s, read-only %t, shared %t: unpublish it first", backend.ErrConflict,
			q.Node, q.Volume, old.transport, old.base, old.readOnly, old.shared)
	}
	if old.auth == q.Auth {
		return r, false, nil
	}
	old.auth = q.Auth
	return r.with(old), true, nil
}
