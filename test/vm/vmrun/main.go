// Command vmrun runs a program, usually a test binary, in a virtual machine with
// a Linux kernel of its own, and exits with its exit code:
//
//	go test -tags vm -exec "vmrun -k 6.12 -mods nbd,ext4" ./test/vm
//	vmrun -k 6.12 -fetch
//
// The machine sees the host's files at their usual paths. What it writes stays
// in its memory, except below the folders given with -rw. A file vmrun.flags in
// the working directory, which is the tests' package, has more flags. It needs no root and
// no disk image. Exit code 125: the machine itself failed (panic, oops, hang,
// timeout), and the end of the kernel's log is on standard error.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// exitMachine is the exit code when not the program but the machine failed.
const exitMachine = 125

// flagsFile, in the working directory, has more flags, which win: a package of
// tests that wants another machine says so there ("-m 512").
const flagsFile = "vmrun.flags"

type options struct {
	kernel, mods, rw, init, logDir, kargs string
	memory, cpus                          int
	timeout                               time.Duration
	fetch                                 bool
	args                                  []string
}

func main() {
	o, err := parse(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "vmrun:", err)
		os.Exit(exitMachine)
	}
	code, err := perform(o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "vmrun:", err)
		code = exitMachine
	}
	os.Exit(code)
}

func parse(args []string) (*options, error) {
	o := &options{}
	f := flag.NewFlagSet("vmrun", flag.ContinueOnError)
	f.StringVar(&o.kernel, "k", "6.12", "kernel `version`, as in Debian's linux-image-VERSION…")
	f.IntVar(&o.memory, "m", 1024, "memory, `MiB`")
	f.IntVar(&o.cpus, "smp", 2, "`CPUs`")
	f.StringVar(&o.mods, "mods", "", "comma-separated `modules` to load, each NAME[:PARAM=VALUE…]")
	f.StringVar(&o.rw, "rw", "", "comma-separated `folders` of the host that the program may write")
	f.StringVar(&o.init, "init", "", "the vminit `binary` (default: beside vmrun)")
	f.StringVar(&o.logDir, "logdir", "", "`folder` that keeps the kernel's log as PROGRAM-VERSION.log")
	f.StringVar(&o.kargs, "append", "", "more kernel `arguments`")
	f.DurationVar(&o.timeout, "timeout", 0, "limit of the whole run (default: -test.timeout and a bit, or 10m)")
	f.BoolVar(&o.fetch, "fetch", false, "only download and unpack the kernel, once")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	o.args = f.Args()
	own, err := os.ReadFile(flagsFile)
	if err == nil {
		err = f.Parse(strings.Fields(string(own)))
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", flagsFile, err)
	}
	if len(o.args) == 0 && !o.fetch {
		return nil, errors.New("no program given: vmrun [flags] PROGRAM [ARGUMENTS]")
	}
	if o.timeout == 0 {
		o.timeout = defaultTimeout(o.args)
	}
	return o, nil
}

// defaultTimeout ends the machine after the test binary's own limit, which has
// the better diagnosis, and before go test kills vmrun (a minute after it).
func defaultTimeout(args []string) time.Duration {
	for _, a := range args {
		if v, ok := strings.CutPrefix(a, "-test.timeout="); ok {
			if d, err := time.ParseDuration(v); err == nil && d > 0 {
				return d + afterTestTimeout
			}
		}
	}
	return noTestTimeout
}

func perform(o *options) (int, error) {
	c, err := openCache()
	if err != nil {
		return 0, err
	}
	if o.fetch {
		k, err := c.fetch(o.kernel)
		if err == nil {
			fmt.Printf("vmrun: kernel %s is in %s\n", k.release, k.dir)
		}
		return 0, err
	}
	k, err := c.kernel(o.kernel)
	if err != nil {
		return 0, err
	}
	if o.init == "" {
		self, err := os.Executable()
		if err != nil {
			return 0, err
		}
		o.init = filepath.Join(filepath.Dir(self), "vminit")
	}
	r, err := c.newRun()
	if err != nil {
		return 0, err
	}
	defer r.remove()
	return r.run(o, k)
}
