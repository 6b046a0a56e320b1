package agentpb

import (
	"fmt"
	"maps"
	"net/netip"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// Replies and events, both ways. What comes from the network is checked here:
// whoever believes an agent dials what it says, and logs it.

// each converts a list, up to its first error.
func each[A, B any](all []A, f func(A) (B, error)) (out []B, err error) {
	for _, a := range all {
		b, err := f(a)
		if err != nil {
			return nil, err
		}
		out = append(out, b)
	}
	return out, nil
}

// every converts a list.
func every[A, B any](all []A, f func(A) B) (out []B) {
	for _, a := range all {
		out = append(out, f(a))
	}
	return out
}

// FromInfo converts what a backend is.
func FromInfo(i backend.Info) *Info {
	return &Info{Kind: i.Kind, Version: i.Version, Boot: i.Boot, Pools: every(i.Pools, FromPool)}
}

// Backend is what the agent is, checked.
func (m *Info) Backend() (backend.Info, error) {
	pools, err := each(m.GetPools(), (*Pool).Backend)
	return backend.Info{Kind: m.GetKind(), Version: m.GetVersion(), Boot: m.GetBoot(), Pools: pools}, err
}

// FromPool converts what a pool is.
func FromPool(p backend.Pool) *Pool {
	return &Pool{Name: p.Name, Kind: p.Kind, Transports: every(p.Transports, func(t backend.Transport) Transport { return transports.to[t] }),
		Snapshots: p.Snapshots, SnapshotsInUse: p.SnapshotsInUse, Thin: p.Thin, Step: p.Step, Min: p.Min, Max: p.Max}
}

// Backend is what a pool is, checked.
func (m *Pool) Backend() (backend.Pool, error) {
	t, err := each(m.GetTransports(), transports.backend)
	return backend.Pool{Name: m.GetName(), Kind: m.GetKind(), Transports: t, Snapshots: m.GetSnapshots(), SnapshotsInUse: m.GetSnapshotsInUse(),
		Thin: m.GetThin(), Step: m.GetStep(), Min: m.GetMin(), Max: m.GetMax()}, firstOf(err, backend.CheckPool(m.GetName()))
}

// FromVolume converts a volume.
func FromVolume(v backend.Volume) *Volume {
	return &Volume{Id: FromID(v.ID), Name: v.Name, Size: v.Size, Source: FromSource(v.Source), Content: contents.to[v.Content],
		Identity: v.Identity, Created: FromTime(v.Created), Tunables: v.Tunables, Generation: v.Generation}
}

// Backend is a volume, checked.
func (m *Volume) Backend() (backend.Volume, error) {
	id, err := m.GetId().required()
	source := m.GetSource().Backend()
	content, odd := contents.backend(m.GetContent())
	return backend.Volume{ID: id, Name: m.GetName(), Size: m.GetSize(), Source: source, Content: content,
			Identity: m.GetIdentity(), Created: m.GetCreated().Backend(), Tunables: maps.Clone(m.GetTunables()), Generation: m.GetGeneration()},
		firstOf(err, odd, source.Check(), m.GetCreated().check(), positive("volume", m.GetSize()))
}

// FromVolumes converts a page of a list.
func FromVolumes(all []backend.Volume, next string) *ListVolumesReply {
	return &ListVolumesReply{Volumes: every(all, FromVolume), Next: next}
}

// Backend is a page of a list, checked.
func (m *ListVolumesReply) Backend() ([]backend.Volume, string, error) {
	all, err := each(m.GetVolumes(), (*Volume).Backend)
	return all, m.GetNext(), err
}

// FromSnapshot converts a snapshot.
func FromSnapshot(s backend.Snapshot) *Snapshot {
	return &Snapshot{Id: FromID(s.ID), Name: s.Name, Of: FromID(s.Of), Size: s.Size, Created: FromTime(s.Created)}
}

// Backend is a snapshot, checked.
func (m *Snapshot) Backend() (backend.Snapshot, error) {
	id, err := m.GetId().required()
	of, odd := m.GetOf().optional()
	return backend.Snapshot{ID: id, Name: m.GetName(), Of: of, Size: m.GetSize(), Created: m.GetCreated().Backend()},
		firstOf(err, odd, m.GetCreated().check(), positive("snapshot", m.GetSize()))
}

// FromSnapshots converts a page of a list.
func FromSnapshots(all []backend.Snapshot, next string) *ListSnapshotsReply {
	return &ListSnapshotsReply{Snapshots: every(all, FromSnapshot), Next: next}
}

// Backend is a page of a list, checked.
func (m *ListSnapshotsReply) Backend() ([]backend.Snapshot, string, error) {
	all, err := each(m.GetSnapshots(), (*Snapshot).Backend)
	return all, m.GetNext(), err
}

// FromCapacity converts what a pool has room for.
func FromCapacity(c backend.Capacity) *Capacity {
	return &Capacity{Available: c.Available, MaxVolume: c.MaxVolume, MinVolume: c.MinVolume, Total: c.Total, Used: c.Used}
}

// Backend is what a pool has room for.
func (m *Capacity) Backend() backend.Capacity {
	return backend.Capacity{Available: m.GetAvailable(), MaxVolume: m.GetMaxVolume(), MinVolume: m.GetMinVolume(), Total: m.GetTotal(),
		Used: m.GetUsed()}
}

// FromConnection converts what a node needs.
func FromConnection(c backend.Connection) *Connection {
	return &Connection{Transport: transports.to[c.Transport], Target: c.Target, Lun: c.LUN, Nsid: c.NSID, Portals: every(c.Portals, fromPortal),
		Wwid: c.WWID, Initiator: c.Initiator, HostId: c.HostID, Epoch: c.Epoch, Size: c.Size, ReadOnly: c.ReadOnly,
		Content: contents.to[c.Content], Tunables: c.Tunables, Generation: c.Generation}
}

// Backend is what a node needs, checked.
func (m *Connection) Backend() (backend.Connection, error) {
	portals, err := each(m.GetPortals(), (*Portal).backend)
	content, odd := contents.backend(m.GetContent())
	transport, strange := transports.backend(m.GetTransport())
	return backend.Connection{Transport: transport, Target: m.GetTarget(), LUN: m.GetLun(), NSID: m.GetNsid(), Portals: portals,
			WWID: m.GetWwid(), Initiator: m.GetInitiator(), HostID: m.GetHostId(), Epoch: m.GetEpoch(), Size: m.GetSize(), ReadOnly: m.GetReadOnly(),
			Content: content, Tunables: maps.Clone(m.GetTunables()), Generation: m.GetGeneration()},
		firstOf(err, odd, strange, positive("connection", m.GetSize()))
}

func fromPortal(p backend.Portal) *Portal {
	return &Portal{Address: p.Address, Group: uint32(p.Group)}
}

func (m *Portal) backend() (backend.Portal, error) {
	p := backend.Portal{Address: m.GetAddress(), Group: uint16(m.GetGroup())} //nolint:gosec // checked below
	if _, err := netip.ParseAddrPort(p.Address); err != nil || uint32(p.Group) != m.GetGroup() {
		return p, fmt.Errorf("%w: portal %.64q in group %d", backend.ErrInvalid, p.Address, m.GetGroup())
	}
	return p, nil
}

// FromPublication converts one node's access.
func FromPublication(p backend.Publication) *Publication {
	m := &Publication{Volume: FromID(p.Volume), Node: p.Node, Transport: transports.to[p.Transport], Initiator: p.Initiator, Epoch: p.Epoch,
		ReadOnly: p.ReadOnly, Shared: p.Shared, Revoking: p.Revoking}
	for portal, n := range p.Sessions {
		if m.Sessions == nil {
			m.Sessions = map[string]int64{}
		}
		m.Sessions[portal] = int64(n)
	}
	return m
}

// Backend is one node's access, checked.
func (m *Publication) Backend() (backend.Publication, error) {
	id, err := m.GetVolume().required()
	transport, odd := transports.backend(m.GetTransport())
	p := backend.Publication{Volume: id, Node: m.GetNode(), Transport: transport, Initiator: m.GetInitiator(), Epoch: m.GetEpoch(),
		ReadOnly: m.GetReadOnly(), Shared: m.GetShared(), Revoking: m.GetRevoking()}
	for portal, n := range m.GetSessions() {
		if p.Sessions == nil {
			p.Sessions = map[string]int{}
		}
		p.Sessions[portal] = int(n)
	}
	return p, firstOf(err, odd, backend.CheckNode(p.Node))
}

// FromPublications converts a page of a list.
func FromPublications(all []backend.Publication, next string) *ListPublicationsReply {
	return &ListPublicationsReply{Publications: every(all, FromPublication), Next: next}
}

// Backend is a page of a list, checked.
func (m *ListPublicationsReply) Backend() ([]backend.Publication, string, error) {
	all, err := each(m.GetPublications(), (*Publication).Backend)
	return all, m.GetNext(), err
}

// FromEvent converts what happened.
func FromEvent(e backend.Event) *Event {
	return &Event{Time: FromTime(e.Time), Kind: string(e.Kind), Warning: e.Warning, Pool: e.Pool, Volume: FromID(e.Volume), Node: e.Node,
		Portal: e.Portal, Message: clip(e.Message)}
}

// Backend is what happened, checked.
func (m *Event) Backend() (backend.Event, error) {
	id, err := m.GetVolume().optional()
	return backend.Event{Time: m.GetTime().Backend(), Kind: backend.EventKind(m.GetKind()), Warning: m.GetWarning(), Pool: m.GetPool(), Volume: id,
		Node: m.GetNode(), Portal: m.GetPortal(), Message: m.GetMessage()}, firstOf(err, m.GetTime().check())
}

func positive(what string, size int64) error {
	if size < 0 {
		return fmt.Errorf("%w: a %s of %d bytes", backend.ErrInvalid, what, size)
	}
	return nil
}
