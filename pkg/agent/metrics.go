package agent

import (
	"context"
	"errors"
	"net"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/csi-mpath/csi-mpath/pkg/agent/keeper"
	"github.com/csi-mpath/csi-mpath/pkg/agent/store"
)

// namespace is what all names of metrics begin with.
const namespace = "csi_mpath_agent"

// metrics are what the server itself counts.
type metrics struct {
	calls   *prometheus.HistogramVec
	refused *prometheus.CounterVec
	panics  prometheus.Counter
}

func newMetrics(r prometheus.Registerer, s *Server) (*metrics, error) {
	m := &metrics{
		calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: "call_duration_seconds",
			Help: "Calls by verb and gRPC code.", Buckets: []float64{.001, .005, .02, .1, .5, 1, 2, 5, 10, 30, 60, 300}}, []string{"verb", "code"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: "connections_refused_total",
			Help: "Connections that were not let in: handshake (certificate, TLS), rate, or evicted by newer ones before they had authenticated."},
			[]string{"reason"}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: "panics_total", Help: "Calls that failed by a fault of the agent."}),
	}
	if r == nil {
		return m, nil
	}
	var errs []error
	for _, c := range []prometheus.Collector{m.calls, m.refused, m.panics,
		gaugeOf("connections", "Connections of authenticated clients.", func() float64 { _, n := s.gate.counts(); return float64(n) }),
		gaugeOf("connections_pending", "Connections that have not authenticated yet.", func() float64 { n, _ := s.gate.counts(); return float64(n) }),
		gaugeOf("certificate_expires_timestamp_seconds", "When the server's certificate runs out.", func() float64 {
			return float64(s.ids.Identity().Cert.Leaf.NotAfter.Unix())
		}),
	} {
		errs = append(errs, r.Register(c))
	}
	return m, errors.Join(errs...)
}

func gaugeOf(name, help string, f func() float64) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, f)
}

// Figures are what metrics say about the storage: a keeper's.
type Figures struct {
	Stats func() keeper.Stats
	Usage func(ctx context.Context) (map[string]store.Usage, error)
}

// figure is one metric without labels.
type figure struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(keeper.Stats) float64
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(namespace+"_"+name, help, labels, nil)
}

var (
	figures = []figure{
		{desc("volumes_exported", "Volumes that are published."), prometheus.GaugeValue, func(s keeper.Stats) float64 { return float64(s.Volumes) }},
		{desc("publications", "Publications of volumes to nodes."), prometheus.GaugeValue, func(s keeper.Stats) float64 { return float64(s.Publications) }},
		{desc("publications_revoking", "Publications whose revocation has not ended."), prometheus.GaugeValue, func(s keeper.Stats) float64 { return float64(s.Revoking) }},
		{desc("sessions", "Nodes at portals."), prometheus.GaugeValue, func(s keeper.Stats) float64 { return float64(s.Sessions) }},
		{desc("nodes_fenced", "Nodes that an operator fenced."), prometheus.GaugeValue, func(s keeper.Stats) float64 { return float64(s.Fenced) }},
		{desc("journal_unreadable", "Files of the journal that cannot be read."), prometheus.GaugeValue, func(s keeper.Stats) float64 { return float64(s.Unreadable) }},
		{desc("exports_failing", "Volumes that were not as they should be in the last reconciliation."), prometheus.GaugeValue, func(s keeper.Stats) float64 { return float64(s.Failing) }},
		{desc("exports_repaired_total", "Exports that were not as they should be, and are again."), prometheus.CounterValue, func(s keeper.Stats) float64 { return float64(s.Repairs) }},
		{desc("reconciliations_total", "Reconciliations."), prometheus.CounterValue, func(s keeper.Stats) float64 { return float64(s.Reconciles) }},
		{desc("reconciliation_seconds", "How long the last reconciliation took."), prometheus.GaugeValue, func(s keeper.Stats) float64 { return s.LastReconcile.Seconds() }},
		{desc("watchers", "Clients that watch events."), prometheus.GaugeValue, func(s keeper.Stats) float64 { return float64(s.Watchers) }},
		{desc("events_lost_total", "Events that slow watchers lost."), prometheus.CounterValue, func(s keeper.Stats) float64 { return float64(s.EventsLost) }},
	}
	orphansDesc  = desc("orphans", "Things of ours that nothing refers to, by kind.", "kind")
	poolDesc     = desc("pool_bytes", "Space of a pool: total and used are physical, promised is the sum of its volumes, available may still be promised.", "pool", "of")
	metadataDesc = desc("pool_metadata_ratio", "How full the pool's own tables are.", "pool")
	stateDesc    = desc("pool_state", "1 while the pool is filling (creations are refused) or full (writes fail or wait).", "pool", "state")
	answersDesc  = desc("pools_answer", "1 if every pool could be asked for its space.")
)

// Describe lists nothing: which pools there are turns out when they are asked.
func (Figures) Describe(chan<- *prometheus.Desc) {}

// Collect asks the keeper.
func (f Figures) Collect(out chan<- prometheus.Metric) {
	stats := f.Stats()
	for _, g := range figures {
		out <- prometheus.MustNewConstMetric(g.desc, g.kind, g.value(stats))
	}
	for kind, n := range stats.Orphans {
		out <- gauge(orphansDesc, float64(n), string(kind))
	}
	ctx, cancel := context.WithTimeout(context.Background(), metricsTimeout)
	defer cancel()
	usage, err := f.Usage(ctx)
	out <- gauge(answersDesc, truth(err == nil))
	for pool, u := range usage {
		for of, n := range map[string]int64{"total": u.Total, "used": u.Used, "promised": u.Promised, "available": u.Available} {
			out <- gauge(poolDesc, float64(n), pool, of)
		}
		out <- gauge(metadataDesc, u.Metadata, pool)
		out <- gauge(stateDesc, truth(u.Filling), pool, "filling")
		out <- gauge(stateDesc, truth(u.Full), pool, "full")
	}
}

func gauge(d *prometheus.Desc, v float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// ServeMetrics answers /metrics on l until ctx ends.
func ServeMetrics(ctx context.Context, l net.Listener, from prometheus.Gatherer) error {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(from, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 2 * metricsTimeout}))
	return serveHTTP(ctx, l, mux)
}
