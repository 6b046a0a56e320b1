// Command nbdram serves memory over NBD: our front end alone, for comparison
// with other servers' memory backends.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	_ "net/http/pprof" // only with -pprof
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/nbd"
	"github.com/csi-mpath/csi-mpath/pkg/nbd/nbdtest"
)

func main() {
	socket := flag.String("socket", "", "unix socket to listen on")
	size := flag.Uint64("size", 1<<30, "size of the device, bytes")
	block := flag.Uint("block", 512, "block size of the device, bytes")
	pprof := flag.String("pprof", "", "address of the profiler, none when empty")
	flag.Parse()
	if *pprof != "" {
		go func() { _ = http.ListenAndServe(*pprof, nil) }()
	}
	if err := run(*socket, *size, uint32(*block)); err != nil {
		fmt.Fprintln(os.Stderr, "nbdram:", err)
		os.Exit(1)
	}
}

func run(socket string, size uint64, block uint32) error {
	ram, err := nbdtest.NewRAM(size, block)
	if err != nil {
		return err
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return fmt.Errorf("listen on -socket: %w", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	s := nbd.NewServer(map[string]nbd.Export{"ram": ram}, nbd.Config{}, func(client string, err error) {
		fmt.Fprintln(os.Stderr, "nbdram:", client, err)
	})
	go func() {
		<-ctx.Done()
		limit, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = s.Drain(limit)
	}()
	err = s.Serve(context.Background(), l)
	report(s)
	if errors.Is(err, nbd.ErrDraining) {
		return nil
	}
	return err
}

// report prints what requirement "0 allocations, few system calls" is judged by.
func report(s *nbd.Server) {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	t := s.Stats()
	n := float64(max(t.Requests, 1))
	fmt.Printf("requests %d, receive calls %.3f, send calls %.3f per request, mallocs %.5f per request, numgc %d\n",
		t.Requests, float64(t.Recvs)/n, float64(t.Sends)/n, float64(m.Mallocs)/n, m.NumGC)
}
