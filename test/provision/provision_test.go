//go:build interop

package main

import (
	"os"
	"testing"
)

// A small version of the run: it asserts what is correct, not what is fast.
func TestFiftyVolumesAreServedAgainAfterAKill(t *testing.T) {
	c := config{bin: os.Getenv("CSI_MPATH_BIN"), volumes: 50, callers: 20, dir: t.TempDir()}
	rep, err := c.run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	rep.print(t.Output())
}
