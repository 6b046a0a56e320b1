package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/rpc"
	"os"
	"path/filepath"
	"time"

	"github.com/csi-mpath/csi-mpath/test/child"
)

// roles are the objects that a child process of ours serves, by the word that
// follows roleFlag on its command line.
var roles = map[string]func() any{
	"target":  func() any { return &Target{} },
	"product": func() any { return &Product{} },
}

const roleFlag = "--role"

// runRole serves a role on the socket the arguments name, and reports whether
// they named one.
func runRole(args []string) bool {
	if len(args) != 3 || args[0] != roleFlag || roles[args[1]] == nil {
		return false
	}
	l, err := net.Listen("unix", args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	s := rpc.NewServer()
	if err := s.RegisterName("Role", roles[args[1]]()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	s.Accept(l) // for ever: the parent ends us
	return true
}

// role is a child process and the way to call it.
type role struct {
	name string
	proc *child.Child
	rpc  *rpc.Client
}

// startRole starts this very program in another role.
func startRole(ctx context.Context, name, dir string) (*role, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	socket := filepath.Join(dir, name+".rpc")
	r := &role{name: name}
	if r.proc, err = child.Start(child.Options{Stderr: os.Stderr}, self, roleFlag, name, socket); err != nil {
		return nil, err
	}
	err = until(ctx, 30*time.Second, name+" to listen", func() bool {
		c, err := net.Dial("unix", socket)
		if err == nil {
			r.rpc = rpc.NewClient(c)
		}
		return err == nil || !r.proc.Alive()
	})
	if err == nil && r.rpc == nil {
		err = r.proc.Wait()
	}
	if err != nil {
		r.proc.Kill()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return r, nil
}

// call calls a method of the role.
func (r *role) call(method string, args, reply any) error {
	if err := r.rpc.Call("Role."+method, args, reply); err != nil {
		return fmt.Errorf("%s %s: %w", r.name, method, err)
	}
	return nil
}

func (r *role) stop() {
	if r != nil {
		r.proc.Kill()
	}
}

// until polls cond.
func until(ctx context.Context, limit time.Duration, what string, cond func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	t := time.NewTicker(20 * time.Millisecond)
	defer t.Stop()
	for !cond() {
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("waited in vain for %s", what), ctx.Err())
		case <-t.C:
		}
	}
	return nil
}

// pause waits, unless ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
