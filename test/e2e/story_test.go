//go:build e2e

package e2e

import (
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/test/e2e/lab"
)

// What a part of the story may take, on a busy machine: these are for hangs.
const (
	soon   = time.Minute
	longer = 4 * time.Minute
)

// A volume over each transport, from helm install until nothing is left but CRDs.
func TestAVolumesLifeInACluster(t *testing.T) {
	s := &story{t: t, Lab: lab.Start(t)}
	for _, chapter := range []struct {
		name string
		tell func()
	}{
		{"helm installs the driver", s.install},
		{"pods write to claims over both transports", s.provision},
		{"the driver is not uninstalled under volumes", s.keep},
		{"a network of the storage dies and returns", s.cut},
		{"volumes grow under their pods", s.expand},
		{"snapshots become volumes, and so do volumes", s.clone},
		{"volumes are tuned under their pods", s.tune},
		{"a pod has a raw block device", s.raw},
		{"a node is lost, and its volumes go elsewhere", s.lose},
		{"the lost node returns and gives up what it had", s.rejoin},
		{"nothing is left but CRDs", s.leave},
	} {
		begin := time.Now()
		if !t.Run(chapter.name, func(t *testing.T) { s.in(t, chapter.tell) }) {
			return
		}
		t.Logf("%-60s %v", chapter.name, time.Since(begin).Round(100*time.Millisecond))
	}
}
