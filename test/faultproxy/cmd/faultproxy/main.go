// Command faultproxy stands between a client and a target and breaks their
// connections on command. See package faultproxy.
package main

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/csi-mpath/csi-mpath/test/faultproxy"
)

func main() {
	if err := run(); err != nil && !errors.Is(err, faultproxy.ErrQuit) {
		fmt.Fprintln(os.Stderr, "faultproxy:", err)
		os.Exit(1)
	}
}

func run() error {
	listen := flag.String("listen", "127.0.0.1:0", "address to listen on")
	target := flag.String("target", "", "address to forward to (required)")
	control := flag.String("control", "", "unix socket for commands (default: standard input)")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: faultproxy --target HOST:PORT [flags]")
		flag.PrintDefaults()
		fmt.Fprintln(flag.CommandLine.Output(), faultproxy.Help)
	}
	flag.Parse()
	if *target == "" || flag.NArg() > 0 {
		flag.Usage()
		return errors.New("--target is required, and nothing but flags")
	}
	p, err := faultproxy.Listen(*listen, *target)
	if err != nil {
		return err
	}
	defer func() { _ = p.Close() }()
	fmt.Println("listening", p.Addr())
	if *control == "" {
		return p.Serve(os.Stdin, os.Stdout)
	}
	return serveUnix(p, *control)
}

// serveUnix takes commands from one client of a unix socket at a time, until
// quit or a signal.
func serveUnix(p *faultproxy.Proxy, path string) error {
	l, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	go func() { <-stop; _ = l.Close() }()
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		err = p.Serve(c, c)
		_ = c.Close()
		if errors.Is(err, faultproxy.ErrQuit) {
			_ = l.Close()
			return err
		}
	}
}
