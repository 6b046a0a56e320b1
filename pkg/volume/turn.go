package volume

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// op is the one operation that a volume has at a time.
type op struct {
	volume string
	done   chan struct{} // closed at its end

	mu     sync.Mutex
	cancel context.CancelFunc // set when nobody waits for it any more
}

// abandon says that nobody waits: who needs the volume may cancel it.
func (o *op) abandon(cancel context.CancelFunc) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.cancel = cancel
}

// giveWay ends an operation that nobody waits for; false: somebody does.
func (o *op) giveWay() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.cancel != nil {
		o.cancel()
	}
	return o.cancel != nil
}

// begin takes a volume's turn, or is ErrBusy: no call waits for another's I/O.
func (n *Node) begin(volume string) (*op, error) {
	if err := checkVolume(volume); err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, fmt.Errorf("volume %s: %w: the node plugin ends", volume, ErrUnavailable)
	}
	if n.ops[volume] != nil {
		return nil, fmt.Errorf("volume %s: %w", volume, ErrBusy)
	}
	o := &op{volume: volume, done: make(chan struct{})}
	n.ops[volume] = o
	return o, nil
}

func (n *Node) end(o *op) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ops[o.volume] == o {
		delete(n.ops, o.volume)
		close(o.done)
	}
}

// preempt is begin for who may end what nobody waits for.
func (n *Node) preempt(ctx context.Context, volume string) (*op, error) {
	ctx, cancel := context.WithTimeout(ctx, giveWay)
	defer cancel()
	return n.beginWhen(ctx, volume, (*op).giveWay)
}

// wait is begin for who waits for everybody.
func (n *Node) wait(ctx context.Context, volume string) (*op, error) {
	return n.beginWhen(ctx, volume, func(*op) bool { return true })
}

// beginWhen begins, after the operation in progress if worth says so of it.
func (n *Node) beginWhen(ctx context.Context, volume string, worth func(*op) bool) (*op, error) {
	for {
		o, err := n.begin(volume)
		if !errors.Is(err, ErrBusy) {
			return o, err
		}
		n.mu.Lock()
		before := n.ops[volume]
		n.mu.Unlock()
		if before == nil {
			continue
		}
		if !worth(before) {
			return nil, err
		}
		select {
		case <-before.done:
		case <-ctx.Done():
			return nil, err
		}
	}
}
