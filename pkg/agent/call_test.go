package agent

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/csi-mpath/csi-mpath/pkg/agent/agentpb"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/backend/memory"
)

// counted is a backend that counts who asks it.
type counted struct {
	backend.Backend
	calls *atomic.Int64
}

func (c counted) CreateVolume(ctx context.Context, r backend.CreateVolume) (backend.Volume, error) {
	c.calls.Add(1)
	return c.Backend.CreateVolume(ctx, r)
}

// good are requests that are accepted as they are: one of each that has a field.
func good() map[string]proto.Message {
	id := &agentpb.ID{Pool: "fast", Object: "v-1"}
	page := &agentpb.Page{}
	return map[string]proto.Message{
		"CreateVolume": &agentpb.CreateVolumeRequest{Name: "pvc-1", Pool: "fast", Size: &agentpb.Size{Required: 1},
			Source: &agentpb.Source{Snapshot: id}},
		"GetVolume":      &agentpb.GetVolumeRequest{Id: id},
		"DeleteVolume":   &agentpb.DeleteVolumeRequest{Id: id},
		"ExpandVolume":   &agentpb.ExpandVolumeRequest{Id: id, Size: &agentpb.Size{Required: 1}},
		"TuneVolume":     &agentpb.TuneVolumeRequest{Id: id},
		"CreateSnapshot": &agentpb.CreateSnapshotRequest{Name: "s", Of: id},
		"GetSnapshot":    &agentpb.GetSnapshotRequest{Id: id},
		"DeleteSnapshot": &agentpb.DeleteSnapshotRequest{Id: id},
		"ListSnapshots":  &agentpb.ListSnapshotsRequest{Of: id, Page: page},
		"GetCapacity":    &agentpb.GetCapacityRequest{Pool: "fast"},
		"Publish": &agentpb.PublishRequest{Volume: id, Node: "n", Initiator: "iqn.2025-01.io.csi-mpath:n",
			Transport: agentpb.Transport_TRANSPORT_ISCSI},
		"Unpublish":        &agentpb.UnpublishRequest{Volume: id, Node: "n"},
		"ListPublications": &agentpb.ListPublicationsRequest{Volume: id, Node: "n", Page: page},
		"Fence":            &agentpb.FenceRequest{Node: "n"},
		"Unfence":          &agentpb.UnfenceRequest{Node: "n"},
	}
}

// anyText are fields that are no names: any text is right, or nearly.
var anyText = map[protoreflect.Name]bool{"name": true, "token": true}

// names calls f for each field of m that holds a name, with a function that sets
// it.
func names(m protoreflect.Message, f func(field string, set func(string))) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		switch {
		case fd.Kind() == protoreflect.StringKind && !fd.IsMap() && !anyText[fd.Name()]:
			f(string(fd.FullName()), func(s string) { m.Set(fd, protoreflect.ValueOfString(s)) })
		case fd.Kind() == protoreflect.MessageKind && !fd.IsMap() && m.Has(fd):
			names(m.Get(fd).Message(), f)
		}
	}
}

func TestPathsInEveryFieldAreRefusedBeforeTheBackendSeesThem(t *testing.T) {
	r := run(t, defaults(), func(*memory.Storage, string) backend.Backend { return nil }) // which nobody gets to
	conn := r.conn(r.client())
	tried := 0
	for verb := range good() {
		for _, hostile := range []string{"..", "../../etc/passwd", "/", "a/b", "a/../b", "./a", "a\x00b", "a\nb", " a", "-rf", strings.Repeat("a", 5000)} {
			count := 0
			names(good()[verb].ProtoReflect(), func(string, func(string)) { count++ })
			for i := range count {
				m, at, field := good()[verb], 0, ""
				names(m.ProtoReflect(), func(name string, set func(string)) {
					if at == i {
						field = name
						set(hostile)
					}
					at++
				})
				err := conn.Invoke(t.Context(), "/csimpath.agent.v1.Agent/"+verb, m, &agentpb.DeleteVolumeReply{})
				if got := agentpb.FromStatus(t.Context(), err); !errors.Is(got, backend.ErrInvalid) {
					t.Errorf("%s with %s %.40q: %v", verb, field, hostile, got)
				}
				if err != nil && len(err.Error()) > 500 {
					t.Errorf("%s: an error of %d bytes", verb, len(err.Error()))
				}
				tried++
			}
		}
	}
	if tried < 15*11 {
		t.Errorf("only %d tried", tried)
	}
}

