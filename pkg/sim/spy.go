package sim

// spy watches a link for I1: once the initiator knows, or must find out before
// it does anything, that another volume is behind the portal, no command that
// moves blocks may be gathered for it any more.
type spy struct {
	l       *link
	armed   bool // no such command from here on
	heard   bool // the evidence has been received, and is being handled
	rest    int  // bytes of a batch gathered before, still to be sent
	out, in cutter
	dialect
}

// dialect is a protocol as a spy understands it.
type dialect interface {
	framing
	// hears looks at a PDU the initiator received.
	hears(s *spy, b []byte)
	// handled: the reader that received the evidence is back for more.
	handled(s *spy)
	// moves names the command of a PDU that the initiator sends, if it moves blocks.
	moves(s *spy, b []byte) string
}

// receives: the reader is back for more, so what it has received is handled.
func (s *spy) receives() {
	if s.heard {
		s.heard = false
		s.handled(s)
	}
}

func (s *spy) received(b []byte) {
	s.in.feed(s, b, func(b []byte) { s.hears(s, b) })
}

// sends looks at the first bytes of a batch of total. late: it was gathered
// after the evidence.
func (s *spy) sends(b []byte, total int, late bool) {
	old := s.rest
	if !late {
		old = total
	}
	s.rest = max(old-len(b), 0)
	if s.l.conn == nil {
		return
	}
	at := 0
	s.out.feed(s, b, func(b []byte) {
		what := s.moves(s, b)
		if what == "" {
			return
		}
		if s.l.path.foreign {
			s.l.array.tell("portal %s: %s goes to another volume, evidence %v", s.l.path.address, what, s.armed)
		}
		if s.armed && at >= old {
			s.l.array.broken("portal %s got %s for another volume (I1)", s.l.path.address, what)
		}
	}, func(n int) { at += n })
}

// framing says where PDUs end in a stream.
type framing interface {
	// frame is how many bytes of a PDU size needs, and how many are of interest.
	frame() (header, keep int)
	// size is the length of the PDU that begins with h.
	size(h []byte) int
}

// cutter finds the PDUs in a stream.
type cutter struct {
	head []byte // of the PDU that comes
	seen int    // bytes of it
	size int    // 0 while its header is not whole
}

// feed calls whole with the first bytes of each PDU that is complete; step, if
// given, for the bytes consumed before the next is looked at.
func (c *cutter) feed(f framing, b []byte, whole func(b []byte), step ...func(n int)) {
	header, keep := f.frame()
	for len(b) > 0 {
		n := min(header-c.seen, len(b))
		if c.seen >= header {
			n = min(c.size-c.seen, len(b))
		}
		if room := keep - len(c.head); room > 0 {
			c.head = append(c.head, b[:min(n, room)]...)
		}
		if c.seen += n; c.seen == header {
			c.size = max(f.size(c.head), header)
		}
		if c.seen >= header && c.seen >= c.size {
			whole(c.head)
			*c = cutter{head: c.head[:0]}
		}
		for _, s := range step {
			s(n)
		}
		b = b[n:]
	}
}
