// Package merge joins contiguous requests into units, each sent as one command.
//
// A request that continues a unit not sent yet joins it at once, which costs no
// time. A unit that continues what its stream has in flight may also be held
// for a moment, so that more can join: the hold rule of the kernel's
// rq_based_seq_io_merge_deadline, for several streams at once instead of one.
// Random requests and the only request of a stream are never held.
//
// The package is pure: requests are numbers (tokens), times are ns of any
// monotonic clock.
package merge

import "sync/atomic"

// None is no stream, and no token.
const None = -1

// Plug follows the streams of one lane. All methods but Done and Waits belong
// to the lane's runner.
type Plug struct {
	// ends are where the next request of each stream begins, bytes: apart,
	// because each request looks at all of them.
	ends    [Streams]uint64
	streams [Streams]stream
	hand    uint8  // the next stream that may have to go
	cap     uint32 // bytes of one unit

	// inflight counts the units of each stream that are out: added to by the
	// runner, subtracted from by path readers. held has a bit for each stream
	// with a unit that waits: written by the runner, read by path readers. Both
	// are sequentially consistent: a runner that sets held and then finds
	// something in flight has a reader behind it that finds held.
	inflight [Streams]atomic.Int32
	held     atomic.Uint32
}

// stream is one run of contiguous requests of one operation.
type stream struct {
	op      uint8
	used    bool   // it follows something
	recent  bool   // it went on since the hand came by
	leader  int32  // token of its unit that is not sent yet, None if there is none
	bytes   uint32 // of that unit
	joined  int32  // requests of that unit
	started int64  // when its last unit was sent
}

// Init makes the plug ready; a unit grows to at most limit bytes.
func (p *Plug) Init(limit uint32) {
	p.cap = limit
	for i := range p.streams {
		p.streams[i].leader = None
	}
}

// Add takes in a request of n bytes at off. If it continues a unit that has
// room, leader is that unit's token and the request is to go with it.
// Otherwise leader is None and the request begins a unit of its own, of the
// stream returned, which may be None: then it is not followed.
func (p *Plug) Add(token int32, op uint8, off uint64, n uint32) (leader int32, strm int8) {
	for i := range p.ends {
		if p.ends[i] != off {
			continue
		}
		if s := &p.streams[i]; s.used && s.op == op {
			p.ends[i], s.recent = off+uint64(n), true
			return s.add(token, n, p.cap), int8(i)
		}
	}
	i := p.replace()
	if i != None {
		p.ends[i] = off + uint64(n)
		p.streams[i] = stream{op: op, used: true, leader: token, bytes: n, joined: 1}
	}
	return None, i
}

// add takes a request into the unit that is not sent yet, if it has room, and
// returns its leader; otherwise it leads the next.
func (s *stream) add(token int32, n, limit uint32) (leader int32) {
	if s.leader != None && s.bytes+n <= limit && s.joined < MaxJoined {
		s.bytes += n
		s.joined++
		return s.leader
	}
	s.leader, s.bytes, s.joined = token, n, 1
	return None
}

// replace finds a stream to give up: the hand passes over those with something
// out, and once over those that went on since it came by. It looks at a few
// only, because random requests all come here: who finds none is not followed,
// and the next request of a stream looks further.
func (p *Plug) replace() int8 {
	for range lookAt {
		i := p.hand
		p.hand = (p.hand + 1) % Streams
		s := &p.streams[i]
		switch {
		case s.leader != None || p.inflight[i].Load() != 0:
		case s.recent:
			s.recent = false
		default:
			return int8(i)
		}
	}
	return None
}

// Hold reports until when the unit led by token waits for more: while
// something of its stream is in flight, it has room, and no more than deadline
// ns have passed since the stream's last unit was sent. 0: it is to be sent
// now. A caller that gets a time keeps the unit and asks again when Waits says
// so, and at that time.
func (p *Plug) Hold(strm int8, token int32, now, deadline int64) (until int64) {
	if strm == None || deadline == 0 {
		return 0
	}
	s := &p.streams[strm]
	until = s.started + deadline
	if s.leader != token || s.started == 0 || now >= until || s.bytes >= p.cap || s.joined >= MaxJoined {
		p.release(strm, token)
		return 0
	}
	p.held.Or(1 << strm)
	if p.inflight[strm].Load() <= 0 {
		p.release(strm, token)
		return 0
	}
	return until
}

// release takes the mark of a held unit off.
func (p *Plug) release(strm int8, token int32) {
	if p.streams[strm].leader == token {
		p.letGo(strm)
	}
}

// letGo takes the mark off a stream. Only the runner sets it, so an unmarked one
// costs no write.
func (p *Plug) letGo(strm int8) {
	if p.held.Load()&(1<<strm) != 0 {
		p.held.And(^uint32(1 << strm))
	}
}

// Sent notes that a unit was sent at now, and ends its growth. Its answer, and
// Done, may have come before: the count is right either way.
func (p *Plug) Sent(strm int8, token int32, now int64) {
	if strm == None {
		return
	}
	p.Forget(strm, token)
	p.streams[strm].started = max(now, 1)
	p.inflight[strm].Add(1)
}

// Forget ends the growth of a unit.
func (p *Plug) Forget(strm int8, token int32) {
	if strm == None {
		return
	}
	if s := &p.streams[strm]; s.leader == token {
		p.letGo(strm)
		s.leader = None
	}
}

// Barrier ends the growth of all units, and releases those that are held.
func (p *Plug) Barrier() {
	for i := range p.streams {
		p.streams[i].leader = None
	}
	if p.held.Load() != 0 {
		p.held.Store(0)
	}
}

// Busy reports whether the stream has something in flight.
func (p *Plug) Busy(strm int8) bool { return strm != None && p.inflight[strm].Load() > 0 }

// Done notes that a unit was answered. True: a unit of its stream waits and
// nothing of the stream is in flight any more, so the lane is to be run. Any
// goroutine.
func (p *Plug) Done(strm int8) bool {
	return strm != None && p.inflight[strm].Add(-1) <= 0 && p.held.Load()&(1<<strm) != 0
}

// Waits reports whether any unit is held. Any goroutine.
func (p *Plug) Waits() bool { return p.held.Load() != 0 }
