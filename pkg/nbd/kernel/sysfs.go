package kernel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Status is an attached device, as sysfs shows it. Nothing of it says whether
// somebody serves the device.
type Status struct {
	Index   int
	Backend string // "" where another program attached it, or on old kernels
	// PID is the process that attached it first, as the kernel's first PID
	// namespace numbers it.
	PID      int
	Size     uint64 // bytes
	ReadOnly bool
}

func (k *Kernel) attribute(index int, name string) string {
	return filepath.Join(k.sys, "block", fmt.Sprint("nbd", index), name)
}

// read reads a sysfs file, bounded and without its newline.
func (k *Kernel) read(index int, name string) (string, error) {
	f, err := os.Open(k.attribute(index, name))
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, maxAttribute))
	return strings.TrimSpace(string(b)), err
}

func (k *Kernel) readNumber(index int, name string) (uint64, error) {
	s, err := k.read(index, name)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(s, 10, 63)
	if err != nil {
		return 0, fmt.Errorf("%s holds no number: %.40q", k.attribute(index, name), s)
	}
	return n, nil
}

// write writes a sysfs file that exists.
func (k *Kernel) write(index int, name, value string) error {
	f, err := os.OpenFile(k.attribute(index, name), os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// look reads the status of a device; ErrNotAttached when it has none.
func (k *Kernel) look(index int) (Status, error) {
	s := Status{Index: index}
	pid, err := k.readNumber(index, "pid")
	if gone(err) {
		return s, deviceError(index, ErrNotAttached)
	}
	if err != nil {
		return s, err
	}
	s.PID = int(pid)
	if s.Backend, err = k.read(index, "backend"); err != nil && !gone(err) {
		return s, err
	}
	sectors, err := k.readNumber(index, "size")
	if err != nil {
		return s, err
	}
	s.Size = sectors * 512
	ro, err := k.readNumber(index, "ro")
	s.ReadOnly = ro != 0
	return s, err
}

// gone: the file is not there, or vanished with the device while it was read.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) }

// connections is how many a device has: the kernel has a queue for each.
func (k *Kernel) connections(index int) int {
	queues, _ := filepath.Glob(k.attribute(index, "mq/*"))
	return min(max(len(queues), 1), MaxConnections)
}

// own is look for a device that must have a backend identifier.
func (k *Kernel) own(index int, backend string) (Status, error) {
	s, err := k.look(index)
	if err == nil && s.Backend != backend {
		err = fmt.Errorf("nbd%d: backend %q, not %q: %w", index, s.Backend, backend, ErrForeign)
	}
	return s, err
}

// List returns the attached devices, in order, foreign ones included.
func (k *Kernel) List() ([]Status, error) {
	all, err := filepath.Glob(filepath.Join(k.sys, "block", "nbd*"))
	if err != nil {
		return nil, err
	}
	var out []Status
	for _, p := range all {
		index, err := strconv.ParseUint(strings.TrimPrefix(filepath.Base(p), "nbd"), 10, 20)
		if err != nil {
			continue // a partition, or no device
		}
		s, err := k.look(int(index))
		switch {
		case errors.Is(err, ErrNotAttached):
		case err != nil:
			return nil, err
		default:
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b Status) int { return a.Index - b.Index })
	return out, nil
}

// Find returns the device with a backend identifier: one that a process which
// died has left, or that another serves. ErrNotAttached when there is none.
func (k *Kernel) Find(backend string) (Status, error) {
	all, err := k.List()
	if err != nil {
		return Status{}, err
	}
	for _, s := range all {
		if s.Backend == backend {
			return s, nil
		}
	}
	return Status{}, fmt.Errorf("nbd: backend %q: %w", backend, ErrNotAttached)
}

// setting is one sysfs file and what it should hold.
type setting struct {
	name, value string
	why         string // what is lost where the file does not exist
}

func (o *Options) settings(maxKB uint64) []setting {
	all := []setting{
		{"queue/scheduler", "none", "requests are sorted twice"},
		{"queue/max_sectors_kb", fmt.Sprint(min(uint64(o.MaxSectorsKB), maxKB)), "requests may be split small"},
		// After the scheduler, whose change sets its own.
		{"queue/nr_requests", fmt.Sprint(o.depth()), "a server with all paths down may stop reading"},
		{"bdi/max_ratio", fmt.Sprint(o.DirtyRatio), "a hung device may fill the node's dirty page cache"},
		{"bdi/strict_limit", "1", "a hung device may fill the node's dirty page cache"},
	}
	if o.Connections == 1 {
		io := setting{"queue/io_timeout", fmt.Sprint(o.IOTimeout.Milliseconds()), "requests in flight wait 30 s after the server came back"}
		all = slices.Insert(all, 0, io)
	}
	return all
}

// tune writes what differs. A write freezes the device's queue and waits for
// the requests in it, so what is right already is left alone. Files that this
// kernel does not have become warnings.
func (k *Kernel) tune(ctx context.Context, index int, o *Options) (warnings []string, err error) {
	maxKB, err := k.readNumber(index, "queue/max_hw_sectors_kb")
	if err != nil {
		maxKB = MaxSectorsKB
	}
	for _, s := range o.settings(maxKB) {
		err := k.do(ctx, fmt.Sprintf("set %s of nbd%d", s.name, index), func() error { return k.set(index, s) }, nil)
		if errors.Is(err, fs.ErrNotExist) {
			warnings = append(warnings, fmt.Sprintf("nbd%d: this kernel has no %s: %s", index, s.name, s.why))
			continue
		}
		if err != nil {
			return warnings, fmt.Errorf("nbd%d: set %s to %s: %w", index, s.name, s.value, err)
		}
	}
	return warnings, nil
}

func (k *Kernel) set(index int, s setting) error {
	have, err := k.read(index, s.name)
	if err != nil || chosen(have) == s.value {
		return err
	}
	if err := k.write(index, s.name, s.value); err != nil {
		return err
	}
	have, err = k.read(index, s.name)
	if err == nil && chosen(have) != s.value {
		err = fmt.Errorf("it stays %q", have)
	}
	return err
}

// chosen is the word in brackets of a list of choices, or the value itself.
func chosen(s string) string {
	if _, rest, ok := strings.Cut(s, "["); ok {
		if word, _, ok := strings.Cut(rest, "]"); ok {
			return word
		}
	}
	return s
}
