package agentclient_test

import (
	"bytes"
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/agent"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

func TestTheAuditLogNamesTheRequestThatACallIsPartOf(t *testing.T) {
	dir := certificates(t)
	var log bytes.Buffer
	s, err := agent.New(agent.Config{For: twin(pool).For, TLS: files(dir, "server"), Audit: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	c := connect(t, dir, l.Addr().String(), "mine")
	for _, id := range []string{"a1b2c3", ""} {
		if err := c.Unfence(backend.WithRequestID(t.Context(), id), "node"); err != nil {
			t.Error(err)
		}
	}
	s.Shutdown(t.Context())
	if err := <-done; err != nil {
		t.Error(err)
	}
	if text := log.String(); strings.Count(text, "a1b2c3") != 1 || strings.Count(text, "\n") != 2 || strings.Contains(text, `request=""`) {
		t.Errorf("the audit log has %s", text)
	}
}
