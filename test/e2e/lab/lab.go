// Package lab is a Kubernetes cluster on this machine, of real programs: etcd, API
// server, controller manager, scheduler, and two nodes with containerd and kubelet,
// each in namespaces of its own. Beside it is a storage host, csi-mpath agent, at two
// networks that can be switched off.
//
// It runs below test/e2e/sandbox, which takes everything away at the end.
package lab

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-mpath/csi-mpath/test/child"
)

// Lab is running.
type Lab struct {
	t   testing.TB
	Dir string // of everything that the cluster keeps; removed by the sandbox
	Bin string // Kubernetes' programs, and ours for tests
	Own string // the csi-mpath that the storage host runs
	Out string // what people would see, and logs of a failure

	Kube    kubernetes.Interface
	Dynamic dynamic.Interface
	Nodes   []*Node

	daemons map[string]*child.Child
	tokens  map[string]string
}

// Start starts a cluster without a driver. Of its parts that end, the test is told at
// its end.
func Start(t testing.TB) *Lab {
	t.Helper()
	l := &Lab{t: t, Dir: need(t, "E2E_DIR"), Bin: need(t, "E2E_BIN"), Own: need(t, "CSI_MPATH_BIN"), Out: need(t, "E2E_OUT"),
		daemons: map[string]*child.Child{}, tokens: map[string]string{}}
	l.must(os.MkdirAll(l.Out, 0o755))
	t.Cleanup(l.end)
	l.network()
	for i, name := range []string{"node-1", "node-2"} {
		l.Nodes = append(l.Nodes, l.newNode(name, i+1))
	}
	l.controlPlane()
	for _, n := range l.Nodes {
		n.start()
	}
	l.storage()
	l.load()
	return l
}

// need is a variable of the environment that make e2e sets.
func need(t testing.TB, name string) string {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		t.Fatalf("%s is not set: these tests run as `make e2e`", name)
	}
	return v
}

func (l *Lab) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l *Lab) path(elem ...string) string {
	return filepath.Join(append([]string{l.Dir}, elem...)...)
}

// run runs a program that ends by itself, and returns what it printed.
func (l *Lab) run(name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s %s: %w: %s", filepath.Base(name), strings.Join(args, " "), err, out)
	}
	return string(out), err
}

// do is run that has to succeed.
func (l *Lab) do(name string, args ...string) string {
	l.t.Helper()
	out, err := l.run(name, args...)
	l.must(err)
	return out
}

// daemon starts a program that runs until the end, with its output in a file.
func (l *Lab) daemon(name, program string, args ...string) *child.Child {
	l.t.Helper()
	log, err := os.OpenFile(l.path(name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	l.must(err)
	c, err := child.Start(child.Options{Stdout: log, Stderr: log}, program, args...)
	l.must(err)
	l.daemons[name] = c
	return c
}

// Until waits until f returns no error, at most for limit, and fails the test with
// the last error and what was waited for.
func (l *Lab) Until(what string, limit time.Duration, f func() error) {
	l.t.Helper()
	late := time.After(limit)
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-late:
			l.t.Fatalf("waited %v for %s: %v", limit, what, err)
		}
	}
}

// Within has what f does fail in a test of its own.
func (l *Lab) Within(t testing.TB, f func()) {
	before := l.t
	l.t = t
	defer func() { l.t = before }()
	f()
}

// end says which parts ended too early, and after a failure leaves their logs.
func (l *Lab) end() {
	for name, c := range l.daemons {
		if !c.Alive() {
			l.t.Errorf("%s ended before the test did: %v", name, c.Wait())
		}
	}
	if l.t.Failed() {
		l.leave()
	}
	for _, n := range l.Nodes {
		n.Kill()
	}
}
