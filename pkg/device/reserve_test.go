package device

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/scsi"
	"github.com/csi-mpath/csi-mpath/pkg/target/serve"
)

const (
	us   key = 0xabcd_0000_0000_0000
	them key = 0x1234_0000_0000_0000
)

func TestWhatAPathDoesNextFollowsFromWhatTheStorageSays(t *testing.T) {
	one, two, other := us.member(1), us.member(2), them.member(1)
	held := func(by key, keys ...key) registry {
		return registry{held: true, fits: true, holder: by, keys: keys}
	}
	free := func(keys ...key) registry { return registry{keys: keys} }
	always := func(key) bool { return true }
	never := func(key) bool { return false }
	take := func(r registry, c claim, careful bool) step { return c.take(&r, careful) }
	keep := func(r registry, c claim, joins bool, p func(key) bool) step { return c.keep(&r, joins, p) }
	leave := func(r registry) step { return (&claim{mine: one}).leave(&r) }
	begun, in := claim{mine: one}, claim{mine: one, registered: true}
	for name, c := range map[string]struct {
		got  step
		want action
		key  key
	}{
		"an opening registers first":                 {take(held(other, other), begun, false), actRegister, one},
		"then it removes the holder":                 {take(held(other, other, one), in, false), actPreempt, other},
		"whatever it holds by":                       {take(registry{held: true, holder: other, keys: []key{one, other}}, in, false), actPreempt, other},
		"and all that hold it together":              {take(registry{held: true, shared: true, keys: []key{one, other}}, in, false), actPreempt, 0},
		"it takes what nobody holds":                 {take(free(other, one), in, false), actReserve, 0},
		"and then removes who is registered":         {take(held(one, other, one), in, false), actPreempt, other},
		"until nobody else is":                       {take(held(one, one, two), in, false), actDone, 0},
		"one that was removed meanwhile gives up":    {take(held(other, other), in, false), actLost, 0},
		"a restart does not take from who came":      {take(held(other, other), begun, true), actLost, 0},
		"it goes on with what is free":               {take(free(), begun, true), actRegister, one},
		"a path that joins registers":                {keep(held(two, two, one), begun, true, always), actRegister, one},
		"one that has stays":                         {keep(held(two, two, one), begun, false, always), actDone, 0},
		"one whose key is gone registers again":      {keep(held(two, two), begun, false, always), actRegister, one},
		"and then is in":                             {keep(held(two, two, one), in, true, always), actDone, 0},
		"another holder ends it":                     {keep(held(other, other, one), in, true, always), actLost, 0},
		"another type does":                          {keep(registry{held: true, holder: two, keys: []key{two}}, begun, true, always), actLost, 0},
		"so does a table that forgot":                {keep(free(), begun, true, always), actLost, 0},
		"a registration that stayed proves the rest": {keep(free(two, one), in, true, always), actReserve, 0},
		"one that is being made does not":            {keep(free(one), in, true, never), actLost, 0},
		"one that was removed at once ends it":       {keep(held(two, two), in, true, always), actLost, 0},
		"the end removes what dead paths left":       {leave(held(two, two, one)), actPreempt, two},
		"then the reservation":                       {leave(held(one, one, other)), actRelease, 0},
		"then itself":                                {leave(free(one)), actUnregister, one},
		"and then is over":                           {leave(free(other)), actDone, 0},
		"a path that never joined does it too":       {leave(held(two, two)), actRegister, one},
		"what is another's is left alone":            {leave(held(other, other, two)), actDone, 0},
		"but for its own part":                       {leave(held(other, other, one)), actUnregister, one},
	} {
		if c.got.do != c.want || c.got.key != c.key || (c.want == actLost) != (c.got.why != "") {
			t.Errorf("%s: %+v, want action %d of key %#x", name, c.got, c.want, c.key)
		}
	}
}

// table is a unit's registrations, those of its target.
type table = serve.Reservations[string, scsi.ReserveType]

// actor is a path of a node, which takes a volume, joins it, or looks after it: one
// command at a time, so that others come between.
type actor struct {
	name    string // its nexus
	claim   claim
	joins   bool
	view    registry
	read    int // how much of view is read
	next    func(a *actor) step
	ended   bool
	late    bool // it began after the volume was taken
	outcome step
}

// turn does one command.
func (a *actor) turn(t *table) {
	const kind = scsi.WriteExclusiveRegistrantsOnly
	switch a.read {
	case 0:
		a.view = registry{held: t.Held(), fits: t.Type() == kind}
		if t.Held() {
			a.view.holder = key(t.HolderKey())
		}
		a.read++
		return
	case 1:
		for _, n := range t.Registrants() {
			k, _ := t.Key(n)
			a.view.keys = append(a.view.keys, key(k))
		}
		a.read++
		return
	}
	a.read = 0
	s := a.next(a)
	mine, in := t.Key(a.name)
	in = in && key(mine) == a.claim.mine
	switch {
	case s.do == actDone:
		a.ended, a.outcome = true, s
	case s.do == actLost && a.claim.registered && in:
		a.read, a.next = 2, func(*actor) step { return step{do: actLost} }
		a.claim.registered = false
		t.Remove(a.name)
	case s.do == actLost:
		a.ended, a.outcome = true, s
	case s.do == actRegister:
		a.claim.registered = true
		t.Register(a.name, uint64(a.claim.mine))
	case !in: // a conflict
	case s.do == actReserve:
		t.Reserve(a.name, kind)
	case s.do == actPreempt:
		if p := t.Preempts(a.name, uint64(s.key)); len(p.Out) > 0 || p.Takes {
			t.Preempt(a.name, p, kind)
		}
	case s.do == actRelease && t.Holds(a.name):
		t.Release()
	case s.do == actUnregister:
		t.Remove(a.name)
	}
}

