// Package agent is the storage-host agent's service: backends, one for each
// tenant, over gRPC and mutual TLS.
//
// A client is the tenant that its certificate names, and sees that tenant's
// objects only. Everything that a stranger, or a client gone mad, can make the
// server hold has a bound (limits.go). Every call that changes something is one
// line in the audit log.
package agent

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/csi-mpath/csi-mpath/pkg/agent/agentpb"
	"github.com/csi-mpath/csi-mpath/pkg/agent/pki"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// Config is what a server needs.
type Config struct {
	// For is what a tenant sees.
	For func(tenant string) backend.Backend
	// TLS are the server's certificate and key, and the authorities of clients. They
	// are read again when they change.
	TLS     pki.Files
	Version string
	// Problems are what is wrong with the storage now, for people; nil: nothing is
	// known.
	Problems func(ctx context.Context) []string
	// Log is told of refused connections and failures, Audit of every call that
	// changes something; nil is nobody.
	Log, Audit *slog.Logger
	// Metrics are registered here; nil: there are none.
	Metrics prometheus.Registerer
}

// Server serves until Shutdown.
type Server struct {
	agentpb.UnimplementedAgentServer

	cfg     Config
	lim     limits
	log     *slog.Logger
	audit   *slog.Logger
	gate    *gate
	ids     *pki.Source
	grpc    *grpc.Server
	metrics *metrics
	quiet   quiet
	started time.Time

	stopping chan struct{} // closed when watches shall end
	stop     sync.Once
}

// New makes a server, and reads its certificates.
func New(cfg Config) (*Server, error) { return newServer(cfg, defaults()) }

func newServer(cfg Config, lim limits) (*Server, error) {
	s := &Server{cfg: cfg, lim: lim, log: orNobody(cfg.Log), audit: orNobody(cfg.Audit), gate: newGate(lim), started: time.Now(),
		stopping: make(chan struct{})}
	s.quiet.every = lim.quiet
	var err error
	if s.ids, err = pki.Open(cfg.TLS, func(err error) { s.log.Error("certificates", "error", err) }); err != nil {
		return nil, err
	}
	if s.metrics, err = newMetrics(cfg.Metrics, s); err != nil {
		return nil, err
	}
	s.grpc = grpc.NewServer(s.options()...)
	agentpb.RegisterAgentServer(s.grpc, s)
	return s, nil
}

func orNobody(l *slog.Logger) *slog.Logger {
	if l == nil {
		return slog.New(slog.DiscardHandler)
	}
	return l
}

func (s *Server) options() []grpc.ServerOption {
	l := s.lim
	return []grpc.ServerOption{
		grpc.Creds(&door{ids: s.ids, gate: s.gate, refused: s.refused}),
		grpc.ConnectionTimeout(l.handshake),
		grpc.MaxConcurrentStreams(l.streams),
		grpc.InitialWindowSize(streamWindow),
		grpc.InitialConnWindowSize(connWindow),
		grpc.MaxRecvMsgSize(agentpb.MaxRequest),
		grpc.MaxSendMsgSize(agentpb.MaxReply),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle: l.idle, MaxConnectionAge: l.age, MaxConnectionAgeGrace: l.grace, Time: l.ping, Timeout: l.pong,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: l.pings, PermitWithoutStream: true}),
		grpc.UnaryInterceptor(s.unary),
		grpc.StreamInterceptor(s.stream),
		grpc.WaitForHandlers(true),
	}
}

// Serve accepts clients until Shutdown, and closes l.
func (s *Server) Serve(l net.Listener) error {
	err := s.grpc.Serve(&listener{Listener: l, gate: s.gate, refused: s.refused})
	if errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return err
}

// Shutdown ends watches, refuses new calls, and returns when those that run have
// ended: by themselves, or, when ctx ends, because their contexts do.
func (s *Server) Shutdown(ctx context.Context) {
	s.stop.Do(func() { close(s.stopping) })
	done := make(chan struct{})
	go func() {
		s.grpc.GracefulStop()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		s.grpc.Stop()
		<-done
	}
}

// refused counts and logs a connection that was not let in.
func (s *Server) refused(reason string, from net.Addr, err error) {
	s.metrics.refused.WithLabelValues(reason).Inc()
	more, tell := s.quiet.tell(reason, time.Now())
	if !tell {
		return
	}
	args := []any{"reason", reason, "from", from.String(), "more", more}
	if err != nil {
		args = append(args, "error", cut(err.Error()))
	}
	s.log.Warn("connection refused", args...)
}

// quiet keeps strangers from filling the log.
type quiet struct {
	every time.Duration

	mu     sync.Mutex
	last   map[string]time.Time
	missed map[string]int
}

// tell reports whether to log now, and how many of the kind were not logged.
// Kinds are few, and ours.
func (q *quiet) tell(kind string, now time.Time) (missed int, yes bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.last == nil {
		q.last, q.missed = map[string]time.Time{}, map[string]int{}
	}
	if last, ok := q.last[kind]; ok && now.Sub(last) < q.every {
		q.missed[kind]++
		return 0, false
	}
	missed = q.missed[kind]
	q.last[kind], q.missed[kind] = now, 0
	return missed, true
}

// cut bounds a text for the log.
func cut(s string) string {
	if len(s) > maxLogged {
		return s[:maxLogged] + "..."
	}
	return s
}
