package datapath

// Mapper is a lane's map step alone, for measurements: the same table, loads
// and selector that Submit uses, and nothing behind them. It takes a lane's
// place in the device. One goroutine at a time.
type Mapper struct {
	lane *Lane
}

// Chosen is a path that was mapped to and not yet given back.
type Chosen struct {
	lv *live
}

// Path is the path's number in the order of Open.
func (c Chosen) Path() int { return c.lv.path.index }

// OpenMapper makes a mapper, or says that all lanes are in use.
func (d *Device) OpenMapper() (*Mapper, error) {
	l, err := d.OpenLane(1)
	if err != nil {
		return nil, err
	}
	return &Mapper{lane: l}, nil
}

// Close gives the lane's place back.
func (m *Mapper) Close() { m.lane.Close() }

// Map picks the path of a command of n bytes and counts it in; false when no
// path is usable or has room. A batch of one: the table is loaded each time.
func (m *Mapper) Map(n uint32) (Chosen, bool) {
	l := m.lane
	group := l.dev.table.Load().best()
	l.beginBatch(group)
	var avoid uint32
	for range group {
		i := l.selector.Pick(&l.pick, n, avoid)
		if i < 0 {
			break
		}
		if lv := group[i]; !lv.full() {
			lv.loads[l.id].Start(n)
			return Chosen{lv}, true
		}
		avoid |= 1 << i
	}
	return Chosen{}, false
}

// Done counts the command out, as its answer does.
func (m *Mapper) Done(c Chosen, n uint32) { c.lv.loads[m.lane.id].End(n) }
