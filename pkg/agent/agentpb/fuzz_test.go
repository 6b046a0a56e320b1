package agentpb

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// hostileNames are what every field that holds a name is tried with.
var hostileNames = []string{"..", "../../etc/passwd", "a/b", "/", "a\x00b", "a\nb", "A", "-", "%2e%2e"}

func seedRequests(f *testing.F) {
	id := &ID{Pool: "fast", Object: "v-1"}
	for i, m := range []proto.Message{
		&CreateVolumeRequest{Name: "pvc-1", Pool: "fast", Size: &Size{Required: 1 << 30}, Tunables: map[string]string{"a": "b"}},
		&TuneVolumeRequest{Id: id, Tunables: map[string]string{"a": "b"}},
		&ExpandVolumeRequest{Id: id, Size: &Size{Required: 1}},
		&PublishRequest{Volume: id, Node: "n", Initiator: "iqn.x", Transport: Transport_TRANSPORT_ISCSI, Auth: &Auth{Chap: &Chap{User: "u", Secret: "s"}}},
		&ListPublicationsRequest{Volume: id, Node: "n", Page: &Page{Token: "t", Max: 3}},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(byte(i), b)
	}
	for _, n := range hostileNames {
		if b, err := proto.Marshal(&PublishRequest{Volume: &ID{Pool: n, Object: n}, Node: n, Initiator: n}); err == nil {
			f.Add(byte(3), b)
		}
	}
}

// Whatever bytes come, a request that is accepted has only names in it.
func FuzzRequests(f *testing.F) {
	seedRequests(f)
	f.Fuzz(func(t *testing.T, which byte, b []byte) {
		for i, m := range []proto.Message{&CreateVolumeRequest{}, &TuneVolumeRequest{}, &ExpandVolumeRequest{}, &PublishRequest{},
			&ListPublicationsRequest{}, &CreateSnapshotRequest{}, &ListSnapshotsRequest{}, &UnpublishRequest{}, &GetCapacityRequest{}, &FenceRequest{}} {
			if i == int(which) && proto.Unmarshal(b, m) == nil {
				_ = Known(m)
				checkRequest(t, m)
			}
		}
	})
}

// Long: one case for each request.
func checkRequest(t *testing.T, m proto.Message) {
	var ids []backend.ID
	var err, again error
	node := ""
	switch m := m.(type) {
	case *CreateVolumeRequest:
		var r backend.CreateVolume
		r, err = m.Backend()
		again = r.Check()
	case *TuneVolumeRequest:
		var id backend.ID
		id, _, err = m.Backend()
		ids = append(ids, id)
	case *ExpandVolumeRequest:
		var id backend.ID
		id, _, err = m.Backend()
		ids = append(ids, id)
	case *PublishRequest:
		var r backend.Publish
		r, err = m.Backend()
		node, again = r.Node, r.Check()
		ids = append(ids, r.Volume)
	case *ListPublicationsRequest:
		var p backend.PublicationFilter
		p, _, err = m.Backend()
		node = p.Node
	case *CreateSnapshotRequest:
		var r backend.CreateSnapshot
		r, err = m.Backend()
		again = r.Check()
	case *ListSnapshotsRequest:
		_, _, err = m.Backend()
	case *UnpublishRequest:
		var id backend.ID
		id, node, err = m.Backend()
		ids = append(ids, id)
	case *GetCapacityRequest:
		_, err = m.Backend()
	case *FenceRequest:
		_, err = m.Backend()
	}
	if err != nil {
		return
	}
	for _, id := range ids {
		again = firstOf(again, id.Check())
	}
	if again = firstOf(again, optionalNode(node)); again != nil {
		t.Fatalf("%T was accepted: %v", m, again)
	}
}

// Whatever an agent answers, what is believed survives another trip.
func FuzzReplies(f *testing.F) {
	for i, m := range []proto.Message{
		FromVolume(backend.Volume{ID: backend.ID{Pool: "fast", Object: "v-1"}, Size: 1, Content: backend.ContentBlank}),
		FromConnection(backend.Connection{Transport: backend.ISCSI, Portals: []backend.Portal{{Address: "192.0.2.1:3260", Group: 1}}}),
		FromEvent(backend.Event{Kind: backend.PoolFull, Pool: "fast"}),
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(byte(i), b)
	}
	f.Fuzz(func(t *testing.T, which byte, b []byte) {
		switch which % 4 {
		case 0:
			again(t, b, &Volume{}, (*Volume).Backend, FromVolume)
		case 1:
			again(t, b, &Connection{}, (*Connection).Backend, FromConnection)
		case 2:
			again(t, b, &Event{}, (*Event).Backend, FromEvent)
		case 3:
			again(t, b, &Publication{}, (*Publication).Backend, FromPublication)
		}
	})
}

func again[M proto.Message, T any](t *testing.T, b []byte, m M, back func(M) (T, error), to func(T) M) {
	t.Helper()
	if proto.Unmarshal(b, m) != nil {
		return
	}
	v, err := back(m)
	if err != nil {
		return
	}
	if _, err := back(to(v)); err != nil {
		t.Fatalf("%T: %v the second time", v, err)
	}
}
