package agent

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"path"
	"runtime/debug"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/csi-mpath/csi-mpath/pkg/agent/agentpb"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// call is one call, from its first byte to its line in the audit log.
type call struct {
	s       *Server
	verb    string
	tenant  string
	request string // its identifier
	began   time.Time
}

// backendKey is where a call's context has the tenant's backend.
type backendKey struct{}

// storage is the backend of the call's tenant.
func storage(ctx context.Context) backend.Backend {
	b, _ := ctx.Value(backendKey{}).(backend.Backend)
	return b
}

// begin finds out who calls.
func (s *Server) begin(ctx context.Context, method string) (*call, context.Context, error) {
	c := &call{s: s, verb: path.Base(method), began: time.Now(), request: requestID(ctx)}
	who, err := callerOf(ctx, c.began)
	if err != nil {
		return c, ctx, err
	}
	c.tenant = who.tenant
	return c, context.WithValue(ctx, backendKey{}, s.cfg.For(who.tenant)), nil
}

// requestID is the client's name for the call, or one of ours if it gave none, or
// none that may be logged.
func requestID(ctx context.Context) string {
	if v := metadata.ValueFromIncomingContext(ctx, agentpb.RequestID); len(v) == 1 && validRequestID(v[0]) {
		return v[0]
	}
	return strings.ToLower(rand.Text())
}

func validRequestID(id string) bool {
	if id == "" || len(id) > agentpb.MaxRequestID {
		return false
	}
	return !strings.ContainsFunc(id, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-'
	})
}

// unary runs one call: who, how long, what came of it.
func (s *Server) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (reply any, err error) {
	c, ctx, err := s.begin(ctx, info.FullMethod)
	defer func() {
		err = c.end(recover(), err)
		c.tell(req, reply, err)
	}()
	if err != nil {
		return nil, err
	}
	if m, ok := req.(proto.Message); ok {
		if err := agentpb.Known(m); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, s.lim.call)
	defer cancel()
	return handler(ctx, req)
}

// stream runs one call that lasts.
func (s *Server) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	c, ctx, err := s.begin(ss.Context(), info.FullMethod)
	defer func() {
		err = c.end(recover(), err)
		c.observe(err)
	}()
	if err != nil {
		return err
	}
	return handler(srv, &tenantStream{ss, ctx})
}

// tenantStream is a stream with the context of begin.
type tenantStream struct {
	grpc.ServerStream
	ctx context.Context //nolint:containedctx // what ServerStream is
}

// Context has the tenant's backend.
func (t *tenantStream) Context() context.Context { return t.ctx }

// end is the error that the client gets. A panic is one, too: it is this call's,
// and nobody else's.
func (c *call) end(panicked any, err error) error {
	if panicked != nil {
		c.s.metrics.panics.Inc()
		c.s.log.Error("panic", "verb", c.verb, "tenant", c.tenant, "request", c.request, "panic", cut(fmt.Sprint(panicked)), "stack", string(debug.Stack()))
		return status.Errorf(codes.Internal, "the agent failed in %s, request %s: see its log", c.verb, c.request)
	}
	if _, already := status.FromError(err); err == nil || already {
		return err
	}
	return agentpb.Status(err).Err()
}

// observe counts the call.
func (c *call) observe(err error) {
	c.s.metrics.calls.WithLabelValues(c.verb, status.Code(err).String()).Observe(time.Since(c.began).Seconds())
}

// tell counts the call, and writes its audit line if it changed something, or
// wanted to.
func (c *call) tell(req, reply any, err error) {
	c.observe(err)
	t, mutating := touched(req, reply)
	if !mutating {
		return
	}
	args := []slog.Attr{
		slog.String("tenant", c.tenant), slog.String("request", c.request), slog.String("verb", c.verb),
		slog.String("object", cut(t.object)), slog.String("node", cut(t.node)), slog.String("outcome", outcome(err)),
		slog.Float64("seconds", time.Since(c.began).Seconds()),
	}
	if t.name != "" {
		args = append(args, slog.String("name", cut(t.name)))
	}
	level := slog.LevelInfo
	if err != nil {
		level = slog.LevelWarn
		args = append(args, slog.String("error", cut(status.Convert(err).Message())))
	}
	c.s.audit.LogAttrs(context.Background(), level, "audit", args...)
}

// outcome is "ok", or which error it was.
func outcome(err error) string {
	if err == nil {
		return "ok"
	}
	for _, d := range status.Convert(err).Details() {
		if d, ok := d.(*agentpb.ErrorDetail); ok {
			return strings.ToLower(d.GetKind().String())
		}
	}
	return strings.ToLower(status.Code(err).String())
}

// touch is what a call is about.
type touch struct{ object, node, name string }

// touched says what a call changes; false: nothing. It never looks at secrets
// (I10).
func touched(req, reply any) (touch, bool) {
	of := func(id *agentpb.ID) string {
		if id == nil {
			return ""
		}
		return id.Backend().String()
	}
	switch r := req.(type) {
	case *agentpb.CreateVolumeRequest:
		v, _ := reply.(*agentpb.Volume)
		return touch{object: of(v.GetId()), name: r.GetName()}, true
	case *agentpb.CreateSnapshotRequest:
		v, _ := reply.(*agentpb.Snapshot)
		return touch{object: of(v.GetId()), name: r.GetName()}, true
	case *agentpb.DeleteVolumeRequest:
		return touch{object: of(r.GetId())}, true
	case *agentpb.DeleteSnapshotRequest:
		return touch{object: of(r.GetId())}, true
	case *agentpb.ExpandVolumeRequest:
		return touch{object: of(r.GetId())}, true
	case *agentpb.TuneVolumeRequest:
		return touch{object: of(r.GetId())}, true
	case *agentpb.PublishRequest:
		return touch{object: of(r.GetVolume()), node: r.GetNode()}, true
	case *agentpb.UnpublishRequest:
		return touch{object: of(r.GetVolume()), node: r.GetNode()}, true
	case *agentpb.FenceRequest:
		return touch{node: r.GetNode()}, true
	case *agentpb.UnfenceRequest:
		return touch{node: r.GetNode()}, true
	}
	return touch{}, false
}
