package cluster

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const kubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://192.0.2.1:6443"}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
users: [{name: u, user: {token: "marked"}}]
current-context: x
`

func TestAKubeconfigNamesTheCluster(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config")
	must(t, os.WriteFile(file, []byte(kubeconfig), 0o600))
	if c, err := Connect(file, "x"); err != nil || c == nil {
		t.Errorf("got %v, %v", c, err)
	}
	must(t, os.WriteFile(file, []byte("clusters: 7\ntoken: marked"), 0o600))
	if _, err := Connect(file, "x"); err == nil || !strings.Contains(err.Error(), file) || strings.Contains(err.Error(), "marked") {
		t.Errorf("got %v", err)
	}
}

func TestOutsideOfAClusterThereIsNone(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	if _, err := Connect("", "x"); !errors.Is(err, ErrNone) {
		t.Errorf("got %v", err)
	}
}
