package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/device"
	"github.com/csi-mpath/csi-mpath/pkg/nbd"
	"github.com/csi-mpath/csi-mpath/pkg/supervise"
)

// worker holds one open volume and what serves it.
type worker struct {
	f       *attachFlags
	dev     *device.Device
	srv     *nbd.Server
	block   *device.BlockDevice // nil without --device
	show    *display
	signals chan os.Signal
	beat    *supervise.Beat
}

// serve runs until a signal, a failure or somebody's detach, then ends in
// reverse order.
func (w *worker) serve(l net.Listener) error {
	w.srv = nbd.NewServer(map[string]nbd.Export{w.dev.Name(): w.dev}, nbd.Config{}, func(client string, err error) {
		w.show.line("NBD client %s: %v", client, err)
	})
	failed := make(chan error, 1)
	if l != nil {
		go func() { failed <- w.srv.Serve(context.Background(), l) }()
	}
	if err := w.attach(); err != nil {
		return errors.Join(err, w.end(nil))
	}
	w.show.ready(w.dev, w.places())
	w.beat.Ready()
	stop := make(chan struct{})
	go w.beat.Run(stop, func() { w.dev.Status() })
	defer close(stop)
	var why os.Signal
	var err error
	select {
	case why = <-w.signals:
		w.show.line("stopping: answering what is in flight (a second signal ends it at once)")
	case <-w.gone():
		w.show.line("the block device was detached")
	case err = <-failed:
	}
	return errors.Join(err, w.end(why))
}

// attach makes the block device, if one is wanted.
func (w *worker) attach() error {
	if w.f.block == "" {
		return nil
	}
	index, err := w.f.index()
	if err != nil {
		return usage(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), w.f.openTimeout)
	defer cancel()
	if w.block, err = w.dev.Attach(ctx, w.srv, index); err != nil {
		return &exitError{exitFailure, err}
	}
	for _, warning := range w.block.Warnings() {
		w.show.line("warning: %s: %s", w.block.Path(), warning)
	}
	if w.block.Found {
		w.show.line("took over %s from the process before", w.block.Path())
	}
	return nil
}

func (w *worker) gone() <-chan struct{} {
	if w.block == nil {
		return nil
	}
	return w.block.Gone()
}

// places says where the volume is to be found.
func (w *worker) places() (out []string) {
	if w.block != nil {
		out = append(out, w.block.Path())
	}
	if w.f.socket != "" {
		out = append(out, "nbd+unix:///?socket="+w.f.socket)
	}
	return out
}

// end stops in reverse order. why is the signal, if one was the reason.
func (w *worker) end(why os.Signal) error {
	w.show.stop()
	ctx, cancel := context.WithTimeout(context.Background(), w.f.shutdownTime)
	defer cancel()
	go func() {
		select {
		case <-w.signals:
			cancel()
		case <-ctx.Done():
		}
	}()
	err := errors.Join(unsettled(w.release(ctx, why)), unsettled(w.srv.Drain(ctx)), unsettled(w.dev.Close(ctx)))
	if w.f.stats {
		printStats(w.show.out, w.srv.Stats(), w.dev.Status())
	}
	if err == nil {
		w.show.line("detached %s", w.dev.Name())
	}
	return err
}

// release removes the block device, or leaves it to the next attach.
func (w *worker) release(ctx context.Context, why os.Signal) error {
	switch {
	case w.block == nil:
	case !w.block.Stays():
		if err := w.block.Detach(ctx); err != nil {
			w.show.line("%v; it ends all the same, with I/O errors", err)
			return errors.Join(err, w.block.Leave(ctx))
		}
	case why == syscall.SIGINT:
		if err := w.block.Detach(ctx); err != nil {
			w.show.line("%v; it stays and waits for the next attach of %s", err, w.dev.Name())
			w.dev.Keep()
		}
	case why != nil:
		w.dev.Keep()
		w.show.line("%s stays and waits for the next attach; 'csi-mpath detach %s' removes it", w.block.Path(), w.dev.Name())
	}
	return nil
}

func unsettled(err error) error {
	if err == nil {
		return nil
	}
	return &exitError{exitUnsettle, err}
}

// listenUnix listens on a unix socket that only this user may use. A socket
// left by a dead process is replaced; anything else in the way is not touched.
func listenUnix(path string) (net.Listener, error) {
	if len(path) > 107 {
		return nil, fmt.Errorf("socket %s is longer than the 107 bytes a unix socket's path may have", path)
	}
	st, err := os.Lstat(path)
	switch {
	case err == nil && st.Mode()&os.ModeSocket == 0:
		return nil, fmt.Errorf("socket %s exists and is no socket: choose another path", path)
	case err == nil:
		if c, err := net.DialTimeout("unix", path, time.Second); err == nil {
			_ = c.Close()
			return nil, fmt.Errorf("socket %s is served by another process: choose another path", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("--socket: %w", err)
		}
	}
	old := syscall.Umask(0o177)
	l, err := net.Listen("unix", path)
	syscall.Umask(old)
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	return l, nil
}
