package rig

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Usage is what a process holds. Tests compare two of them.
type Usage struct {
	RSS, Locked int64 // bytes
	Threads     int
	FDs         int
	Sockets     int // of the FDs
}

// UsageOf reads the usage of a process.
func UsageOf(pid int) (Usage, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return Usage{}, err
	}
	var u Usage
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		key, value, _ := strings.Cut(s.Text(), ":")
		n, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		switch key {
		case "VmRSS":
			u.RSS = n << 10
		case "VmLck":
			u.Locked = n << 10
		case "Threads":
			u.Threads = int(n)
		}
	}
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	all, err := os.ReadDir(dir)
	if err != nil {
		return Usage{}, err
	}
	for _, e := range all {
		u.FDs++
		if to, err := os.Readlink(dir + "/" + e.Name()); err == nil && strings.HasPrefix(to, "socket:") {
			u.Sockets++
		}
	}
	return u, nil
}

// Memory reads a line of /proc/meminfo ("MemAvailable", "Dirty", "Slab"), bytes.
func Memory(key string) (int64, error) {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	for line := range strings.SplitSeq(string(b), "\n") {
		if f := strings.Fields(line); len(f) > 1 && f[0] == key+":" {
			n, err := strconv.ParseInt(f[1], 10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("/proc/meminfo has no %s", key)
}

// TCPConnections counts established connections to a port on loopback: the
// sessions a target sees.
func TCPConnections(port int) (int, error) {
	b, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		return 0, err
	}
	n, remote := 0, fmt.Sprintf(":%04X", port)
	for line := range strings.SplitSeq(string(b), "\n") {
		// sl local remote state
		if f := strings.Fields(line); len(f) > 3 && strings.HasSuffix(f[2], remote) && f[3] == "01" {
			n++
		}
	}
	return n, nil
}

// descendants are the living children of a process, their children, and so on.
func descendants(pid int) []int {
	parents := map[int][]int{}
	all, _ := os.ReadDir("/proc")
	for _, e := range all {
		p, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if parent, ok := parentOf(p); ok {
			parents[parent] = append(parents[parent], p)
		}
	}
	var out []int
	for level, at := 0, []int{pid}; level < maxDescent && len(at) > 0; level++ {
		var next []int
		for _, p := range at {
			next = append(next, parents[p]...)
		}
		out, at = append(out, next...), next
	}
	slices.Sort(out)
	return out
}

// parentOf reads the fourth word of /proc/PID/stat; the second may hold blanks.
func parentOf(pid int) (int, bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, false
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 2 || f[0] == "Z" {
		return 0, false
	}
	parent, err := strconv.Atoi(f[1])
	return parent, err == nil
}
