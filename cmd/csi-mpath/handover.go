package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/csi-mpath/csi-mpath/pkg/cluster"
	"github.com/csi-mpath/csi-mpath/pkg/driver"
	"github.com/csi-mpath/csi-mpath/pkg/durable"
)

// Of two node plugins with one state directory, which an upgrade has for a moment,
// one serves: the other waits, without a socket and without a port, until the first
// has ended. So nobody is ever without a program image on the node (I8).

// hold waits until this process alone has a file of the state directory. It returns
// nil if it is told to end before.
func (f *nodeFlags) hold(name string) (release func(), err error) {
	if err := durable.Own(f.state); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	file := filepath.Join(f.state, name)
	release, err = durable.Lock(file, true)
	if !errors.Is(err, durable.ErrLocked) {
		return release, err
	}
	klog.InfoS("another node plugin serves: waiting for its end", "lock", file)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	return lockOrEnd(ctx, file)
}

// lockOrEnd waits for a lock until ctx ends; then it is nil, and the wait goes on for
// nobody.
func lockOrEnd(ctx context.Context, file string) (release func(), err error) {
	type result struct {
		release func()
		err     error
	}
	got := make(chan result, 1)
	go func() {
		release, err := durable.Lock(file, false)
		got <- result{release, err}
	}()
	select {
	case r := <-got:
		return r.release, r.err
	case <-ctx.Done():
		return nil, nil
	}
}

// clusterFile keeps the cluster's name for a process that starts while the API server
// is away.
func (f *nodeFlags) clusterFile() string { return filepath.Join(f.state, "cluster") }

// identify finds out which cluster this is, if nobody said so.
func (f *nodeFlags) identify(ctx context.Context) error {
	if f.cluster != "" {
		return nil
	}
	text, err := durable.Read(f.clusterFile(), maxClusterName)
	if err == nil && len(text) > 0 {
		f.cluster = string(text)
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	client, err := cluster.Connect(f.kubeconfig, "csi-mpath-node/"+version)
	if err != nil {
		return err
	}
	if f.cluster, err = cluster.UID(ctx, client); err != nil {
		return err
	}
	return durable.Write(f.clusterFile(), []byte(f.cluster))
}

// maxClusterName bounds the file of a cluster's name, bytes.
const maxClusterName = 256

// registrationSocket is where the kubelet finds this pod: another pod's socket is
// another one, so that each removes its own.
func (f *nodeFlags) registrationSocket() string {
	name := driver.Name + "-reg.sock"
	if f.pod != "" {
		name = driver.Name + "-" + f.pod + "-reg.sock"
	}
	return filepath.Join(f.registration, name)
}

// sweepSockets removes what pods that were killed left in the kubelet's directory.
// Whoever holds the state directory's lock is the only one of ours who may listen, and
// a socket that answers is left alone all the same.
func sweepSockets(dir, own string) {
	found, _ := filepath.Glob(filepath.Join(dir, driver.Name+"*-reg.sock"))
	for _, s := range found {
		if s == own || !strings.HasPrefix(filepath.Base(s), driver.Name) {
			continue
		}
		c, err := net.Dial("unix", s)
		if err == nil {
			_ = c.Close()
			continue
		}
		if errors.Is(err, unix.ECONNREFUSED) {
			klog.InfoS("the socket of a pod that is gone is removed", "socket", s, "error", os.Remove(s))
		}
	}
}
