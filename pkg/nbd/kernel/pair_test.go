package kernel

import (
	"os/exec"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

func TestARefusedConnectionIsKnown(t *testing.T) {
	all, err := newPairs(2)
	must(t, err)
	kernel := dup(t, all[1].fd)
	taken, refused := giveUp(all)
	if len(taken) != 1 || taken[0] != all[1] || len(refused) != 1 || refused[0] != all[0] {
		t.Fatalf("taken %v, refused %v of %v", taken, refused, all)
	}
	must(t, unix.Close(kernel))
	drop(all)
}

func TestProcessesThatStartDoNotHideARefusal(t *testing.T) {
	f := newFake(t)
	f.attach("vol-1")
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_ = exec.Command("/proc/self/exe", "-test.run=^$").Run()
				}
			}
		})
	}
	o := options("vol-1")
	for range 300 {
		if taken, err := f.k.offer(t.Context(), 0, &o, 1); err != nil || len(taken) != 0 {
			t.Errorf("taken: %v (%v), and the old connection lives", taken, err)
			break
		}
	}
	close(stop)
	wg.Wait()
}
