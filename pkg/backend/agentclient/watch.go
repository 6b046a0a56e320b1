package agentclient

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"

	"github.com/csi-mpath/csi-mpath/pkg/agent/agentpb"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// Watch follows the agent's events over lost connections and restarts of the
// agent, and says with EventsLost that some may be missing. It ends with ctx, or
// when the agent refuses for good.
func (c *Client) Watch(ctx context.Context, f func(backend.Event)) error {
	before := false // there was a connection
	for {
		watching, err := c.watch(ctx, before, f)
		before = before || watching
		if ctx.Err() != nil {
			return ctx.Err()
		}
		for _, final := range []error{backend.ErrDenied, backend.ErrUnsupported, backend.ErrInvalid} {
			if errors.Is(err, final) {
				return err
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryFirst):
		}
	}
}

// watch follows events over one connection, and reports whether there was one.
// again: it is not the first.
func (c *Client) watch(ctx context.Context, again bool, f func(backend.Event)) (watching bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.rpc.WatchEvents(named(ctx), &agentpb.WatchEventsRequest{}, grpc.WaitForReady(true))
	if err != nil {
		return false, agentpb.FromStatus(ctx, err)
	}
	if h, err := stream.Header(); err == nil && h != nil {
		watching = true
		if again {
			f(backend.Event{Time: time.Now(), Kind: backend.EventsLost, Warning: true,
				Message: "the connection to agent " + c.address + " was lost: events in between are missing"})
		}
	}
	for {
		m, err := stream.Recv()
		if err != nil {
			return watching, agentpb.FromStatus(ctx, err)
		}
		e, err := m.Backend()
		if _, err = believe(c, e, err); err != nil {
			return watching, err
		}
		f(e)
	}
}
