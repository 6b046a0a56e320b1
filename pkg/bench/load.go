package bench

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// What drive measures.
const (
	opsPerSecond metric = "op/s"
	// opsPerCPU is what opsPerSecond would be if nothing else ran on one CPU:
	// neighbours disturb it far less.
	opsPerCPU metric = "op per CPU second"
	// contextSwitches are voluntary ones of threads (getrusage).
	contextSwitches metric = "context switches per op"
)

// worker does work until stop is set, looking at it at least every millisecond,
// and returns how many operations it did.
type worker func(stop *atomic.Bool) (ops int64, err error)

// drive runs the workers for about d at once.
func drive(ctx context.Context, d time.Duration, workers []worker) (ops int64, s sample, err error) {
	var stop atomic.Bool
	var total atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, len(workers))
	before, start := usageNow(), time.Now()
	for i, w := range workers {
		wg.Go(func() {
			n, err := w(&stop)
			total.Add(n)
			errs[i] = err
		})
	}
	t := time.NewTimer(d)
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	t.Stop()
	stop.Store(true)
	wg.Wait()
	took, after := time.Since(start), usageNow()
	ops = total.Load()
	if err := errors.Join(errs...); err != nil {
		return ops, nil, err
	}
	n := float64(ops)
	return ops, sample{
		opsPerSecond:    n / took.Seconds(),
		opsPerCPU:       n / max(after.cpu-before.cpu, 1).Seconds(),
		contextSwitches: float64(after.voluntary-before.voluntary) / max(n, 1),
	}, nil
}
