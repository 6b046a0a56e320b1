package bench

import (
	"context"
	"fmt"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/datapath"
	"github.com/csi-mpath/csi-mpath/pkg/pathsel"
)

func benchMap[T any](b *testing.B, m chooser[T]) {
	var ring [s1InFlight]T
	for i := range ring {
		ring[i], _ = m.Map(requestSize)
	}
	for i := 0; b.Loop(); i = (i + 1) % s1InFlight {
		m.Done(ring[i], requestSize)
		ring[i], _ = m.Map(requestSize)
	}
}

func BenchmarkMapAlone(b *testing.B) {
	for _, sel := range []pathsel.Selector{pathsel.RoundRobin{}, pathsel.QueueLength{}, pathsel.ServiceTime{}} {
		for _, lanes := range []int{1, 8} {
			b.Run(fmt.Sprintf("snapshot/%s/lanes=%d", sel.Name(), lanes), func(b *testing.B) {
				paths := []*nullPath{newNullPath(0, 1, 1), newNullPath(1, 1, 1), newNullPath(2, 1, 1), newNullPath(3, 1, 1)}
				dev, err := openDevice(context.Background(), sel, paths)
				if err != nil {
					b.Fatal(err)
				}
				var m *datapath.Mapper
				for range lanes {
					if m, err = dev.OpenMapper(); err != nil {
						b.Fatal(err)
					}
				}
				benchMap[datapath.Chosen](b, m)
			})
		}
		b.Run("RWMutex/"+sel.Name(), func(b *testing.B) { benchMap[int](b, newLockedMap(rwLocked, sel)) })
		b.Run("Mutex/"+sel.Name(), func(b *testing.B) { benchMap[int](b, newLockedMap(mutexLocked, sel)) })
	}
}
