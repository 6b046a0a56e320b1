// Command ramtgt serves memory over iSCSI, and over NVMe/TCP if asked to: the
// embedded target as a process of its own, the same for every initiator that is
// compared.
package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	_ "net/http/pprof" // only with -pprof
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/csi-mpath/csi-mpath/pkg/target"
	"github.com/csi-mpath/csi-mpath/pkg/target/subsystem"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:3260", "address of the portal")
	name := flag.String("name", target.DefaultName, "iSCSI name of the target")
	size := flag.Uint64("size", 1<<30, "size of LUN 0, bytes")
	nvme := flag.String("nvme-tcp", "", "address of the portal over NVMe/TCP to the same memory, as namespace 1; none when empty")
	nqn := flag.String("nqn", subsystem.DefaultName, "NQN of the subsystem")
	pprof := flag.String("pprof", "", "address of the profiler, none when empty")
	flag.Parse()
	if *pprof != "" {
		go func() { _ = http.ListenAndServe(*pprof, nil) }()
	}
	if err := run(*listen, *name, *nvme, *nqn, *size); err != nil {
		fmt.Fprintln(os.Stderr, "ramtgt:", err)
		os.Exit(1)
	}
}

func run(listen, name, nvme, nqn string, size uint64) error {
	ram := target.NewRAM(size)
	if err := touch(ram); err != nil {
		return err
	}
	s, err := target.New(target.Config{Name: name, LUNs: []target.LUN{{Store: ram}}})
	if err != nil {
		return err
	}
	if _, err := s.Listen(listen); err != nil {
		return err
	}
	if nvme != "" {
		n, err := subsystem.New(subsystem.Config{Name: nqn, Namespaces: []subsystem.Namespace{{ID: 1, Store: ram}}})
		if err == nil {
			_, err = n.Listen(nvme)
		}
		if err != nil {
			return err
		}
		defer func() { _ = n.Close() }()
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	<-ctx.Done()
	err = s.Close()
	report(s.Stats())
	return err
}

// touch writes every page: memory never written reads from one page of zeroes
// that is always in the cache.
func touch(ram *target.RAM) error {
	part := make([]byte, 1<<20)
	for i := range part {
		part[i] = byte(i>>12 + i)
	}
	for at := uint64(0); at < ram.Size(); at += uint64(len(part)) {
		if err := ram.WriteAt(part[:min(uint64(len(part)), ram.Size()-at)], at); err != nil {
			return err
		}
	}
	return nil
}

func report(t target.Stats) {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	fmt.Printf("commands %d, mallocs %.5f per command, numgc %d\n",
		t.Commands, float64(m.Mallocs)/float64(max(t.Commands, 1)), m.NumGC)
}
