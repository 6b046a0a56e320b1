package kernel

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mdlayher/genetlink"
	"golang.org/x/sys/unix"
)

// AnyIndex is what Watch reports when events were lost: any device may have
// lost a connection.
const AnyIndex = -1

// Watch calls dead, which must not block, with the index of each device that
// lost a connection, until ctx ends; then it returns ctx's error. The kernel
// tells it only to its first network namespace. ready, which may be nil, is
// closed when no event can be missed any more.
func Watch(ctx context.Context, ready chan<- struct{}, dead func(index int)) error {
	c, err := subscribe()
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	if ready != nil {
		close(ready)
	}
	for {
		all, _, err := c.Receive()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, unix.ENOBUFS):
			dead(AnyIndex)
		case err != nil:
			return fmt.Errorf("nbd: receive events: %w", err)
		}
		for _, a := range all {
			if index, ok := deadLink(a); ok {
				dead(index)
			}
		}
	}
}

func subscribe() (*genetlink.Conn, error) {
	c, family, err := dial()
	if err != nil {
		return nil, err
	}
	_ = c.SetReadBuffer(eventBuffer) // a wish; what does not fit is AnyIndex
	for _, g := range family.Groups {
		if g.Name == groupName {
			if err := c.JoinGroup(g.ID); err != nil {
				_ = c.Close()
				return nil, fmt.Errorf("nbd: join the event group %s: %w", groupName, err)
			}
			return c, nil
		}
	}
	_ = c.Close()
	return nil, fmt.Errorf("nbd: the kernel has no event group %s", groupName)
}

// deadLink reads an event; ok says that it is about a dead connection.
func deadLink(a genetlink.Message) (index int, ok bool) {
	if command(a.Header.Command) != cmdLinkDead {
		return 0, false
	}
	m, err := decode(cmdLinkDead, a.Data)
	if err != nil || m.index == nil {
		return AnyIndex, true
	}
	return int(*m.index), true
}
