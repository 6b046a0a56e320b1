package datapath

import "time"

// judge decides which paths are marginal: so slow beside the others that they
// hold everything up, though they work. Pure: observations and the time in,
// marks out. The caller looks every judgePeriod while there is traffic.
//
// A path is judged by what its timed commands cost for each byte of the queue
// they stood in: a path that carries large commands, or many, answers later
// and is not slower for that. The queue is what the path moved in the time of
// one answer (Little's law), so a path's own traffic is the measure.
type judge struct {
	paths []health
}

// observation is what one path showed. Counters count since it came up.
type observation struct {
	fit     bool          // live, usable, identity not in question
	inc     uint32        // incarnation: a new one starts counting again
	answers uint64        // timed reads and writes
	busy    time.Duration // the time they took, together
	waiting time.Duration // since when the timed one in flight is out, 0 for none
	moved   uint64        // bytes answered
}

// health is what the judge knows of one path.
type health struct {
	last     observation
	from     time.Duration // when last was taken
	cost     float64       // ns per byte of queue; 0: nothing fresh
	latency  time.Duration // of the last window
	costAt   time.Duration
	bad      int // looks in a row that were bad
	marginal bool
	// While marginal: probes in a row that were good, how many it takes, and
	// when it last recovered.
	good, need int
	recovered  time.Duration
}

// look takes one observation of each path and returns whether a mark changed.
func (j *judge) look(now time.Duration, all []observation) (changed bool) {
	for len(j.paths) < len(all) {
		j.paths = append(j.paths, health{need: goodProbes})
	}
	for i := range all {
		j.paths[i].observe(now, all[i])
	}
	for i := range j.paths {
		h := &j.paths[i]
		if h.marginal || h.costAt != now || !all[i].fit {
			continue
		}
		best := j.best(now, all, i)
		if best == 0 || h.latency < marginalFloor || h.cost < marginalRatio*best {
			h.bad = 0
			continue
		}
		if h.bad++; h.bad >= badLooks {
			h.condemn(now)
			changed = true
		}
	}
	return changed
}

// best is the least fresh cost among the other paths that are in order; 0 when
// there is none: the last path is never marginal.
func (j *judge) best(now time.Duration, all []observation, but int) (best float64) {
	for i := range j.paths {
		h := &j.paths[i]
		if i == but || h.marginal || !all[i].fit || h.cost == 0 || now-h.costAt > costFresh {
			continue
		}
		if best == 0 || h.cost < best {
			best = h.cost
		}
	}
	return best
}

// observe turns the counters into a cost, once enough was answered, or the
// timed command has been out for longer than anything took.
func (h *health) observe(now time.Duration, o observation) {
	if o.inc != h.last.inc || !o.fit {
		h.last, h.from, h.bad, h.cost = o, now, 0, 0
		return
	}
	n, took := o.answers-h.last.answers, now-h.from
	latency := o.waiting
	if n > 0 {
		latency = max(latency, (o.busy-h.last.busy)/time.Duration(n))
	}
	if latency == 0 || n < enoughAnswers && took < costFresh/2 && o.waiting < marginalFloor || took <= 0 {
		return
	}
	queue := float64(o.moved-h.last.moved) / float64(took) * float64(latency)
	h.cost = float64(latency) / (queue + queueFloor)
	h.latency, h.costAt = latency, now
	h.last, h.from = o, now
}

// condemn marks the path. One that relapses soon after it recovered needs twice
// as many good probes as before.
func (h *health) condemn(now time.Duration) {
	if h.recovered != 0 && now-h.recovered < relapseWithin {
		h.need = min(2*h.need, maxGoodProbes)
	} else {
		h.need = goodProbes
	}
	h.marginal, h.good, h.bad, h.cost = true, 0, 0, 0
}

// probed takes the result of a probe of marginal path i: its time beside that
// of a path in order, 0 if there is none, and whether it was answered at all.
// True: the path has recovered.
func (j *judge) probed(i int, now, took, reference time.Duration, answered bool) bool {
	h := &j.paths[i]
	if !h.marginal {
		return false
	}
	if !answered || took > max(probeRatio*reference, marginalFloor) {
		h.good = 0
		return false
	}
	if h.good++; h.good < h.need {
		return false
	}
	h.marginal, h.recovered = false, now
	h.cost, h.from = 0, now
	return true
}

// marked reports the mark of path i.
func (j *judge) marked(i int) bool { return i < len(j.paths) && j.paths[i].marginal }

// any reports whether a path is marked.
func (j *judge) any() bool {
	for i := range j.paths {
		if j.paths[i].marginal {
			return true
		}
	}
	return false
}
