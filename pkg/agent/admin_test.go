package agent

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/csi-mpath/csi-mpath/pkg/agent/keeper"
	"github.com/csi-mpath/csi-mpath/pkg/agent/store"
)

// figures are of a keeper with one of everything.
func figuresOf(stats keeper.Stats, usage map[string]store.Usage, err error) Figures {
	return Figures{Stats: func() keeper.Stats { return stats }, Usage: func(context.Context) (map[string]store.Usage, error) { return usage, err }}
}

func TestMetricsSayWhatTheKeeperSays(t *testing.T) {
	f := figuresOf(keeper.Stats{Volumes: 3, Publications: 5, Revoking: 1, Sessions: 8, Repairs: 2, Orphans: map[keeper.OrphanKind]int{keeper.OrphanExport: 4}},
		map[string]store.Usage{"fast": {Total: 100, Used: 90, Promised: 300, Available: 7, Metadata: .5, Filling: true}}, nil)
	r := prometheus.NewPedanticRegistry()
	if err := r.Register(f); err != nil {
		t.Fatal(err)
	}
	want := `# HELP csi_mpath_agent_orphans Things of ours that nothing refers to, by kind.
# TYPE csi_mpath_agent_orphans gauge
csi_mpath_agent_orphans{kind="export"} 4
# HELP csi_mpath_agent_exports_repaired_total Exports that were not as they should be, and are again.
# TYPE csi_mpath_agent_exports_repaired_total counter
csi_mpath_agent_exports_repaired_total 2
# HELP csi_mpath_agent_pool_state 1 while the pool is filling (creations are refused) or full (writes fail or wait).
# TYPE csi_mpath_agent_pool_state gauge
csi_mpath_agent_pool_state{pool="fast",state="filling"} 1
csi_mpath_agent_pool_state{pool="fast",state="full"} 0
# HELP csi_mpath_agent_sessions Nodes at portals.
# TYPE csi_mpath_agent_sessions gauge
csi_mpath_agent_sessions 8
`
	err := testutil.GatherAndCompare(r, strings.NewReader(want), "csi_mpath_agent_orphans", "csi_mpath_agent_exports_repaired_total",
		"csi_mpath_agent_pool_state", "csi_mpath_agent_sessions")
	if err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(r); err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
}

func TestAPoolThatDoesNotAnswerIsAMetricAndAProblem(t *testing.T) {
	f := figuresOf(keeper.Stats{}, map[string]store.Usage{"fast": {Full: true}}, errors.New("pool slow: no answer"))
	r := prometheus.NewRegistry()
	r.MustRegister(f)
	if err := testutil.GatherAndCompare(r, strings.NewReader(`# HELP csi_mpath_agent_pools_answer 1 if every pool could be asked for its space.
# TYPE csi_mpath_agent_pools_answer gauge
csi_mpath_agent_pools_answer 0
`), "csi_mpath_agent_pools_answer"); err != nil {
		t.Error(err)
	}
	if all := strings.Join(f.Problems(t.Context()), "\n"); !strings.Contains(all, "pool slow: no answer") || !strings.Contains(all, "pool fast is full") {
		t.Error(all)
	}
}

func TestMetricsAreServed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := prometheus.NewRegistry()
	r.MustRegister(figuresOf(keeper.Stats{Publications: 5}, nil, nil))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- ServeMetrics(ctx, l, r) }()
	resp, err := http.Get("http://" + l.Addr().String() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, err := io.ReadAll(resp.Body); err != nil || !strings.Contains(string(b), "csi_mpath_agent_publications 5\n") {
		t.Errorf("%v\n%s", err, b)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// admin serves on a unix socket.
func admin(t *testing.T, a Admin) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "a")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return socket
}

func TestCommandsOnTheSameMachineAreAnswered(t *testing.T) {
	a := Admin{Figures: figuresOf(keeper.Stats{Publications: 5, Unreadable: 1}, map[string]store.Usage{"fast": {Total: 9}}, nil), Version: "v1",
		Connections: func() int { return 2 },
		Orphans: func(context.Context) ([]keeper.Orphan, error) {
			return []keeper.Orphan{{Kind: keeper.OrphanExport, Name: "x"}}, nil
		}}
	socket := admin(t, a)
	var st Status
	if err := Ask(t.Context(), socket, "status", &st); err != nil || st.Stats.Publications != 5 || st.Pools["fast"].Total != 9 || st.Connections != 2 ||
		len(st.Problems) != 1 {
		t.Errorf("%v %+v", err, st)
	}
	var all []keeper.Orphan
	if err := Ask(t.Context(), socket, "orphans", &all); err != nil || len(all) != 1 || all[0].Name != "x" {
		t.Errorf("%v %+v", err, all)
	}
	if err := Ask(t.Context(), socket, "secrets", &all); err == nil || !strings.Contains(err.Error(), "404") {
		t.Error(err)
	}
}

func TestAnAgentThatCannotAnswerSaysSo(t *testing.T) {
	socket := admin(t, Admin{Figures: figuresOf(keeper.Stats{}, nil, nil),
		Orphans: func(context.Context) ([]keeper.Orphan, error) { return nil, errors.New("pool fast: no answer") }})
	var all []keeper.Orphan
	if err := Ask(t.Context(), socket, "orphans", &all); err == nil || !strings.Contains(err.Error(), "pool fast: no answer") {
		t.Error(err)
	}
	if err := Ask(t.Context(), socket+"x", "orphans", &all); err == nil || !strings.Contains(err.Error(), "no agent answers") {
		t.Error(err)
	}
}
