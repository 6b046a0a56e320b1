package main

import (
	"os"
	"testing"
	"time"
)

// The test binary plays the roles too.
func TestMain(m *testing.M) {
	if runRole(os.Args[1:]) {
		return
	}
	os.Exit(m.Run())
}

// A small version of the run: it asserts what is correct, not what is fast.
func TestFortyVolumesComeBackFromLosingTheirPortals(t *testing.T) {
	c := config{volumes: 40, loaded: 2, idle: 100 * time.Millisecond, settle: 10 * time.Millisecond,
		outage: 300 * time.Millisecond, back: time.Minute}
	rep := &report{Suite: "scale", Volumes: c.volumes}
	if err := c.run(t.Context(), rep); err != nil {
		t.Fatal(err)
	}
	rep.judge()
	rep.print(t.Output())
	if rep.Requests == 0 || rep.Logins.Started < 4*uint64(c.volumes) {
		t.Fatalf("%d requests, %d logins", rep.Requests, rep.Logins.Started)
	}
	for _, o := range rep.Outages {
		if most := portals * (rep.Logins.PerSecond + rep.Logins.Burst); o.Rate.Peak > float64(most) {
			t.Errorf("%s: %.0f logins in a second, the bound is %d", o.Name, o.Rate.Peak, most)
		}
	}
}
