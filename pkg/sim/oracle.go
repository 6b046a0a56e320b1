package sim

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
)

// oracle judges every answer. mu guards it and all clients; whoever holds
// world.mu may take it, never the other way round.
type oracle struct {
	mu     sync.Mutex
	h      history
	rng    *rand.Rand
	bs     int
	size   uint64 // bytes a client may use
	broken []string
	debts  []debt
	silent bool       // the target does not tell
	told   func() int // POWER ON OCCURRED the target told
	paid   int        // flushes that failed for it

	nextV uint64
	nextN uint64
	stats Stats

	// What the script does now: answers may take longer, errors may come.
	faults    int
	lastFault time.Time
	errorsTo  time.Time     // injected errors may be answered until then
	refused   time.Duration // command timeout, once the script refused commands for a while; 0 before
	slack     time.Duration
	trace     func(format string, args ...any) // nil: nobody wants to read along
	noPath    time.Duration                    // noPathTimeout, negative for never
	usable    time.Time                        // when a path was last seen to be usable
}

// debt is a loss of power that took answered writes with it: a flush begun after
// they were answered must fail once before one may be answered well (I4).
type debt struct {
	at, claimed int
	paid        bool
}

// Stats are what a run did.
type Stats struct {
	Requests, Reads, Writes, Flushes, Errors, Replays uint64
	Steps, Kills, PowerLosses, LostBlocks             uint64
	Losses, Fences, Mismatches                        uint64
	Marginal, Failbacks, Orders, Merged               uint64
	Late, Reinstated, Logins, Aborted                 uint64
}

func (o *oracle) failed() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.broken) > 0
}

// note writes a line for who reads along.
func (o *oracle) note(format string, args ...any) {
	if o.trace != nil {
		o.trace(format, args...)
	}
}

func (o *oracle) violate(format string, args ...any) {
	o.note("VIOLATION "+format, args...)
	if len(o.broken) < maxBroken {
		o.broken = append(o.broken, fmt.Sprintf(format, args...))
	}
}

// tell is note for those who do not hold mu.
func (o *oracle) tell(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.note(format, args...)
}

// report is violate for those who do not hold mu.
func (o *oracle) report(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.violate(format, args...)
}

func (o *oracle) faultBegins() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.faults++
	o.stats.Steps++
}

func (o *oracle) faultEnds() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.faults--
	o.lastFault = time.Now()
}

// mayFail: an error of the target is played for d from now.
func (o *oracle) mayFail(d time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if t := time.Now().Add(d + o.slack); t.After(o.errorsTo) {
		o.errorsTo = t
	}
}

// refuses: the target answers commands with busy or the like. What meets that
// again and again, for as long as the command timeout, is an error.
func (o *oracle) refuses(limit time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.refused = limit
}

// calm reports whether no fault has been near for d.
func (o *oracle) calm(d time.Duration) bool { return o.faults == 0 && time.Since(o.lastFault) > d }

// op is one request of a client, whatever connections it goes through.
type op struct {
	n       uint64 // in order of asking
	kind    blk.Op
	flags   blk.Flags
	off     uint64
	len     uint32
	v       uint64
	recs    []*rec
	begin   int
	started time.Time
	accused bool
}

func (p *op) String() string {
	return fmt.Sprintf("%v of %d bytes at %d (request %d, write %d)", p.kind, p.len, p.off, p.n, p.v)
}

// ask draws a new request.
func (o *oracle) ask(p *op) *op {
	o.nextN++
	p.n, p.started = o.nextN, time.Now()
	p.begin = o.h.tick()
	if p.kind.Mutates() {
		if p.kind == blk.Write {
			o.nextV++
			p.v = o.nextV
		}
		for b := range p.len / uint32(o.bs) {
			p.recs = append(p.recs, o.h.begin(int(p.off)/o.bs+int(b), p.v))
		}
	}
	o.stats.Requests++
	o.note("ask %v", p)
	return p
}

