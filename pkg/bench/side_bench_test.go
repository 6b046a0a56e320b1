package bench

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// BenchmarkSides runs the sides of S3 alone, for profiles.
func BenchmarkSides(b *testing.B) {
	for _, l := range []load{loadFor(s3Lanes, 64, false), loadFor(s3Lanes, 2048, false), loadFor(1, 64, false), loadFor(1, 64, true), loadFor(s3Lanes, 64, true)} {
		name := map[bool]string{true: "single", false: "batch"}[l.single]
		for _, s := range []side{
			datapathSide("datapath", 2, 2048, l, 0),
			lockedBuildSide("locked", 2, 64, l, false),
			lockedBuildSide("locked textbook", 2, 64, l, true),
			dispatcherSide("dispatcher", dispatchQueued, 64, l),
			dispatcherSide("inline", dispatchInline, 64, l),
			dispatcherSide("textbook", dispatchTextbook, 64, l),
		} {
			b.Run(fmt.Sprintf("%s/%s/lanes=%d/depth=%d", s.name, name, l.lanes, l.depth), func(b *testing.B) { runSide(b, s) })
		}
	}
}

// BenchmarkPaths runs the datapath over one path and two, for profiles.
func BenchmarkPaths(b *testing.B) {
	for _, depth := range []int{64, 2048} {
		for paths := 1; paths <= 2; paths++ {
			b.Run(fmt.Sprintf("paths=%d/depth=%d", paths, depth), func(b *testing.B) {
				runSide(b, datapathSide("", paths, depth, loadFor(s3Lanes, depth, false), 0))
			})
		}
	}
}

// BenchmarkTags runs the sides of S2 alone.
func BenchmarkTags(b *testing.B) {
	for _, batch := range []int{1, s2Batch} {
		for _, depth := range []int{s2Small, s2Large} {
			for _, s := range s2Experiment(depth, batch, nil).sides {
				b.Run(fmt.Sprintf("%s/depth=%d/batch=%d", s.name, depth, batch), func(b *testing.B) { runSide(b, s) })
			}
		}
	}
}

func runSide(b *testing.B, s side) {
	got, err := s.run(context.Background(), time.Duration(max(b.N, 2000))*time.Microsecond)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(got[opsPerSecond]/1e6, "Mop/s")
	b.ReportMetric(got[opsPerCPU]/1e6, "Mop/cpu-s")
	b.ReportMetric(got[contextSwitches]*1e6, "switches/Mop")
}
