package iscsi

import (
	"testing"
	"time"
)

func TestASilentIdlePathIsDroppedAfterTheKeepAliveAndThePathTimeout(t *testing.T) {
	w := watchdog{path: 5 * time.Second, idle: idlePing}
	ticks := 0
	for now, outstanding := tickInterval, false; ; ticks++ {
		switch w.tick(now, 1, outstanding) {
		case watchPing:
			outstanding = true // and no answer comes
		case watchDead:
			if limit := idlePing + 5*time.Second + 4*tickInterval; now < idlePing+5*time.Second || now > limit {
				t.Fatalf("dropped after %v, the bound is %v", now, limit)
			}
			if ticks > 5*20+10 {
				t.Fatalf("%d ticks, most of them while nothing was outstanding", ticks)
			}
			return
		case watchOK:
		}
		if now += max(w.quiet(now), tickInterval); now > time.Minute {
			t.Fatal("never dropped")
		}
	}
}

func TestAnAnsweringIdlePathCostsAFewTicksPerKeepAlive(t *testing.T) {
	w := watchdog{path: 5 * time.Second, idle: idlePing}
	ticks, pings, received, outstanding := 0, 0, uint64(0), false
	for now := tickInterval; now < 10*time.Minute; ticks++ {
		switch w.tick(now, received, outstanding) {
		case watchPing:
			pings++
			received++ // the answer is there at the next tick
		case watchDead:
			t.Fatal("dropped")
		case watchOK:
		}
		now += max(w.quiet(now), tickInterval)
	}
	if most := int(10 * time.Minute / idlePing); pings < most*9/10 || pings > most+1 || ticks > 2*pings+2 {
		t.Fatalf("%d pings and %d ticks in 10 minutes", pings, ticks)
	}
}

func TestACommandRousesTheTickerAndIsAsYoungAsItIs(t *testing.T) {
	r := newRig(t, defaultParams())
	if d := r.m.rest(time.Second); d != time.Second || !r.m.asleep.Load() {
		t.Fatalf("an idle session's ticker sleeps %v", d)
	}
	r.now += int64(time.Hour) // the coarse clock stands still meanwhile
	c := read(0, 512)
	r.submit(c)
	r.take()
	if r.m.asleep.Load() || len(r.m.wakeTicker) != 1 {
		t.Fatal("the ticker sleeps on")
	}
	now := uint32(time.Duration(r.now) / tickInterval)
	if r.m.tasks.tooOld(now, ticks(time.Second), ticks(time.Second)) {
		t.Fatal("the command is as old as the sleep")
	}
	if d := r.m.rest(time.Hour); d != tickInterval {
		t.Fatalf("the ticker wants to sleep %v while a command is out", d)
	}
}

func TestWhatABatchTakesInLateRousesTheTicker(t *testing.T) {
	for name, f := range map[string]func(r *rig){
		"command": func(r *rig) {
			r.submit(read(0, 512))
			r.m.tx.commands()
		},
		"control": func(r *rig) {
			r.m.queue(r.m.newControl(ctlPing))
			r.m.tx.control()
		},
	} {
		r := newRig(t, defaultParams())
		r.m.tx.borrow() // as in the middle of a batch
		r.m.rest(time.Hour)
		f(r)
		if r.m.asleep.Load() || len(r.m.wakeTicker) != 1 {
			t.Errorf("%s: the ticker sleeps on", name)
		}
	}
}

func TestATickerDoesNotSleepThroughTheTargetsWishToEnd(t *testing.T) {
	r := newRig(t, defaultParams())
	r.m.rest(time.Hour)
	r.now += int64(time.Hour)
	r.m.leave(1)
	now := uint32(time.Duration(r.now) / tickInterval)
	if left := int32(r.m.leaving.Load() - now); r.m.asleep.Load() || len(r.m.wakeTicker) != 1 || left < int32(ticks(time.Second))-2 {
		t.Fatalf("asleep %v, %d ticks left to log out", r.m.asleep.Load(), left)
	}
}

func TestSessionsDoNotPingAtOnce(t *testing.T) {
	seen := map[time.Duration]bool{}
	for i := range 256 {
		d := idlePeriod([6]byte{5: byte(i)})
		if d > idlePing || d < idlePing*3/4 {
			t.Fatalf("%v", d)
		}
		seen[d] = true
	}
	if len(seen) != 256 {
		t.Fatalf("%d different periods", len(seen))
	}
}