// answer judges the answer to p. buf is what a read returned.
func (o *oracle) answer(p *op, st blk.Status, buf []byte) {
	end := o.h.tick()
	o.note("answer %v: %v", p, st)
	switch {
	case p.kind == blk.Read:
		o.stats.Reads++
		if st == blk.OK {
			o.judgeRead(p, buf)
		}
	case p.kind == blk.Flush:
		o.stats.Flushes++
		if o.judgeFlush(p, st, end) {
			return
		}
	default:
		o.stats.Writes++
		for _, r := range p.recs {
			o.h.finish(r, st == blk.OK, p.flags&blk.FUA != 0)
		}
	}
	if st != blk.OK {
		o.stats.Errors++
		o.judgeError(p, st)
	}
}

// unknown ends a request whose client will never know.
func (o *oracle) unknown(p *op) {
	o.h.tick()
	for _, r := range p.recs {
		o.h.finish(r, false, false)
	}
}

func (o *oracle) judgeRead(p *op, buf []byte) {
	first := int(p.off) / o.bs
	for i := range len(buf) / o.bs {
		o.judgeBlock(p, first+i, buf[i*o.bs:(i+1)*o.bs])
	}
}

func (o *oracle) judgeBlock(p *op, block int, b []byte) {
	v, ok := number(b, uint64(block))
	switch {
	case !ok && scribbled(b):
		o.violate("block %d was read as what a buffer holds after its answer: a reused buffer (%v)", block, p)
	case !ok:
		o.violate("block %d was read with a content of no write, it begins with number %d (%v)", block, v, p)
	case !o.h.allowed(block, v, p.begin):
		o.violate("block %d was read as write %d, which was overwritten before the read began, or never written (%v)", block, v, p)
	default:
		o.h.saw(block, v, p.begin)
	}
}

// judgeFlush takes in what a flush proves, or that it told of a lost cache.
func (o *oracle) judgeFlush(p *op, st blk.Status, end int) (told bool) {
	if st == blk.OK {
		for i, d := range o.debts {
			if !d.paid && p.begin > d.claimed && end > d.at {
				o.violate("a flush was answered well after a power loss took writes with it that had been answered before the flush (I4, %v)", p)
				o.debts[i].paid = true // said once
			}
		}
		o.h.flushed(p.begin)
		return false
	}
	for i := range o.debts {
		o.debts[i].paid = true
	}
	// A process that dies right after it told leaves the next to tell again. What
	// failed for another reason told nothing.
	if !o.explained(p, st) && o.paid < o.told()+int(o.stats.Kills) {
		o.paid++
		return true
	}
	return false
}

func (o *oracle) judgeError(p *op, st blk.Status) {
	if !o.explained(p, st) {
		o.violate("%v ended with %v while nothing explains that", p, st)
	}
}

// explained reports whether the script says why p ended with an error.
func (o *oracle) explained(p *op, st blk.Status) bool {
	switch {
	case time.Now().Before(o.errorsTo) && st != blk.Cancelled && st != blk.Shutdown:
		return true // whatever the script has the target say
	case st != blk.IOError:
		return false
	}
	return o.refused > 0 && time.Since(p.started) > o.refused || // retries are bounded
		o.noPath >= 0 && time.Since(o.usable) >= o.noPath
}

// crashed judges what a power loss left; content is a block's now.
func (o *oracle) crashed(back []int, content func(block int) []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	at := o.h.tick()
	o.stats.PowerLosses++
	d := debt{at: at}
	for _, b := range back {
		v, ok := number(content(b), uint64(b))
		if !ok {
			o.violate("block %d holds a content of no write after a power loss", b)
			continue
		}
		o.note("power loss: block %d goes back to write %d", b, v)
		bad, claimed := o.h.lost(b, v)
		if bad != nil {
			o.violate("block %d holds write %d after a power loss, and write %d was flushed (I4)", b, v, bad.v)
		}
		if claimed != 0 {
			o.stats.LostBlocks++
			if d.claimed == 0 || claimed < d.claimed {
				d.claimed = claimed
			}
		}
	}
	o.h.open = nil // what is left needs no flush any more, or is gone
	if d.claimed != 0 && !o.silent {
		o.debts = append(o.debts, d)
	}
}

// final judges the disk once nothing moves any more.
func (o *oracle) final(content func(block int) []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	end := o.h.tick()
	for b := range o.h.blocks {
		v, ok := number(content(b), uint64(b))
		switch {
		case !ok:
			o.violate("block %d ends with a content of no write, it begins with number %d", b, v)
		case !o.h.allowed(b, v, end):
			o.violate("block %d ends as write %d, which was overwritten", b, v)
		}
	}
}
