package sim

import (
	"strings"
	"testing"
)

func TestOneRunWithoutFaults(t *testing.T) {
	s, err := Parse(strings.NewReader("set seed 1\n"))
	if err != nil {
		t.Fatal(err)
	}
	rep := Play(t, s, t.TempDir())
	t.Logf("%+v %v", rep.Stats, rep.Virtual)
	for _, b := range rep.Broken {
		t.Error(b)
	}
}
