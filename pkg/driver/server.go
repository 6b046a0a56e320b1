package driver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

// Listen opens the socket of an endpoint, unix:///path or a path. What an earlier
// process left there goes; what is no socket stays.
func Listen(endpoint string) (net.Listener, error) {
	path := strings.TrimPrefix(strings.TrimPrefix(endpoint, "unix:"), "//")
	if !strings.HasPrefix(path, "/") {
		return nil, fmt.Errorf("endpoint %q: want unix:///path/of/the/socket", endpoint)
	}
	st, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case st.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("endpoint %s is there, and no socket: remove it, or name another", path)
	default:
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	return net.Listen("unix", path)
}

// Serve answers calls until ctx ends, and then lets those that run finish, for a
// while.
func Serve(ctx context.Context, l net.Listener, register func(*grpc.Server), observe func(string, codes.Code, time.Duration)) error {
	s := grpc.NewServer(grpc.UnaryInterceptor(Interceptor(observe)), grpc.MaxRecvMsgSize(maxMessage), grpc.MaxConcurrentStreams(maxStreams))
	register(s)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	late := time.AfterFunc(stopTimeout, s.Stop)
	defer late.Stop()
	s.GracefulStop()
	return <-done
}
