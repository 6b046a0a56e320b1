// Package suite runs csi-sanity, the conformance suite that CSI's makers have, over
// a driver of ours. It can only run once in a process.
package suite

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	"github.com/onsi/gomega"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// Driver is what the suite runs over.
type Driver struct {
	// Endpoint serves the node, Controller the controller; empty: the same.
	Endpoint, Controller string
	// Dir is a short directory, for mounts.
	Dir string
	// Backend and Pool are where the volumes are made, over Transport.
	Backend, Pool string
	Transport     backend.Transport
	// Size is what volumes have, bytes; 0: of the suite's choice.
	Size int64
}

// ids are in the form of this driver, of things that are not there.
type ids struct {
	sanity.DefaultIDGenerator
	of Driver
}

// GenerateUniqueValidVolumeID names a volume that is not there.
func (i ids) GenerateUniqueValidVolumeID() string {
	return fmt.Sprintf("1.%s.%s.%s", i.of.Backend, i.of.Pool, backend.ObjectName(backend.VolumeObject, "nobody", fmt.Sprint(rand.Uint64())))
}

// Run runs all of it.
func Run(t *testing.T, d Driver) {
	config := sanity.NewTestConfig()
	config.Address, config.ControllerAddress, config.IDGen, config.IdempotentCount = d.Endpoint, d.Controller, ids{of: d}, 2
	config.TargetPath, config.StagingPath = filepath.Join(d.Dir, "t"), filepath.Join(d.Dir, "g")
	config.TestVolumeSize, config.TestVolumeExpandSize = d.Size, 2*d.Size
	config.TestVolumeParameters = map[string]string{"backend": d.Backend, "pool": d.Pool, "transport": string(d.Transport)}
	config.TestVolumeMutableParameters = map[string]string{"mergeDeadline": "auto"}
	sanity.GinkgoTest(&config)
	suite, reporter := ginkgo.GinkgoConfiguration()
	reporter.NoColor = true
	gomega.RegisterFailHandler(ginkgo.Fail)
	ginkgo.ReportAfterSuite("what was left out", func(r ginkgo.Report) { leftOut(t, r) })
	if !ginkgo.RunSpecs(t, "the driver over "+string(d.Transport), suite, reporter) {
		t.Error("csi-sanity found something wrong")
	}
}

// optional is what the suite may leave out: what CSI has as optional and this driver
// does not claim (docs/limitations.md), by the suite's own reason.
var optional = map[string]bool{
	"GroupControllerService not supported":             true, // snapshots of several volumes at one moment
	"ControllerListVolumeHealth not supported":         true, // alpha; the condition is in ListVolumes and ControllerGetVolume
	"ControllerGetVolumeHealth not supported":          true,
	"NodeGetStorageHealth not supported":               true,
	"SNAPSHOT_ACCESSIBILITY_CONSTRAINTS not supported": true, // a snapshot is where its volume is
	"testnodevolumeattachlimit not enabled":            true, // a node's limit is the scheduler's to keep: no controller asks nodes
}

// pending is what the suite itself does not run, wherever it is run.
const pending = "volumes added between pages"

// leftOut fails for anything else.
func leftOut(t *testing.T, r ginkgo.Report) {
	for _, s := range r.SpecReports {
		skipped := s.State.Is(types.SpecStateSkipped) && !optional[s.Failure.Message]
		if skipped || s.State.Is(types.SpecStatePending) && !strings.Contains(s.FullText(), pending) {
			t.Errorf("csi-sanity did not run %q: %s", s.FullText(), s.Failure.Message)
		}
	}
}
