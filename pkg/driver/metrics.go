package driver

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
)

// NewMetrics registers csi_mpath_rpc_seconds, and returns what Serve and
// Interceptor observe calls with.
func NewMetrics(r prometheus.Registerer) (func(method string, c codes.Code, took time.Duration), error) {
	calls := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "csi_mpath", Name: "rpc_seconds",
		Help: "CSI calls by method and gRPC code.", Buckets: []float64{.001, .005, .02, .1, .5, 1, 2, 5, 10, 30, 60, 120}}, []string{"method", "code"})
	return func(method string, c codes.Code, took time.Duration) {
		calls.WithLabelValues(method, c.String()).Observe(took.Seconds())
	}, r.Register(calls)
}
