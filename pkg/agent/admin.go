package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/agent/keeper"
	"github.com/csi-mpath/csi-mpath/pkg/agent/store"
)

// Admin answers commands on the agent's own machine, over a unix socket that is
// root's: about all tenants, and read-only.
type Admin struct {
	Figures
	Version string
	Orphans func(ctx context.Context) ([]keeper.Orphan, error)
	// Connections of clients now; nil is not told.
	Connections func() int
}

// Connections are those of authenticated clients now.
func (s *Server) Connections() int {
	_, open := s.gate.counts()
	return open
}

// Status is how an agent is.
type Status struct {
	Version     string
	Started     time.Time
	Connections int
	Problems    []string
	Stats       keeper.Stats
	Pools       map[string]store.Usage
}

// Problems are what an operator should look at.
func (f Figures) Problems(ctx context.Context) (out []string) {
	s := f.Stats()
	if s.Failing > 0 {
		out = append(out, fmt.Sprintf("%d volumes could not be exported as they should be: see the log", s.Failing))
	}
	if s.Unreadable > 0 {
		out = append(out, fmt.Sprintf("%d files of the journal cannot be read: see 'csi-mpath agent orphans'", s.Unreadable))
	}
	usage, err := f.Usage(ctx)
	if err != nil {
		out = append(out, cut(err.Error()))
	}
	for pool, u := range usage {
		switch {
		case u.Full:
			out = append(out, fmt.Sprintf("pool %s is full: extend it, or delete volumes", pool))
		case u.Filling:
			out = append(out, fmt.Sprintf("pool %s is above its mark: nothing is created in it", pool))
		}
	}
	slices.Sort(out)
	return out
}

// Serve answers on l until ctx ends.
func (a Admin) Serve(ctx context.Context, l net.Listener) error {
	started := time.Now()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, r *http.Request) {
		st := Status{Version: a.Version, Started: started, Problems: a.Problems(r.Context()), Stats: a.Stats()}
		if a.Connections != nil {
			st.Connections = a.Connections()
		}
		var err error
		st.Pools, err = a.Usage(r.Context())
		reply(w, st, err)
	})
	mux.HandleFunc("GET /orphans", func(w http.ResponseWriter, r *http.Request) {
		all, err := a.Orphans(r.Context())
		reply(w, all, err)
	})
	return serveHTTP(ctx, l, mux)
}

// reply sends v. What is known is sent with an error, too: which pool does not
// answer is among the problems.
func reply(w http.ResponseWriter, v any, err error) {
	if _, status := v.(Status); err != nil && !status {
		http.Error(w, cut(err.Error()), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

// serveHTTP serves until ctx ends.
func serveHTTP(ctx context.Context, l net.Listener, h http.Handler) error {
	srv := &http.Server{Handler: h, ReadTimeout: metricsTimeout, WriteTimeout: 3 * metricsTimeout, IdleTimeout: time.Minute, MaxHeaderBytes: maxHeaders}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Ask asks the agent that serves this socket for "status" or "orphans".
func Ask(ctx context.Context, socket, what string, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, 3*metricsTimeout)
	defer cancel()
	t := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	defer t.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent/"+what, nil)
	if err != nil {
		return err
	}
	resp, err := t.RoundTrip(req)
	if err != nil {
		return fmt.Errorf("no agent answers on %s: %w", socket, err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAdmin))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the agent on %s: %s: %.512s", socket, resp.Status, b)
	}
	return json.Unmarshal(b, answer)
}
