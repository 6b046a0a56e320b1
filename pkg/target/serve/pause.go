package serve

// Pause is a pause of a target's writes: what changes blocks (writes, zeroes,
// trims) is taken and held, unanswered; everything else goes on. Connections see
// nothing but time.
type Pause struct {
	s     *Server
	holds []*Held
	still chan struct{}
}

// changesBlocks are the kinds that a Pause holds.
var changesBlocks = []Kind{Writes, Zeroes, Trims}

// Pause begins a pause.
func (s *Server) Pause() (*Pause, error) {
	p := &Pause{s: s, still: make(chan struct{})}
	err := s.Change(func() error {
		for _, k := range changesBlocks {
			h, err := s.core.Hold(Match{Kind: k}, false, nil)
			if err != nil {
				return err
			}
			p.holds = append(p.holds, h)
		}
		s.core.WhenStill(ChangesBlocks, func() { close(p.still) })
		return nil
	})
	if err != nil {
		p.Resume()
		return nil, err
	}
	return p, nil
}

// ChangesBlocks reports whether a task is of those that a Pause holds.
func ChangesBlocks(t *Task) bool {
	switch t.Cmd.Traits().Kind {
	case Writes, Zeroes, Trims:
		return true
	}
	return false
}

// Still is closed when all that came before the pause is in the store, or ended.
func (p *Pause) Still() <-chan struct{} { return p.still }

// Resume ends the pause: what was held goes on, in order.
func (p *Pause) Resume() {
	p.s.Enter(func() {
		for _, h := range p.holds {
			h.Release()
		}
		p.holds = nil
	})
}
