package datapath

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
)

// EventKind names a transition; the words are those of the Kubernetes Events.
type EventKind string

// The transitions.
const (
	PathUp               EventKind = "PathUp"
	PathDown             EventKind = "PathDown"
	PathAccess           EventKind = "PathAccessChanged"
	AllPathsLost         EventKind = "AllPathsLost"
	PathIdentityMismatch EventKind = "PathIdentityMismatch"
	Fenced               EventKind = "Fenced"
	Grown                EventKind = "VolumeGrown"
	PathMarginal         EventKind = "PathMarginal"
	PathRecovered        EventKind = "PathRecovered"
	PathOrder            EventKind = "PathChangedByOperator"
	Failback             EventKind = "Failback"
	CacheLost            EventKind = "CacheLost"
	Inherited            EventKind = "WritesInDoubt"
)

// Event is one transition of a device.
type Event struct {
	Time   time.Time `json:"time"`
	Kind   EventKind `json:"kind"`
	Path   string    `json:"path,omitempty"`
	Detail string    `json:"detail"`
}

func (d *Device) emit(e Event) {
	if d.cfg.Events != nil {
		e.Time = time.Now()
		d.cfg.Events(e)
	}
}

func (d *Device) fenced(f *fence) {
	d.emit(Event{Kind: Fenced, Path: f.path.tr.Name(),
		Detail: fmt.Sprintf("%s: %d writes in doubt on the lost connection are settled", f.how, f.entries)})
}

// PathStatus is one row of the path table.
type PathStatus struct {
	Name   string    `json:"path"`
	State  string    `json:"state"`
	Since  time.Time `json:"since"`
	Access string    `json:"access,omitempty"`
	// Group is preferred, optimized, non-optimized, marginal or drained; InUse
	// says that new I/O goes there now.
	Group     string        `json:"group,omitempty"`
	InUse     bool          `json:"inUse"`
	Local     string        `json:"local,omitempty"`
	Latency   time.Duration `json:"latencyNanoseconds"`
	Commands  uint64        `json:"inFlight"`
	Bytes     uint64        `json:"inFlightBytes"`
	Recvs     uint64        `json:"receiveCalls"`
	Sends     uint64        `json:"sendCalls"`
	Connects  uint64        `json:"connects"`
	Errors    uint64        `json:"losses"`
	LastError string        `json:"lastError,omitempty"`
	// Fence counts the lost incarnations whose writes are still in doubt, and
	// when the clock will settle the last of them.
	Fences int `json:"fencesPending"`
	// InLine: it waits for its turn to log in (Config.Turn).
	InLine  bool      `json:"waitsForTurn,omitempty"`
	FenceAt time.Time `json:"fenceDeadline,omitzero"`
}

// Status is a device at one moment.
type Status struct {
	Name     string       `json:"volume"`
	Identity Identity     `json:"identity"`
	Size     uint64       `json:"sizeBytes"`
	Selector string       `json:"pathSelector"`
	Usable   int          `json:"usablePaths"`
	Held     int64        `json:"requestsOutstanding"`
	Waiting  int          `json:"waitingForFence"`
	InDoubt  int64        `json:"rangesInDoubt"`
	Merge    MergeStats   `json:"merge"`
	Paths    []PathStatus `json:"paths"`
}

// Status reads the device without disturbing its I/O.
func (d *Device) Status() Status {
	d.mu.Lock()
	defer d.mu.Unlock()
	st := Status{Name: d.cfg.Name, Size: d.size.Load(), Selector: d.pathSelector().Name(),
		Usable: len(d.table.Load().best()), Held: d.outstanding()}
	if d.reference != nil {
		st.Identity = *d.reference
	}
	st.Merge = d.mergeStats()
	var ranges int
	_, st.Waiting, ranges = d.doubt.count()
	st.InDoubt = int64(ranges)
	for _, p := range d.paths {
		st.Paths = append(st.Paths, d.pathStatusLocked(p))
	}
	return st
}

func (d *Device) pathStatusLocked(p *Path) PathStatus {
	ps := PathStatus{Name: p.tr.Name(), State: p.state.String(), Since: p.stateSince,
		Connects: p.connects, Errors: p.downs}
	ps.InLine = p.inLine.Load()
	if p.lastErr != nil {
		ps.LastError = p.lastErr.Error()
	}
	if lv := p.live; lv != nil {
		qs := lv.q.Stats()
		ps.Access, ps.Local = lv.access.String(), lv.facts.Local
		ps.Latency, ps.Recvs, ps.Sends = qs.Latency, qs.Recvs, qs.Sends
		ps.Commands, ps.Bytes = lv.inflight()
		if t := lv.tier(); t != tierNone {
			ps.Group, ps.InUse = t.String(), slices.Contains(d.table.Load().best(), lv)
		}
		if lv.suspended {
			ps.State = "identifying"
		}
	}
	for _, f := range d.doubt.pathFences(p) {
		ps.Fences++
		if f.deadline.After(ps.FenceAt) {
			ps.FenceAt = f.deadline
		}
	}
	return ps
}

func (d *Device) outstanding() (n int64) {
	for i := range d.lanes[:d.laneTop.Load()] {
		if l := d.lanes[i].Load(); l != nil {
			n += l.outstanding.Load()
		}
	}
	return n
}

// Close ends the device: it waits until every request is answered and every
// fence is resolved, or ctx ends, then logs the paths out. Its error says what
// was still open; the device is gone either way, and what was not answered
// fails with Shutdown. Nothing touches the ledger after it.
func (d *Device) Close(ctx context.Context) error {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	n, fences, err := d.settled(ctx)
	if err != nil {
		err = fmt.Errorf("volume %s: closed with %d requests unanswered and %d lost connections whose writes are in doubt: %w", d.cfg.Name, n, fences, err)
	}
	d.mode.Or(modeShutdown)
	d.doubt.wake()
	d.kickAll()
	d.cancel()
	d.wg.Wait()
	d.kickAll()
	for _, s := range d.doubt.end() {
		s.lane.answer(s, blk.Shutdown)
		s.lane.flushAnswers()
	}
	// A lane's runner may be another goroutine, on its way to the last answers.
	for range closeGrace / drainPoll {
		if d.outstanding() == 0 {
			break
		}
		time.Sleep(drainPoll)
	}
	return err
}

// settled waits until nothing is open, or ctx ends, and returns what is.
func (d *Device) settled(ctx context.Context) (requests int64, fences int, err error) {
	t := time.NewTicker(drainPoll)
	defer t.Stop()
	for {
		fences, _, _ = d.doubt.count()
		if requests = d.outstanding(); fences == 0 && requests == 0 {
			return 0, 0, nil
		}
		select {
		case <-ctx.Done():
			return requests, fences, ctx.Err()
		case <-t.C:
		}
	}
}

// Retry makes every path that is down try now: an operator or a network event
// says that it may work again.
func (d *Device) Retry() { d.pokeOthers(nil) }