func TestWhatIsTooLargeIsRefused(t *testing.T) {
	calls := &atomic.Int64{}
	r := run(t, defaults(), func(s *memory.Storage, tenant string) backend.Backend { return counted{s.For(tenant), calls} })
	c := r.dial(r.client())
	create := func(ctx context.Context, name string) codes.Code {
		_, err := c.CreateVolume(ctx, &agentpb.CreateVolumeRequest{Name: name, Pool: "fast", Size: &agentpb.Size{Required: 1}})
		return status.Code(err)
	}
	if code := create(t.Context(), strings.Repeat("x", agentpb.MaxRequest)); code != codes.ResourceExhausted {
		t.Errorf("a request: %v", code)
	}
	if code := create(t.Context(), strings.Repeat("x", backend.MaxName+1)); code != codes.InvalidArgument {
		t.Errorf("a name: %v", code)
	}
	if code := create(metadata.AppendToOutgoingContext(t.Context(), "x", strings.Repeat("x", 2*maxHeaders)), "a"); code == codes.OK {
		t.Errorf("metadata: %v", code)
	}
	if n := calls.Load(); n != 0 {
		t.Errorf("%d came through", n)
	}
	if code := create(t.Context(), "a"); code != codes.OK {
		t.Errorf("afterwards: %v", code)
	}
}

func TestARequestWithAFieldOfTheFutureIsRefused(t *testing.T) {
	r := run(t, defaults(), nil)
	m := &agentpb.FenceRequest{Node: "n"}
	m.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 77, protowire.VarintType), 1))
	_, err := r.dial(r.client()).Fence(t.Context(), m)
	if got := agentpb.FromStatus(t.Context(), err); !errors.Is(got, backend.ErrUnsupported) {
		t.Error(got)
	}
	if nodes, _ := r.storage.For("prod").Fenced(t.Context()); len(nodes) != 0 {
		t.Error("it was done all the same")
	}
}

func TestAnotherTenantsObjectsAreNotThere(t *testing.T) {
	r := run(t, defaults(), nil)
	theirs := r.storage.For("other")
	v, err := theirs.CreateVolume(t.Context(), backend.CreateVolume{Name: "a", Pool: "fast", Size: backend.Size{Required: 1}})
	if err != nil {
		t.Fatal(err)
	}
	c, id := r.dial(r.client()), agentpb.FromID(v.ID)
	if _, err := c.GetVolume(t.Context(), &agentpb.GetVolumeRequest{Id: id}); status.Code(err) != codes.NotFound {
		t.Error(err)
	}
	if _, err := c.Publish(t.Context(), &agentpb.PublishRequest{Volume: id, Node: "n", Initiator: "iqn.x", Transport: agentpb.Transport_TRANSPORT_ISCSI}); status.Code(err) != codes.NotFound {
		t.Error(err)
	}
	if _, err := c.DeleteVolume(t.Context(), &agentpb.DeleteVolumeRequest{Id: id}); err != nil {
		t.Error(err)
	}
	if l, err := c.ListVolumes(t.Context(), &agentpb.ListVolumesRequest{}); err != nil || len(l.GetVolumes()) != 0 {
		t.Error(l, err)
	}
	if _, err := theirs.Volume(t.Context(), v.ID); err != nil {
		t.Errorf("deleted by a stranger: %v", err)
	}
}

// faulty is a backend that fails in every way.
type faulty struct {
	backend.Backend
	held chan struct{} // Unpublish is running
}

func (f faulty) DeleteVolume(context.Context, backend.ID) error { panic("a fault: hunter2") }

func (f faulty) Publish(context.Context, backend.Publish) (backend.Connection, error) {
	return backend.Connection{}, &backend.InUse{Object: "fast.v-1", Node: "other", Why: "published"}
}

