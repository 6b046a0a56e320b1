package agentpb

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// kinds are the errors of package backend, what the wire calls them, and the gRPC
// code that programs see which know nothing of us.
var kinds = []struct {
	err  error
	kind ErrorDetail_Kind
	code codes.Code
}{
	{backend.ErrNotFound, ErrorDetail_NOT_FOUND, codes.NotFound},
	{backend.ErrConflict, ErrorDetail_CONFLICT, codes.AlreadyExists},
	{backend.ErrInUse, ErrorDetail_IN_USE, codes.FailedPrecondition},
	{backend.ErrNoSpace, ErrorDetail_NO_SPACE, codes.ResourceExhausted},
	{backend.ErrRange, ErrorDetail_RANGE, codes.OutOfRange},
	{backend.ErrBusy, ErrorDetail_BUSY, codes.Aborted},
	{backend.ErrToken, ErrorDetail_TOKEN, codes.Aborted},
	{backend.ErrInvalid, ErrorDetail_INVALID, codes.InvalidArgument},
	{backend.ErrUnsupported, ErrorDetail_UNSUPPORTED, codes.Unimplemented},
	{backend.ErrFenced, ErrorDetail_FENCED, codes.FailedPrecondition},
	{backend.ErrDenied, ErrorDetail_DENIED, codes.PermissionDenied},
	{backend.ErrUnavailable, ErrorDetail_UNAVAILABLE, codes.Unavailable},
	{backend.ErrNoPool, ErrorDetail_NO_POOL, codes.FailedPrecondition},
}

// Status is an error as a gRPC status, with what FromStatus needs to make it
// again. An error that is none of package backend's is Internal.
func Status(err error) *status.Status {
	if err == nil {
		return nil
	}
	s := status.New(codes.Internal, clip(err.Error()))
	for _, k := range kinds {
		if errors.Is(err, k.err) {
			return withDetail(status.New(k.code, clip(err.Error())), detail(k.kind, err))
		}
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		s = status.New(codes.DeadlineExceeded, clip(err.Error()))
	case errors.Is(err, context.Canceled):
		s = status.New(codes.Canceled, clip(err.Error()))
	}
	return s
}

func detail(kind ErrorDetail_Kind, err error) *ErrorDetail {
	d := &ErrorDetail{Kind: kind}
	if used := (*backend.InUse)(nil); errors.As(err, &used) {
		d.Object, d.Node, d.Why = clip(used.Object), clip(used.Node), clip(used.Why)
	}
	return d
}

// withDetail is s without the detail if that cannot be encoded: its texts are no
// UTF-8.
func withDetail(s *status.Status, d *ErrorDetail) *status.Status {
	if with, err := s.WithDetails(d); err == nil {
		return with
	}
	return s
}

// remote is an error that came over the wire: the whole text, and what it is.
type remote struct {
	text string
	is   []error
}

func (e *remote) Error() string   { return e.text }
func (e *remote) Unwrap() []error { return e.is }

// FromStatus is the error that a call ended with, for errors.Is and errors.As as
// if the backend were in this process. ctx is the call's. What is neither one of
// package backend's errors nor the end of ctx leaves the outcome unknown:
// backend.ErrUnavailable.
func FromStatus(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	s := status.Convert(err)
	for _, d := range s.Details() {
		if d, ok := d.(*ErrorDetail); ok {
			if err := fromDetail(s.Message(), d); err != nil {
				return err
			}
		}
	}
	if ended := ctx.Err(); ended != nil {
		return fmt.Errorf("the agent did not answer in time, the outcome is not known: %w", ended)
	}
	text := fmt.Sprintf("the agent: %s: %s", s.Code(), s.Message())
	switch s.Code() {
	case codes.Unimplemented: // by gRPC itself: the agent is older than the verb
		return &remote{text, []error{backend.ErrUnsupported}}
	case codes.PermissionDenied, codes.Unauthenticated:
		return &remote{text, []error{backend.ErrDenied}}
	case codes.DeadlineExceeded:
		return &remote{text, []error{backend.ErrUnavailable, context.DeadlineExceeded}}
	default:
		return &remote{text, []error{backend.ErrUnavailable}}
	}
}

func fromDetail(text string, d *ErrorDetail) error {
	for _, k := range kinds {
		if k.kind != d.GetKind() {
			continue
		}
		if k.kind == ErrorDetail_IN_USE && d.GetObject()+d.GetNode()+d.GetWhy() != "" {
			return &remote{text, []error{&backend.InUse{Object: d.GetObject(), Node: d.GetNode(), Why: d.GetWhy()}}}
		}
		return &remote{text, []error{k.err}}
	}
	return nil
}

// clip bounds what an error says, and makes it UTF-8, which strings on the wire
// must be.
func clip(s string) string {
	if len(s) > maxErrorText {
		s = s[:maxErrorText] + "..."
	}
	return string([]rune(s))
}
