package iscsi

import (
	"github.com/csi-mpath/csi-mpath/pkg/wire"
	"testing"
	"time"
)

func TestASilentIdlePathIsDroppedAfterTheKeepAliveAndThePathTimeout(t *testing.T) {
	w := wire.Watchdog{Path: 5 * time.Second, Idle: idlePing}
	ticks := 0
	for now, outstanding := wire.TickInterval, false; ; ticks++ {
		switch w.Tick(now, 1, outstanding) {
		case wire.WatchPing:
			outstanding = true // and no answer comes
		case wire.WatchDead:
			if limit := idlePing + 5*time.Second + 4*wire.TickInterval; now < idlePing+5*time.Second || now > limit {
				t.Fatalf("dropped after %v, the bound is %v", now, limit)
			}
			if ticks > 5*20+10 {
				t.Fatalf("%d ticks, most of them while nothing was outstanding", ticks)
			}
			return
		case wire.WatchOK:
		}
		if now += max(w.Quiet(now), wire.TickInterval); now > time.Minute {
			t.Fatal("never dropped")
		}
	}
}

func TestAnAnsweringIdlePathCostsAFewTicksPerKeepAlive(t *testing.T) {
	w := wire.Watchdog{Path: 5 * time.Second, Idle: idlePing}
	ticks, pings, received, outstanding := 0, 0, uint64(0), false
	for now := wire.TickInterval; now < 10*time.Minute; ticks++ {
		switch w.Tick(now, received, outstanding) {
		case wire.WatchPing:
			pings++
			received++ // the answer is there at the next tick
		case wire.WatchDead:
			t.Fatal("dropped")
		case wire.WatchOK:
		}
		now += max(w.Quiet(now), wire.TickInterval)
	}
	if most := int(10 * time.Minute / idlePing); pings < most*9/10 || pings > most+1 || ticks > 2*pings+2 {
		t.Fatalf("%d pings and %d ticks in 10 minutes", pings, ticks)
	}
}

func TestACommandRousesTheTickerAndIsAsYoungAsItIs(t *testing.T) {
	r := newRig(t, defaultParams())
	if d := r.m.Clock.Rest(time.Second); d != time.Second || !r.m.Clock.Asleep() {
		t.Fatalf("an idle session's ticker sleeps %v", d)
	}
	r.now += int64(time.Hour) // the coarse clock stands still meanwhile
	c := read(0, 512)
	r.submit(c)
	r.take()
	if r.m.Clock.Asleep() || len(r.m.Clock.Wake) != 1 {
		t.Fatal("the ticker sleeps on")
	}
	now := uint32(time.Duration(r.now) / wire.TickInterval)
	if r.m.Tasks.TooOld(now, wire.Ticks(time.Second), wire.Ticks(time.Second)) {
		t.Fatal("the command is as old as the sleep")
	}
	if d := r.m.Clock.Rest(time.Hour); d != wire.TickInterval {
		t.Fatalf("the ticker wants to sleep %v while a command is out", d)
	}
}

func TestATickerDoesNotSleepThroughTheTargetsWishToEnd(t *testing.T) {
	r := newRig(t, defaultParams())
	r.m.Clock.Rest(time.Hour)
	r.now += int64(time.Hour)
	r.m.leave(1)
	now := uint32(time.Duration(r.now) / wire.TickInterval)
	if left := int32(r.m.leaving.Load() - now); r.m.Clock.Asleep() || len(r.m.Clock.Wake) != 1 || left < int32(wire.Ticks(time.Second))-2 {
		t.Fatalf("asleep %v, %d ticks left to log out", r.m.Clock.Asleep(), left)
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
