// Command sandbox runs a program in namespaces of its own, as the tests of a real
// Kubernetes do: nothing that the program starts, mounts or configures outlives it.
//
//	sandbox -net -clean DIR -- e2e.test        the machine
//	sandbox -bind SRC:DST -tmpfs /run -- sh    one node in it
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
)

// inside says to this program that it is process 1 of its namespaces.
const inside = "CSI_MPATH_SANDBOX_INSIDE"

// options of one sandbox.
type options struct {
	net    bool
	clean  string
	binds  list
	tmpfs  list
	script []string
}

// list is a flag that may be given several times.
type list []string

func (l *list) String() string     { return strings.Join(*l, " ") }
func (l *list) Set(s string) error { *l = append(*l, s); return nil }

func main() {
	var o options
	flag.BoolVar(&o.net, "net", false, "a network of its own")
	flag.StringVar(&o.clean, "clean", "", "make this directory, and remove it, its cgroups and its loop devices at the end")
	flag.Var(&o.binds, "bind", "SRC:DST: mount a file or directory of the outside somewhere else")
	flag.Var(&o.tmpfs, "tmpfs", "mount an empty file system here")
	flag.Parse()
	o.script = flag.Args()
	run := first
	if os.Getenv(inside) == "" {
		run = outside
	}
	code, err := run(o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "sandbox:", err)
	}
	os.Exit(code)
}

// outside starts this program again, in the namespaces, and cleans up after it.
func outside(o options) (int, error) {
	if o.clean != "" {
		if err := os.MkdirAll(o.clean, 0o755); err != nil {
			return 1, err
		}
		defer tidy(o.clean)
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS}
	if o.net {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWNET
	}
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP)
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	go func() {
		<-told // the end of process 1 is the end of all
		_ = cmd.Process.Kill()
	}()
	err := cmd.Wait()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return max(exit.ExitCode(), 1), nil
	}
	return 0, err
}

// first is process 1: it mounts what was asked for, runs the program, and waits for
// every process that lost its parent.
func first(o options) (int, error) {
	if err := o.mount(); err != nil {
		return 1, err
	}
	if err := os.Unsetenv(inside); err != nil {
		return 1, err
	}
	path, err := exec.LookPath(o.script[0])
	if err != nil {
		return 1, err
	}
	pid, err := syscall.ForkExec(path, o.script, &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}})
	if err != nil {
		return 1, fmt.Errorf("start %s: %w", path, err)
	}
	for {
		var status syscall.WaitStatus
		switch got, err := syscall.Wait4(-1, &status, 0, nil); {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return 1, err
		case got == pid && status.Signaled():
			return 128 + int(status.Signal()), nil
		case got == pid:
			return status.ExitStatus(), nil
		}
	}
}

// mount makes the mounts private, mounts what was asked for, and has whoever comes
// later share them, as the kubelet wants it.
func (o options) mount() error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := syscall.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	for _, at := range o.tmpfs {
		if err := syscall.Mount("tmpfs", at, "tmpfs", 0, "mode=0755"); err != nil {
			return fmt.Errorf("mount a tmpfs at %s: %w", at, err)
		}
	}
	for _, b := range o.binds {
		src, dst, _ := strings.Cut(b, ":")
		if err := place(src, dst); err != nil {
			return err
		}
		if err := syscall.Mount(src, dst, "", syscall.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s at %s: %w", src, dst, err)
		}
	}
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_SHARED, ""); err != nil {
		return fmt.Errorf("share mounts: %w", err)
	}
	return nil
}

// place makes the directory that a directory is to be mounted at.
func place(src, dst string) error {
	if info, err := os.Stat(src); err != nil || !info.IsDir() {
		return err
	}
	return os.MkdirAll(dst, 0o755)
}
