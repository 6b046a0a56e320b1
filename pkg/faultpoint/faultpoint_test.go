package faultpoint

import (
	"slices"
	"testing"
)

func TestATraceCountsThePointsOfACall(t *testing.T) {
	Here("before")
	got := Trace(func() { Here("a"); Here("b"); Here("a") })
	Here("after")
	if want := []string{"a:1", "b:1", "a:2"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestAHookIsPutBack(t *testing.T) {
	n := 0
	restore := Set(func(string) { n++ })
	Trace(func() { Here("a") })
	Here("b")
	restore()
	Here("c")
	if n != 1 {
		t.Errorf("the hook was called %d times, want 1", n)
	}
}