// I9 against a twin of the target's table: whoever took a volume is not disturbed
// by paths of the node before that come and go at any moment, and those do not come
// back once the volume was taken, not even when it is free again.
func TestNoOrderOfTwoNodesLetsTheFirstWriteAfterTheSecondHasTheVolume(t *testing.T) {
	outcomes := map[action]int{}
	for seed := range uint64(3000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var tab table
		fresh := map[key]int{}
		keeps := func(a *actor) step {
			s := a.claim.keep(&a.view, a.joins, func(k key) bool { return fresh[k] == 0 })
			if s.do == actRegister && !a.claim.registered {
				fresh[a.claim.mine]++
			}
			return s
		}
		takes := func(a *actor) step { return a.claim.take(&a.view, false) }
		first := &actor{name: "a1", claim: claim{mine: us.member(1)}, next: takes}
		for !first.ended {
			first.turn(&tab)
		}
		var olds []*actor
		for i := range 3 {
			n := uint16(i + 1)
			olds = append(olds, &actor{name: fmt.Sprintf("a%d", n), claim: claim{mine: us.member(n)}, joins: rng.IntN(2) == 0, next: keeps})
		}
		taker := &actor{name: "b1", claim: claim{mine: them.member(1)}, next: takes}
		leaver := &actor{name: "b1", claim: claim{mine: them.member(1)}, next: func(a *actor) step { return a.claim.leave(&a.view) }}
		for !taker.ended || !leaver.ended {
			was := taker.ended
			switch o := olds[rng.IntN(3)]; {
			case rng.IntN(3) == 0 && !taker.ended:
				taker.turn(&tab)
			case rng.IntN(8) == 0 && taker.ended:
				leaver.turn(&tab)
			case !o.ended:
				o.turn(&tab)
				if o.ended {
					if fresh[o.claim.mine] > 0 {
						fresh[o.claim.mine]--
					}
					outcomes[o.outcome.do]++
				}
				if o.ended && o.outcome.do == actDone && o.late {
					t.Fatalf("seed %d: %s joined after the volume was taken", seed, o.name)
				}
			default:
				*o = actor{name: o.name, claim: claim{mine: o.claim.mine}, joins: rng.IntN(2) == 0, next: keeps,
					ended: o.outcome.do == actLost, outcome: o.outcome, late: taker.ended}
			}
			if taker.ended && !was && taker.outcome.do != actDone {
				t.Fatalf("seed %d: the taker ended with %+v", seed, taker.outcome)
			}
			for _, o := range olds {
				if taker.ended && !leaver.claim.registered && leaver.view.keys == nil && tab.Held() && tab.Admits(o.name) && o.ended {
					t.Fatalf("seed %d: %s may write to what another has", seed, o.name)
				}
			}
		}
	}
	if outcomes[actDone] == 0 || outcomes[actLost] == 0 {
		t.Fatalf("outcomes %v: one kind of end never came", outcomes)
	}
}

func TestAReservationRecordIsReadStrictly(t *testing.T) {
	dir := t.TempDir()
	h, err := newHolder(dir+"/v.reservation", "v", false, nil)
	if err != nil {
		t.Fatal(err)
	}
	again, err := newHolder(dir+"/v.reservation", "v", true, nil)
	if err != nil || again.family != h.family || !again.careful || again.hold != holdTaking {
		t.Fatalf("%+v, %v", again, err)
	}
	if anew, err := newHolder(dir+"/v.reservation", "v", false, nil); err != nil || anew.family == h.family {
		t.Fatalf("a new opening has the keys of the one before, %v", err)
	}
	good := fmt.Sprintf(`{"version":1,"bootID":"x","family":"%016x","hold":"held"}`, uint64(us))
	if _, family, ok, err := parseReservation([]byte(good)); err != nil || ok || family != us {
		t.Fatalf("%#x, of this boot %v, %v", family, ok, err)
	}
	for _, change := range [][2]string{{`"version":1`, `"version":2`}, {"abcd", "abc"}, {"0000\"", "0001\""}, {"held", "perhaps"}, {"{", "["}, {"abcd000000000000", "0000000000000000"}} {
		if _, _, _, err := parseReservation([]byte(strings.Replace(good, change[0], change[1], 1))); err == nil {
			t.Errorf("%s for %s is accepted", change[1], change[0])
		}
	}
}

func FuzzReservationRecord(f *testing.F) {
	f.Add([]byte(`{"version":1,"bootID":"x","family":"abcd000000000000","hold":"held"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, family, _, err := parseReservation(b); err == nil && (family == 0 || family.family() != family) {
			t.Errorf("%q is a family %#x", b, family)
		}
	})
}
