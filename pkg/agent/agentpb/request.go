package agentpb

import (
	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// Requests, both ways. What comes from the network is checked here, before anybody
// makes a path of it.

// FromCreateVolume converts a request.
func FromCreateVolume(r backend.CreateVolume) *CreateVolumeRequest {
	return &CreateVolumeRequest{Name: r.Name, Pool: r.Pool, Size: FromSize(r.Size), Source: FromSource(r.Source), Tunables: r.Tunables}
}

// Backend is the request, checked.
func (m *CreateVolumeRequest) Backend() (backend.CreateVolume, error) {
	r := backend.CreateVolume{Name: m.GetName(), Pool: m.GetPool(), Size: m.GetSize().Backend(), Source: m.GetSource().Backend(),
		Tunables: m.GetTunables()}
	return r, r.Check()
}

// Backend is the volume, checked.
func (m *GetVolumeRequest) Backend() (backend.ID, error) { return m.GetId().required() }

// Backend is the volume, checked.
func (m *DeleteVolumeRequest) Backend() (backend.ID, error) { return m.GetId().required() }

// Backend is the snapshot, checked.
func (m *GetSnapshotRequest) Backend() (backend.ID, error) { return m.GetId().required() }

// Backend is the snapshot, checked.
func (m *DeleteSnapshotRequest) Backend() (backend.ID, error) { return m.GetId().required() }

// Backend is the volume and its size, checked.
func (m *ExpandVolumeRequest) Backend() (backend.ID, backend.Size, error) {
	id, size := m.GetId().Backend(), m.GetSize().Backend()
	return id, size, firstOf(id.Check(), size.Check())
}

// Backend is the volume and its tunables, checked.
func (m *TuneVolumeRequest) Backend() (backend.ID, map[string]string, error) {
	id := m.GetId().Backend()
	return id, m.GetTunables(), firstOf(id.Check(), backend.CheckTunables(m.GetTunables()))
}

// FromCreateSnapshot converts a request.
func FromCreateSnapshot(r backend.CreateSnapshot) *CreateSnapshotRequest {
	return &CreateSnapshotRequest{Name: r.Name, Of: FromID(r.Of)}
}

// Backend is the request, checked.
func (m *CreateSnapshotRequest) Backend() (backend.CreateSnapshot, error) {
	r := backend.CreateSnapshot{Name: m.GetName(), Of: m.GetOf().Backend()}
	return r, r.Check()
}

// Backend is of which volume, or the zero ID, and the page.
func (m *ListSnapshotsRequest) Backend() (backend.ID, backend.Page, error) {
	of, err := m.GetOf().optional()
	return of, m.GetPage().Backend(), err
}

// Backend is the pool, checked.
func (m *GetCapacityRequest) Backend() (string, error) {
	return m.GetPool(), backend.CheckPool(m.GetPool())
}

// FromPublish converts a request. It has the secrets.
func FromPublish(r backend.Publish) (*PublishRequest, error) {
	return &PublishRequest{Volume: FromID(r.Volume), Node: r.Node, Initiator: r.Initiator, Transport: transports.to[r.Transport],
		ReadOnly: r.ReadOnly, Shared: r.Shared, Auth: FromAuth(r.Auth)}, r.Check()
}

// Backend is the request, checked.
func (m *PublishRequest) Backend() (backend.Publish, error) {
	transport, err := transports.backend(m.GetTransport())
	if err != nil {
		return backend.Publish{}, err
	}
	r := backend.Publish{Volume: m.GetVolume().Backend(), Node: m.GetNode(), Initiator: m.GetInitiator(), Transport: transport,
		ReadOnly: m.GetReadOnly(), Shared: m.GetShared(), Auth: m.GetAuth().Backend()}
	return r, r.Check()
}

// Backend is the volume, and the node or "", checked.
func (m *UnpublishRequest) Backend() (backend.ID, string, error) {
	id := m.GetVolume().Backend()
	return id, m.GetNode(), firstOf(id.Check(), optionalNode(m.GetNode()))
}

// FromFilter converts which publications are wanted.
func FromFilter(f backend.PublicationFilter, p *Page) *ListPublicationsRequest {
	return &ListPublicationsRequest{Volume: FromID(f.Volume), Node: f.Node, Page: p}
}

// Backend is which publications are wanted, checked.
func (m *ListPublicationsRequest) Backend() (backend.PublicationFilter, backend.Page, error) {
	of, err := m.GetVolume().optional()
	return backend.PublicationFilter{Volume: of, Node: m.GetNode()}, m.GetPage().Backend(), firstOf(err, optionalNode(m.GetNode()))
}

// Backend is the node, checked.
func (m *FenceRequest) Backend() (string, error) {
	return m.GetNode(), backend.CheckNode(m.GetNode())
}

// Backend is the node, checked.
func (m *UnfenceRequest) Backend() (string, error) {
	return m.GetNode(), backend.CheckNode(m.GetNode())
}

func optionalNode(node string) error {
	if node == "" {
		return nil
	}
	return backend.CheckNode(node)
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
