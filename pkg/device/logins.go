package device

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/datapath"
)

// Logins bounds the rate of logins of the devices that share it: a portal that
// comes back must not be met by all volumes at once, and this process has other
// work. Alone, a login does not wait. See turnstile for who goes first.
//
// The lock guards everything; it is taken twice per login.
type Logins struct {
	mu    sync.Mutex
	t     turnstile
	timer *time.Timer // made by the first that waits
	stats LoginStats
	last  []time.Time // of the logins let through, for the peak
}

// LoginStats is what a Logins counted so far, and its bounds.
type LoginStats struct {
	PerSecond   int           `json:"perSecondAndPortal"` // bound in the long run
	Burst       int           `json:"burst"`              // that many go at once before it counts
	InFlight    int           `json:"inFlightPerPortal"`  // bound
	Started     uint64        `json:"started"`
	Waiting     int           `json:"waiting"`                // now
	Peak        int           `json:"mostInOneSecond"`        // over all portals
	LongestWait time.Duration `json:"longestWaitNanoseconds"` // for a turn
}

// String is one line for people.
func (s LoginStats) String() string {
	return fmt.Sprintf("%d started, at most %d in one second (bound: %d per second and portal after %d at once, %d in flight), longest wait %v",
		s.Started, s.Peak, s.PerSecond, s.Burst, s.InFlight, s.LongestWait.Round(time.Millisecond))
}

// NewLogins makes a Logins of its own, as a simulator wants that has a time of
// its own.
func NewLogins() *Logins { return &Logins{t: newTurnstile()} }

// processWide is shared by all devices that were given no other.
var processWide = NewLogins()

// ProcessLogins are the counters of the Logins that devices share by default.
func ProcessLogins() LoginStats { return processWide.Stats() }

// Stats reads the counters.
func (l *Logins) Stats() LoginStats {
	l.mu.Lock()
	defer l.mu.Unlock()
	st := l.stats
	st.PerSecond, st.Burst, st.InFlight, st.Waiting = portalLogins, portalBurst, portalInFlight, len(l.t.waiting)
	return st
}

// turn waits until a login at portal may begin. leave must be called when it is
// done. urgency is asked as often as it takes, with the lock held.
func (l *Logins) turn(ctx context.Context, portal string, urgency func() datapath.Urgency) (leave func(), err error) {
	w := &turn{urgency: urgency, came: time.Now(), granted: make(chan struct{})}
	l.mu.Lock()
	l.t.arrive(portal, w)
	l.settle()
	l.mu.Unlock()
	select {
	case <-w.granted:
	case <-ctx.Done():
		l.leave(w)
		return nil, ctx.Err()
	}
	return func() { l.leave(w) }, nil
}

func (l *Logins) leave(w *turn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.t.leave(w)
	l.settle()
}

// settle lets through who may, and sets the timer for the next. Under mu.
func (l *Logins) settle() {
	for {
		now := time.Now()
		w, wake := l.t.next(now)
		if w != nil {
			l.count(w)
			close(w.granted)
			continue
		}
		if wake.IsZero() {
			return
		}
		if l.timer == nil {
			l.timer = time.AfterFunc(time.Until(wake), l.wake)
		} else {
			l.timer.Reset(time.Until(wake))
		}
		return
	}
}

func (l *Logins) wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.settle()
}

func (l *Logins) count(w *turn) {
	l.stats.Started++
	l.stats.LongestWait = max(l.stats.LongestWait, w.passed.Sub(w.came))
	for len(l.last) > 0 && w.passed.Sub(l.last[0]) >= time.Second {
		l.last = l.last[1:]
	}
	l.last = append(l.last, w.passed)
	l.stats.Peak = max(l.stats.Peak, len(l.last))
}
