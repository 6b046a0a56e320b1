package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/datapath"
	"github.com/csi-mpath/csi-mpath/pkg/device"
	"github.com/csi-mpath/csi-mpath/pkg/nbd"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
)

// Product is the role under test: devices with an NBD server each, as attach
// has them.
type Product struct {
	up   atomic.Int64 // paths live
	mu   sync.Mutex
	devs []*device.Device

	profile *os.File // of Record
}

// Wanted is what to open.
type Wanted struct {
	Storage
	Dir string // state files and sockets
}

// socketOf is where volume i is served.
func socketOf(dir string, i int) string { return filepath.Join(dir, fmt.Sprintf("v%d", i)) }

// openTimeout bounds the opening of all volumes at once.
const openTimeout = 2 * time.Minute

// Open opens all volumes at once and serves them.
func (p *Product) Open(w Wanted, took *time.Duration) error {
	start := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	errs := make([]error, len(w.Targets))
	var wg sync.WaitGroup
	for i := range w.Targets {
		wg.Go(func() { errs[i] = p.openOne(ctx, w, i) })
	}
	wg.Wait()
	*took = time.Since(start)
	return errors.Join(errs...)
}

func (p *Product) openOne(ctx context.Context, w Wanted, i int) error {
	lun, err := scsi.ParseLUN("1")
	if err != nil {
		return err
	}
	d, err := device.Open(ctx, device.Config{Name: fmt.Sprintf("v%d", i), Portals: w.Portals,
		Protocol: device.ISCSI{Target: w.Targets[i], LUN: lun, Initiator: "iqn.2026-01.test:scale-host"}, NoPathTimeout: datapath.Never, StateDir: w.Dir, Events: p.event})
	if err != nil {
		return err
	}
	l, err := net.Listen("unix", socketOf(w.Dir, i))
	if err != nil {
		return err
	}
	srv := nbd.NewServer(map[string]nbd.Export{d.Name(): d}, nbd.Config{}, nil)
	go func() { _ = srv.Serve(context.Background(), l) }()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.devs = append(p.devs, d)
	return nil
}

func (p *Product) event(e datapath.Event) {
	switch e.Kind {
	case datapath.PathUp:
		p.up.Add(1)
	case datapath.PathDown:
		p.up.Add(-1)
	case datapath.PathIdentityMismatch:
		fmt.Fprintf(os.Stderr, "product: %+v\n", e)
	}
}

// Live counts the paths that are live.
func (p *Product) Live(_ struct{}, n *int) error { //nolint:unparam // net/rpc wants it
	*n = int(p.up.Load())
	return nil
}

// Inside is what the process knows of itself.
type Inside struct {
	HeapAlloc, HeapInuse, HeapReleased, StackInuse uint64 // bytes
	Goroutines                                     int
	Logins                                         device.LoginStats
}

// Look reads Inside. It does not collect garbage: a process does not stop for us.
func (p *Product) Look(_ struct{}, in *Inside) error { //nolint:unparam // net/rpc wants it
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	*in = Inside{HeapAlloc: m.HeapAlloc, HeapInuse: m.HeapInuse, HeapReleased: m.HeapReleased, StackInuse: m.StackInuse,
		Goroutines: runtime.NumGoroutine(), Logins: device.ProcessLogins()}
	return nil
}

// Record writes a CPU profile of the time until the next call, with an empty
// path.
func (p *Product) Record(path string, _ *struct{}) error {
	if path == "" {
		pprof.StopCPUProfile()
		return p.profile.Close()
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	p.profile = f
	return pprof.StartCPUProfile(f)
}

// Profile writes a heap profile.
func (p *Product) Profile(path string, _ *struct{}) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	runtime.GC()
	return errors.Join(pprof.Lookup("heap").WriteTo(f, 0), f.Close())
}