func (f faulty) Unpublish(ctx context.Context, _ backend.ID, _ string) error {
	if f.held != nil {
		close(f.held)
	}
	<-ctx.Done()
	return ctx.Err()
}

func TestAPanicIsOneCallsAndNobodyElses(t *testing.T) {
	r := run(t, defaults(), func(s *memory.Storage, tenant string) backend.Backend { return faulty{Backend: s.For(tenant)} })
	c := r.dial(r.client())
	_, err := c.DeleteVolume(t.Context(), &agentpb.DeleteVolumeRequest{Id: &agentpb.ID{Pool: "fast", Object: "v-1"}})
	if status.Code(err) != codes.Internal || strings.Contains(err.Error(), "hunter2") {
		t.Error(err)
	}
	if _, err := c.GetInfo(t.Context(), &agentpb.GetInfoRequest{}); err != nil {
		t.Error(err)
	}
	if r.metric("csi_mpath_agent_panics_total") != 1 || !strings.Contains(r.log.String(), "call_test.go") {
		t.Errorf("not counted, or without its place: %s", r.log)
	}
}

func TestACallEndsAtTheServersDeadline(t *testing.T) {
	lim := defaults()
	lim.call = 50 * time.Millisecond
	r := run(t, lim, func(s *memory.Storage, tenant string) backend.Backend { return faulty{Backend: s.For(tenant)} })
	_, err := r.dial(r.client()).Unpublish(t.Context(), &agentpb.UnpublishRequest{Volume: &agentpb.ID{Pool: "fast", Object: "v-1"}})
	if status.Code(err) != codes.DeadlineExceeded || !errors.Is(agentpb.FromStatus(t.Context(), err), backend.ErrUnavailable) {
		t.Error(err)
	}
}

// Long: every changing verb.
func TestEveryChangeIsOneLineInTheAuditLog(t *testing.T) {
	r := run(t, defaults(), nil)
	c := r.dial(r.client())
	ctx := metadata.AppendToOutgoingContext(t.Context(), agentpb.RequestID, "req-1")
	v, err := c.CreateVolume(ctx, &agentpb.CreateVolumeRequest{Name: "pvc-1", Pool: "fast", Size: &agentpb.Size{Required: 1}})
	if err != nil {
		t.Fatal(err)
	}
	id, object := v.GetId(), v.GetId().Backend().String()
	s, err := c.CreateSnapshot(ctx, &agentpb.CreateSnapshotRequest{Name: "snap", Of: id})
	if err != nil {
		t.Fatal(err)
	}
	secret := &agentpb.Auth{Chap: &agentpb.Chap{User: "user-1", Secret: "hunter2hunter2", MutualUser: "m", MutualSecret: "swordfish"}}
	c.ExpandVolume(ctx, &agentpb.ExpandVolumeRequest{Id: id, Size: &agentpb.Size{Required: 2 << 20}})
	c.TuneVolume(ctx, &agentpb.TuneVolumeRequest{Id: id, Tunables: map[string]string{"a": "b"}})
	c.Publish(ctx, &agentpb.PublishRequest{Volume: id, Node: "n1", Initiator: "iqn.x:n1", Transport: agentpb.Transport_TRANSPORT_ISCSI, Auth: secret})
	c.Publish(ctx, &agentpb.PublishRequest{Volume: id, Node: "n2", Initiator: "iqn.x:n2", Transport: agentpb.Transport_TRANSPORT_ISCSI, Auth: secret})
	c.Unpublish(ctx, &agentpb.UnpublishRequest{Volume: id, Node: "n1"})
	c.Fence(ctx, &agentpb.FenceRequest{Node: "n1"})
	c.Unfence(ctx, &agentpb.UnfenceRequest{Node: "n1"})
	c.DeleteSnapshot(ctx, &agentpb.DeleteSnapshotRequest{Id: s.GetId()})
	c.DeleteVolume(ctx, &agentpb.DeleteVolumeRequest{Id: id})
	c.GetVolume(ctx, &agentpb.GetVolumeRequest{Id: id}) // changes nothing
	c.ListFenced(ctx, &agentpb.ListFencedRequest{})
	want := [][4]string{
		{"CreateVolume", object, "", "ok"}, {"CreateSnapshot", s.GetId().Backend().String(), "", "ok"}, {"ExpandVolume", object, "", "ok"},
		{"TuneVolume", object, "", "ok"}, {"Publish", object, "n1", "ok"}, {"Publish", object, "n2", "in_use"}, {"Unpublish", object, "n1", "ok"},
		{"Fence", "", "n1", "ok"}, {"Unfence", "", "n1", "ok"}, {"DeleteSnapshot", s.GetId().Backend().String(), "", "ok"}, {"DeleteVolume", object, "", "ok"},
	}
	lines := r.log.audits(t)
	if len(lines) != len(want) {
		t.Fatalf("%d lines, want %d:\n%s", len(lines), len(want), r.log)
	}
	for i, w := range want {
		l := lines[i]
		if got := [4]string{l["verb"].(string), l["object"].(string), l["node"].(string), l["outcome"].(string)}; got != w {
			t.Errorf("line %d: %v, want %v", i, got, w)
		}
		if l["tenant"] != "prod" || l["request"] != "req-1" || l["seconds"] == nil {
			t.Errorf("line %d: %v", i, l)
		}
	}
	for _, s := range []string{"hunter2", "swordfish"} {
		if strings.Contains(r.log.String(), s) {
			t.Error("a secret is in the log")
		}
	}
	if n := r.metric("csi_mpath_agent_call_duration_seconds", "OK", "Fence"); n != 1 {
		t.Errorf("%v calls of Fence counted", n)
	}
}

