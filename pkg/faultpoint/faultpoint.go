// Package faultpoint names places where tests interrupt a program: between two
// steps of which the first has lasting effects. In normal operation a point costs
// one atomic load.
package faultpoint

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
)

// Env arms one point of a process: NAME kills it there with SIGKILL, NAME:3 at
// the third time that it comes there. Only Arm reads it.
const Env = "CSI_MPATH_CRASH_AT"

// hook is called at every point. Written by tests and at start, read anywhere; a
// stale read is harmless: tests set it before they begin.
var hook atomic.Pointer[func(name string)]

// Here is a point. What it means to stop here is up to the hook.
func Here(name string) {
	if f := hook.Load(); f != nil {
		(*f)(name)
	}
}

// Set makes f the hook of all points, nil none. The returned function puts back
// what was there.
func Set(f func(name string)) (restore func()) {
	var next *func(string)
	if f != nil {
		next = &f
	}
	old := hook.Swap(next)
	return func() { hook.Store(old) }
}

// Arm makes this process end itself where Env says. Programs call it once, at
// start.
func Arm() {
	name, nth, _ := strings.Cut(os.Getenv(Env), ":")
	if name == "" {
		return
	}
	at, err := strconv.Atoi(nth)
	if err != nil || at < 1 {
		at = 1
	}
	var seen atomic.Int64
	Set(func(here string) {
		if here == name && seen.Add(1) == int64(at) {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	})
}

// Trace are the points that this process comes to during f, in order and in the
// form of Env: the first a is "a:1", the next "a:2". For tests.
func Trace(f func()) []string {
	var mu sync.Mutex
	var all []string
	count := map[string]int{}
	restore := Set(func(name string) {
		mu.Lock()
		defer mu.Unlock()
		count[name]++
		all = append(all, name+":"+strconv.Itoa(count[name]))
	})
	defer restore()
	f()
	mu.Lock()
	defer mu.Unlock()
	return slices.Clone(all)
}
