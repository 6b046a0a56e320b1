package backend

import "context"

// requestID is the key of a context's request.
type requestID struct{}

// WithRequestID marks what is done under ctx as part of one request, so that logs
// of all who have a part in it can be put together. Backends may send it on.
func WithRequestID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, requestID{}, id)
}

// RequestID is that mark; "" is none.
func RequestID(ctx context.Context) string {
	id, _ := ctx.Value(requestID{}).(string)
	return id
}
