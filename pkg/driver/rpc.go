package driver

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"path"
	"runtime/debug"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"k8s.io/klog/v2"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/faultpoint"
)

// Interceptor is what every call goes through: it gets an ID and a deadline, is
// logged without its secrets (I10), and its panic is an error. observe may be nil;
// it is told of each call that ended.
func Interceptor(observe func(method string, c codes.Code, took time.Duration)) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		ctx, cancel := withDeadline(ctx)
		defer cancel()
		id, began := newRequestID(), time.Now()
		logger := klog.FromContext(ctx).WithValues("request", id, "method", info.FullMethod)
		ctx = backend.WithRequestID(klog.NewContext(ctx, logger), id)
		answer, err := guarded(ctx, logger, request, handle)
		faultpoint.Here(Point(info.FullMethod))
		c, took := status.Code(err), time.Since(began)
		if err != nil {
			logger.Error(err, "call failed", "code", c.String(), "took", took, "asked", printable(request))
		} else {
			logger.V(callVerbosity(info.FullMethod)).Info("call", "took", took, "asked", printable(request))
		}
		if observe != nil {
			observe(info.FullMethod, c, took)
		}
		return answer, err
	}
}

// Point is the fault point of a method: its work is done, and its caller does not know.
func Point(method string) string { return "rpc." + path.Base(method) }

// callVerbosity keeps what comes every few seconds out of the log.
func callVerbosity(method string) int {
	switch method {
	case "/csi.v1.Identity/Probe", "/csi.v1.Node/NodeGetVolumeStats", "/csi.v1.Node/NodeGetCapabilities", "/csi.v1.Controller/ControllerGetCapabilities",
		"/csi.v1.Controller/GetCapacity", "/csi.v1.Controller/ListVolumes":
		return 5
	}
	return 2
}

// withDeadline bounds a call that its caller did not.
func withDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, bounded := ctx.Deadline(); bounded {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, callTimeout)
}

// guarded makes a panic an error, and of any error one with a code.
func guarded(ctx context.Context, logger klog.Logger, request any, handle grpc.UnaryHandler) (answer any, err error) {
	defer func() {
		if p := recover(); p != nil {
			logger.Error(fmt.Errorf("panic: %v", p), "call panicked", "stack", string(debug.Stack()))
			answer, err = nil, status.Error(codes.Internal, "internal error: see the log of this request")
		}
	}()
	answer, err = handle(ctx, request)
	return answer, asStatus(err)
}

// newRequestID is short, and random.
func newRequestID() string {
	b := make([]byte, 6)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// printable is a request as the log may have it.
func printable(request any) string {
	m, ok := request.(proto.Message)
	if !ok {
		return fmt.Sprintf("%T", request)
	}
	s := Redacted(m)
	if len(s) > maxLoggedText {
		return s[:maxLoggedText] + "..."
	}
	return s
}
