//go:build interop

package csi

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/csi-mpath/csi-mpath/test/cluster"
	"github.com/csi-mpath/csi-mpath/test/story"
)

// TestMain tells all stories at the same time: most of each is waiting.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "6"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// ext4 grows online in the virtual machine only: the kernels that CI has here do
// not let it.
func TestAVolumesWholeLife(t *testing.T) {
	c := cluster.OverFUSE(t)
	story.All(t, c, func(kind string) bool { return kind != "ext4" })
}
