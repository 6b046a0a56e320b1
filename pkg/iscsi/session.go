package iscsi

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/poll"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
	"github.com/csi-mpath/csi-mpath/pkg/wire"
)

// Session is one logged-in iSCSI session with one connection. Its goroutines
// are a reader, a writer that sleeps unless the socket was full, and a ticker;
// they end with it.
type Session struct {
	cfg  Config
	info Info
	link *wire.Link
	m    *machine
	base time.Time

	cause atomic.Pointer[SessionError] // first cause of the end
	done  chan struct{}

	mu   sync.Mutex // guards changes of the set of units, and dead
	dead bool
	byes atomic.Uint32 // logout of the target's wish: 1 once queued
}

// Info is what a login found out.
type Info struct {
	TSIH    uint16
	TPGT    uint16
	HasTPGT bool // the target told its portal group tag
	Params  Params
	Local   net.Addr
	Remote  net.Addr
}

// Info returns what the login found out.
func (s *Session) Info() Info { return s.info }

// Config is the configuration, defaults filled in.
func (s *Session) Config() Config { return s.cfg }

// SetPolling changes how the reader waits, at once.
func (s *Session) SetPolling(p poll.Polling) { s.link.Sock.SetPolling(p) }

// Polling is how the reader waits.
func (s *Session) Polling() poll.Polling { return s.link.Sock.Polling() }

// Done is closed when the session is over and every sink was told.
func (s *Session) Done() <-chan struct{} { return s.done }

// Err is why the session is ending or over; nil while it lives.
func (s *Session) Err() error {
	if e := s.cause.Load(); e != nil {
		return e
	}
	return nil
}

// Stats are system calls and oddities of the session so far.
func (s *Session) Stats() (recvs, sends, stale uint64) {
	return s.link.Sock.Stats.Recvs.Load(), s.link.Sock.Stats.Sends.Load(), s.m.Tasks.Stale.Load()
}

// Abort ends the session at once: the socket is reset, and every command goes
// to its sink's Lost. It does not wait for that: see Done.
func (s *Session) Abort(cause error) { s.Fail(cause) }

// Fail implements wire.Owner: it notes the first cause and aborts the socket.
func (s *Session) Fail(cause error) {
	e := &SessionError{Portal: s.cfg.Portal, Target: s.cfg.TargetName, Err: cause}
	s.cause.CompareAndSwap(nil, e)
	s.link.Stop()
}

// LUN opens a logical unit: at most depth of its commands are in the shared
// window. Close it when done. If the session is over already, sink.Lost is
// called before LUN returns.
func (s *Session) LUN(lun scsi.LUN, depth int, sink blk.Sink) *LUN {
	l := newLUN(s, lun, min(max(depth, 1), s.cfg.QueueDepth), sink)
	s.mu.Lock()
	old := *s.m.luns.Load()
	dead := s.dead || len(old) >= maxLUNs
	if !dead {
		luns := append(append(make([]*LUN, 0, len(old)+1), old...), l)
		s.m.luns.Store(&luns)
	}
	s.mu.Unlock()
	if dead {
		l.unit.Close()
		err := s.Err()
		if err == nil {
			err = s.cfg.errorf("more than %d logical units on one session", maxLUNs)
		}
		sink.Lost(nil, err)
	} else if s.m.leaving.Load() != 0 {
		l.unit.Close()
	}
	return l
}

func (s *Session) remove(l *LUN) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead {
		return
	}
	old := *s.m.luns.Load()
	luns := make([]*LUN, 0, len(old))
	for _, o := range old {
		if o != l {
			luns = append(luns, o)
		}
	}
	s.m.luns.Store(&luns)
}

// Woken implements wire.Owner.
func (s *Session) Woken() error {
	if s.m.reviewWanted.Swap(false) {
		return s.m.rx.review(s.m.Clock.Now(), wire.Ticks(s.cfg.CommandTimeout), wire.Ticks(abortTimeout))
	}
	return nil
}

// Retired implements wire.Owner: every command is handed back.
func (s *Session) Retired() {
	s.mu.Lock()
	s.dead = true
	luns := *s.m.luns.Load()
	s.mu.Unlock()
	s.m.lose(luns, s.Err())
	close(s.done)
}
