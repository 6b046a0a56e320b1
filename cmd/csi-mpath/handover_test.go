package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
)

// TestOneNodePluginServesAtATime: the next one gets the state directory when the one
// before has ended, and one that is told to end while it waits ends.
func TestOneNodePluginServesAtATime(t *testing.T) {
	f := &nodeFlags{state: t.TempDir()}
	release, err := f.hold("node.lock")
	if err != nil || release == nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	file := filepath.Join(f.state, "node.lock")
	if r, err := lockOrEnd(ctx, file); r != nil || err != nil {
		t.Errorf("who is told to end: %v", err)
	}
	got := make(chan error)
	go func() {
		r, err := lockOrEnd(t.Context(), filepath.Join(f.state, "other.lock"))
		if r != nil {
			r()
		}
		got <- err
	}()
	if err := <-got; err != nil {
		t.Errorf("a lock that is free: %v", err)
	}
	release()
}

func TestASocketCarriesItsPodsNameAndDeadOnesGo(t *testing.T) {
	dir, err := os.MkdirTemp("", "rg") // short: it is in a socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	f := &nodeFlags{registration: dir, pod: "new"}
	if got := f.registrationSocket(); got != dir+"/csi-mpath.io-new-reg.sock" {
		t.Error(got)
	}
	listen := func(name string) *net.UnixListener {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, name)})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	dead, other := listen("csi-mpath.io-old-reg.sock"), listen("other.io-reg.sock")
	listen("csi-mpath.io-live-reg.sock")
	_, _ = dead.Close(), other.Close()
	sweepSockets(dir, f.registrationSocket())
	left, _ := filepath.Glob(filepath.Join(dir, "*"))
	if len(left) != 2 || filepath.Base(left[0]) != "csi-mpath.io-live-reg.sock" || filepath.Base(left[1]) != "other.io-reg.sock" {
		t.Errorf("left: %v", left)
	}
}

func TestTheClustersNameOutlivesTheProcess(t *testing.T) {
	f := &nodeFlags{state: t.TempDir(), kubeconfig: "/nowhere"}
	if err := f.identify(t.Context()); err == nil {
		t.Error("a name from nowhere")
	}
	if err := os.WriteFile(f.clusterFile(), []byte("6f2e"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := f.identify(t.Context()); err != nil || f.cluster != "6f2e" {
		t.Errorf("%q, %v", f.cluster, err)
	}
}
