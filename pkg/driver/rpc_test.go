package driver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/volume/attrs"
)

// call makes one through the interceptor.
func call(t *testing.T, ctx context.Context, request any, handle grpc.UnaryHandler) error {
	t.Helper()
	_, err := Interceptor(nil)(ctx, request, &grpc.UnaryServerInfo{FullMethod: "/csi.v1.Controller/Test"}, handle)
	return err
}

func TestErrorsHaveTheirCodes(t *testing.T) {
	for err, want := range map[error]codes.Code{
		nil:                                   codes.OK,
		attrs.ErrInvalid:                      codes.InvalidArgument,
		backend.ErrInvalid:                    codes.InvalidArgument,
		backend.ErrNotFound:                   codes.NotFound,
		backend.ErrConflict:                   codes.AlreadyExists,
		&backend.InUse{Object: "v"}:           codes.FailedPrecondition,
		backend.ErrFenced:                     codes.FailedPrecondition,
		backend.ErrNoSpace:                    codes.ResourceExhausted,
		backend.ErrRange:                      codes.OutOfRange,
		backend.ErrBusy:                       codes.Aborted,
		backend.ErrToken:                      codes.Aborted,
		backend.ErrUnsupported:                codes.Unimplemented,
		backend.ErrDenied:                     codes.PermissionDenied,
		backend.ErrUnavailable:                codes.Unavailable,
		context.DeadlineExceeded:              codes.DeadlineExceeded,
		context.Canceled:                      codes.Canceled,
		errors.New("anything else"):           codes.Internal,
		status.Error(codes.DataLoss, "other"): codes.DataLoss,
	} {
		if got := status.Code(asStatus(err)); got != want {
			t.Errorf("%v: got %v, want %v", err, got, want)
		}
		if err != nil && status.Code(err) == codes.Unknown {
			if got := status.Code(asStatus(fmt.Errorf("backend east: %w", err))); got != want {
				t.Errorf("%v, wrapped: got %v, want %v", err, got, want)
			}
		}
	}
}

func TestAPanicIsAnErrorThatTellsNothing(t *testing.T) {
	err := call(t, t.Context(), &csi.ProbeRequest{}, func(context.Context, any) (any, error) { panic("marked") })
	if m := is(t, err, codes.Internal, "a panic"); strings.Contains(m, "marked") {
		t.Errorf("got %q", m)
	}
}

func TestEveryCallHasAnEnd(t *testing.T) {
	for _, limited := range []bool{true, false} {
		ctx, want := t.Context(), callTimeout
		if limited {
			var cancel context.CancelFunc
			want = time.Hour
			ctx, cancel = context.WithTimeout(ctx, want)
			defer cancel()
		}
		err := call(t, ctx, &csi.ProbeRequest{}, func(ctx context.Context, _ any) (any, error) {
			if end, ok := ctx.Deadline(); !ok || time.Until(end) > want || time.Until(end) < want/2 {
				t.Errorf("limited %t: ends at %v", limited, end)
			}
			return nil, nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// TestTheLogHasNoSecrets puts one everywhere (I10).
func TestTheLogHasNoSecrets(t *testing.T) {
	var log bytes.Buffer
	klog.SetSlogLogger(slog.New(slog.NewTextHandler(&log, nil)))
	defer klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	const marked = "marked-secret-123"
	secrets := map[string]string{"node.session.auth.password": marked, "anything": marked}
	for _, r := range []any{
		&csi.CreateVolumeRequest{Name: "seen", Secrets: secrets, Parameters: map[string]string{"secret": marked}},
		&csi.ControllerPublishVolumeRequest{VolumeId: "seen", Secrets: secrets, VolumeContext: map[string]string{"secretRef": marked, "dhchap-ctrl": marked}},
		&csi.NodeStageVolumeRequest{VolumeId: "seen", Secrets: secrets, PublishContext: map[string]string{"node.session.auth.password": marked}},
		&csi.NodePublishVolumeRequest{VolumeId: "seen", Secrets: secrets, VolumeContext: map[string]string{"csi.storage.k8s.io/serviceAccount.tokens": marked}},
		&csi.ListSnapshotsRequest{SnapshotId: "seen", Secrets: secrets},
	} {
		_ = call(t, t.Context(), r, func(context.Context, any) (any, error) { return nil, errors.New("refused") })
	}
	if s := log.String(); strings.Contains(s, marked) || strings.Count(s, "seen") != 5 || !strings.Contains(s, "request=") {
		t.Errorf("the log has %q", s)
	}
}

func TestABackendLearnsWhichRequestItWorksFor(t *testing.T) {
	seen := map[string]bool{}
	for range 2 {
		_ = call(t, t.Context(), &csi.ProbeRequest{}, func(ctx context.Context, _ any) (any, error) {
			seen[backend.RequestID(ctx)] = true
			return nil, nil
		})
	}
	if len(seen) != 2 || seen[""] {
		t.Errorf("got %v", seen)
	}
}

func TestCallsAreObserved(t *testing.T) {
	var got []string
	i := Interceptor(func(method string, c codes.Code, _ time.Duration) { got = append(got, method+" "+c.String()) })
	_, _ = i(t.Context(), &csi.ProbeRequest{}, &grpc.UnaryServerInfo{FullMethod: "/m"}, func(context.Context, any) (any, error) { return nil, backend.ErrBusy })
	if len(got) != 1 || got[0] != "/m Aborted" {
		t.Errorf("got %v", got)
	}
}
