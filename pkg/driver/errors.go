package driver

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/volume"
	"github.com/csi-mpath/csi-mpath/pkg/volume/attrs"
)

// errNoSuch is what an ID that can be none of ours names.
var errNoSuch = errors.New("no such object")

// codeOf says which gRPC code an error becomes: the first that it wraps.
var codeOf = []struct {
	err  error
	code codes.Code
}{
	{context.DeadlineExceeded, codes.DeadlineExceeded},
	{context.Canceled, codes.Canceled},
	{attrs.ErrInvalid, codes.InvalidArgument},
	{errNoSuch, codes.NotFound},
	{backend.ErrInvalid, codes.InvalidArgument},
	{backend.ErrFenced, codes.FailedPrecondition}, // until an operator lifts it
	{backend.ErrInUse, codes.FailedPrecondition},  // the message names the node
	{backend.ErrNotFound, codes.NotFound},
	{backend.ErrConflict, codes.AlreadyExists},
	{backend.ErrNoSpace, codes.ResourceExhausted},
	{backend.ErrRange, codes.OutOfRange},
	{backend.ErrBusy, codes.Aborted},
	{backend.ErrToken, codes.Aborted},
	{backend.ErrUnsupported, codes.Unimplemented},
	{backend.ErrDenied, codes.PermissionDenied},
	{backend.ErrUnavailable, codes.Unavailable},
	{backend.ErrNoPool, codes.FailedPrecondition}, // until it is configured
	{volume.ErrInvalid, codes.InvalidArgument},
	{volume.ErrNotFound, codes.NotFound},
	{volume.ErrConflict, codes.AlreadyExists},
	{volume.ErrBusy, codes.Aborted},
	{volume.ErrUnsupported, codes.InvalidArgument}, // of a volume's parameters, not of a call
	{volume.ErrUnavailable, codes.Unavailable},     // may pass
	{volume.ErrState, codes.FailedPrecondition},    // the message says what first
	{volume.ErrIdentity, codes.FailedPrecondition}, // until somebody looks
	{volume.ErrDenied, codes.PermissionDenied},
}

// typed is the gRPC code of an error that wraps one of the above.
func typed(err error) (codes.Code, bool) {
	for _, c := range codeOf {
		if errors.Is(err, c.err) {
			return c.code, true
		}
	}
	return codes.Internal, false
}

// asStatus is an error as callers get it, nil for nil. What a type says counts
// more than a code that came from elsewhere, from an agent say.
func asStatus(err error) error {
	c, is := typed(err)
	if _, has := status.FromError(err); has && !is { // nil has one, too
		return err
	}
	return status.Error(c, err.Error())
}

// missing refuses a request without one of its fields.
func missing(field string) error {
	return status.Errorf(codes.InvalidArgument, "%s is missing", field)
}