func TestARequestIDThatMayNotBeLoggedIsReplaced(t *testing.T) {
	r := run(t, defaults(), nil)
	c := r.dial(r.client())
	for _, id := range []string{"", "a b", "a\"b", "ä", strings.Repeat("x", agentpb.MaxRequestID+1)} {
		c.Unfence(metadata.AppendToOutgoingContext(t.Context(), agentpb.RequestID, id), &agentpb.UnfenceRequest{Node: "n"})
	}
	for i, l := range r.log.audits(t) {
		if id, _ := l["request"].(string); !validRequestID(id) || len(id) < 20 {
			t.Errorf("%d: %q", i, id)
		}
	}
}

func TestShutdownWaitsForCallsAndEndsWatches(t *testing.T) {
	f := faulty{held: make(chan struct{})}
	r := run(t, defaults(), func(s *memory.Storage, tenant string) backend.Backend { f.Backend = s.For(tenant); return f })
	c := r.dial(r.client())
	w, err := c.WatchEvents(t.Context(), &agentpb.WatchEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Header(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := c.Unpublish(ctx, &agentpb.UnpublishRequest{Volume: &agentpb.ID{Pool: "fast", Object: "v-1"}})
		ended <- err
	}()
	<-f.held
	down := make(chan struct{})
	go func() { r.Shutdown(context.Background()); close(down) }()
	if _, err := w.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the watch: %v", err)
	}
	select {
	case <-down:
		t.Error("it did not wait for a call")
	default:
	}
	cancel()
	<-ended
	<-down
}

func TestAnIdleConnectionIsClosed(t *testing.T) {
	lim := defaults()
	lim.idle = 100 * time.Millisecond
	r := run(t, lim, nil)
	c := r.dial(r.client())
	for range 2 { // a client comes back by itself
		if _, err := c.GetInfo(t.Context(), &agentpb.GetInfoRequest{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "nobody connected", func() bool { _, open := r.gate.counts(); return open == 0 })
	}
}

func TestAConnectionCarriesOnlySoManyCalls(t *testing.T) {
	lim := defaults()
	lim.streams = 2
	r := run(t, lim, nil)
	c := r.dial(r.client())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range lim.streams {
		w, err := c.WatchEvents(ctx, &agentpb.WatchEventsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Header(); err != nil {
			t.Fatal(err)
		}
	}
	soon, end := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer end()
	if _, err := c.GetInfo(soon, &agentpb.GetInfoRequest{}); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("one more: %v", err)
	}
	cancel()
	if _, err := c.GetInfo(t.Context(), &agentpb.GetInfoRequest{}); err != nil {
		t.Errorf("when there is room: %v", err)
	}
}
