package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/test/host"
	"github.com/csi-mpath/csi-mpath/test/node"
)

// run is a story that is told.
type run struct {
	*config
	host    *host.Host
	backend backend.Backend
	rep     *report

	volumes     []backend.Volume
	connections []backend.Connection
}

// size of a volume, bytes.
const size = 16 << 20

// sample is how many volumes are logged in to.
const sample = 20

// callTime bounds one call.
const callTime = 2 * time.Minute

// verb is the figures of one kind of call.
type verb struct {
	Name  string        `json:"verb"`
	Total time.Duration `json:"total_ns"` // of all calls, by all callers
	P50   time.Duration `json:"p50_ns"`
	P99   time.Duration `json:"p99_ns"`
	Max   time.Duration `json:"max_ns"`
}

// report is what was measured.
type report struct {
	Volumes  int           `json:"volumes"`
	Callers  int           `json:"callers"`
	Verbs    []verb        `json:"verbs"`
	Restored time.Duration `json:"restored_ns"` // from the start of the agent until it listens
	// Memory is the agent's resident memory, KiB: without volumes, with all of them
	// served to nobody who is connected, and after the restart.
	Memory [3]int `json:"memory_kib"`
}

func (r *report) print(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintf(t, "%d volumes, %d callers\ttotal\tp50\tp99\tmax\n", r.Volumes, r.Callers)
	var all time.Duration
	for _, v := range r.Verbs {
		fmt.Fprintf(t, "%s\t%v\t%v\t%v\t%v\n", v.Name, round(v.Total), round(v.P50), round(v.P99), round(v.Max))
		all += v.Total
	}
	fmt.Fprintf(t, "together\t%v\n", round(all))
	fmt.Fprintf(t, "served again after SIGKILL\t%v\t(goal %v)\n", round(r.Restored), goalRestored)
	fmt.Fprintf(t, "memory\t%d MiB, with all served %d MiB: %.1f KiB each; after the restart %d MiB\n", r.Memory[0]>>10, r.Memory[1]>>10,
		float64(r.Memory[1]-r.Memory[0])/float64(max(r.Volumes, 1)), r.Memory[2]>>10)
	_ = t.Flush()
}

func round(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }

// tell is the story.
func (r *run) tell(ctx context.Context) error {
	r.volumes, r.connections = make([]backend.Volume, r.rep.Volumes), make([]backend.Connection, r.rep.Volumes)
	r.rep.Memory[0] = r.memory()
	for _, step := range []func(context.Context) error{r.create, r.publish, r.restart, r.look, r.unpublish, r.remove} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	left, err := r.host.Left()
	if len(left) > 0 {
		err = errors.Join(err, fmt.Errorf("files were left: %v", left[:min(len(left), 5)]))
	}
	return err
}

// each makes one call for each volume, as many at a time as there are callers.
func (r *run) each(ctx context.Context, name string, call func(ctx context.Context, i int) error) error {
	took, errs := make([]time.Duration, r.rep.Volumes), make([]error, r.rep.Callers)
	var next atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	for c := range r.rep.Callers {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < r.rep.Volumes && errs[c] == nil; i = int(next.Add(1)) - 1 {
				begun := time.Now()
				ctx, cancel := context.WithTimeout(ctx, callTime)
				if err := call(ctx, i); err != nil {
					errs[c] = fmt.Errorf("%s of volume %d: %w", name, i, err)
				}
				cancel()
				took[i] = time.Since(begun)
			}
		})
	}
	wg.Wait()
	v := verb{Name: name, Total: time.Since(start)}
	slices.Sort(took)
	v.P50, v.P99, v.Max = took[len(took)/2], took[len(took)*99/100], took[len(took)-1]
	r.rep.Verbs = append(r.rep.Verbs, v)
	for _, err := range errs {
		if err != nil {
			return err // one of them tells enough
		}
	}
	return nil
}

func (r *run) create(ctx context.Context) error {
	return r.each(ctx, "CreateVolume", func(ctx context.Context, i int) (err error) {
		r.volumes[i], err = r.backend.CreateVolume(ctx, backend.CreateVolume{Name: fmt.Sprintf("pvc-%d", i), Pool: host.Pool,
			Size: backend.Size{Required: size}})
		return err
	})
}

// publication of volume i: every other one over NVMe/TCP.
func (r *run) publication(i int) backend.Publish {
	p := backend.Publish{Volume: r.volumes[i].ID, Node: fmt.Sprintf("node-%d", i%20), Transport: backend.ISCSI, Initiator: "iqn.2026-01.io.test:" + strconv.Itoa(i%20)}
	if i%2 == 1 {
		p.Transport, p.Initiator = backend.NVMe, "nqn.2026-01.io.test:"+strconv.Itoa(i%20)
	}
	return p
}

func (r *run) publish(ctx context.Context) error {
	err := r.each(ctx, "Publish", func(ctx context.Context, i int) (err error) {
		r.connections[i], err = r.backend.Publish(ctx, r.publication(i))
		return err
	})
	r.rep.Memory[1] = r.memory()
	return err
}

// restart kills the agent and starts it over what it left.
func (r *run) restart(ctx context.Context) error {
	r.host.Kill()
	start := time.Now()
	err := r.host.Start(ctx)
	r.rep.Restored = time.Since(start)
	r.rep.Memory[2] = r.memory()
	return err
}

// look compares what nodes are told with what they were told before, and logs in
// to some of the volumes.
func (r *run) look(ctx context.Context) error {
	err := r.each(ctx, "Publish again", func(ctx context.Context, i int) error {
		c, err := r.backend.Publish(ctx, r.publication(i))
		c.Content = r.connections[i].Content // which it may have lost: a node might have written
		if was := r.connections[i]; err == nil && !reflect.DeepEqual(c, was) {
			err = fmt.Errorf("it is %+v now, and was %+v", c, was)
		}
		return err
	})
	for i := 0; i < r.rep.Volumes && err == nil; i += max(1, r.rep.Volumes/sample) {
		c := r.connections[i]
		for portal := range c.Portals {
			p, dialled := node.Dial(ctx, c, portal, backend.Auth{})
			if dialled != nil {
				return fmt.Errorf("volume %d: %w", i, dialled)
			}
			if p.WWID != c.WWID || p.Size != c.Size {
				err = fmt.Errorf("volume %d: it is %s of %d bytes, and should be %s of %d", i, p.WWID, p.Size, c.WWID, c.Size)
			}
			p.Close()
		}
	}
	return err
}

func (r *run) unpublish(ctx context.Context) error {
	return r.each(ctx, "Unpublish", func(ctx context.Context, i int) error {
		return r.backend.Unpublish(ctx, r.volumes[i].ID, r.publication(i).Node)
	})
}

func (r *run) remove(ctx context.Context) error {
	return r.each(ctx, "DeleteVolume", func(ctx context.Context, i int) error { return r.backend.DeleteVolume(ctx, r.volumes[i].ID) })
}

// memory is the agent's resident memory, KiB; 0 if that cannot be read.
func (r *run) memory() int {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.host.PID()))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(b), "VmRSS:")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0
	}
	kib, err := strconv.Atoi(fields[0])
	if err != nil {
		return 0
	}
	return kib
}
