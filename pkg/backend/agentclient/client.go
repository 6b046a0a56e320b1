// Package agentclient is a storage host's agent as a backend: each verb is one
// call over mutual TLS, for the tenant that the client's certificate names.
//
// A connection that is lost is made again in the background. A call that it was
// lost under has an unknown outcome, backend.ErrUnavailable: it can be made
// again, as every verb can.
package agentclient

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"

	"github.com/csi-mpath/csi-mpath/pkg/agent/agentpb"
	"github.com/csi-mpath/csi-mpath/pkg/agent/pki"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// Config says where an agent is, and how to prove who we are.
type Config struct {
	// Address is host:port.
	Address string
	// ServerName is what the agent's certificate must be for; "" is the host of
	// Address.
	ServerName string
	// TLS are the client's certificate and key, and the agent's authority. They are
	// read again when they change.
	TLS pki.Files
	// Failed is told when changed certificates cannot be used; it may be nil.
	Failed func(error)
}

// Client is an agent. Its methods may be called from any goroutine.
type Client struct {
	address string
	conn    *grpc.ClientConn
	rpc     agentpb.AgentClient
}

var _ backend.Backend = (*Client)(nil)

// New makes a client. It reads the certificates, and connects when it is used.
func New(cfg Config) (*Client, error) {
	host, port, err := net.SplitHostPort(cfg.Address)
	if err != nil || host == "" || port == "" {
		return nil, fmt.Errorf("agent address %.128q: want host:port", cfg.Address)
	}
	ids, err := pki.Open(cfg.TLS, cfg.Failed)
	if err != nil {
		return nil, fmt.Errorf("agent %s: %w", cfg.Address, err)
	}
	if cfg.ServerName == "" {
		cfg.ServerName = host
	}
	conn, err := grpc.NewClient("dns:///"+cfg.Address, options(&badge{ids: ids, name: cfg.ServerName})...)
	if err != nil {
		return nil, fmt.Errorf("agent %s: %w", cfg.Address, err)
	}
	return &Client{address: cfg.Address, conn: conn, rpc: agentpb.NewAgentClient(conn)}, nil
}

func options(creds credentials.TransportCredentials) []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithNoProxy(), // storage is on a network of its own
		grpc.WithDisableServiceConfig(),
		grpc.WithMaxHeaderListSize(maxHeaders),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(agentpb.MaxReply), grpc.MaxCallSendMsgSize(agentpb.MaxRequest)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingAfter, Timeout: pingTimeout, PermitWithoutStream: true}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: retryFirst, Multiplier: 1.6, Jitter: 0.2, MaxDelay: retryMost},
			MinConnectTimeout: connectTimeout,
		}),
	}
}

// Close ends the connection, and what is running on it.
func (c *Client) Close() error { return c.conn.Close() }

// badge proves who the client is, with the certificates of the moment.
type badge struct {
	ids  *pki.Source
	name string
}

// ClientHandshake is TLS 1.3 with a certificate.
func (b *badge) ClientHandshake(ctx context.Context, _ string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	id := b.ids.Identity()
	return credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{id.Cert}, RootCAs: id.Peers,
		ServerName: b.name}).ClientHandshake(ctx, b.name, raw)
}

// ServerHandshake is for the other end.
func (b *badge) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("these credentials are a client's")
}

// Info says what it is.
func (b *badge) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

// Clone is itself: nothing in it changes.
func (b *badge) Clone() credentials.TransportCredentials { return b }

// OverrideServerName is Config.ServerName.
func (b *badge) OverrideServerName(string) error {
	return errors.New("the name is in the configuration")
}

// verb is a method of the service's client.
type verb[Q, R any] func(context.Context, *Q, ...grpc.CallOption) (*R, error)

// call makes a call under a name in the agent's audit log.
func call[Q, R any](ctx context.Context, v verb[Q, R], q *Q) (*R, error) {
	r, err := v(named(ctx), q)
	if err != nil {
		return nil, agentpb.FromStatus(ctx, err)
	}
	return r, nil
}

// named gives a call the ID of the request that it is part of, or one of its own.
func named(ctx context.Context) context.Context {
	id := backend.RequestID(ctx)
	if id == "" {
		id = strings.ToLower(rand.Text())
	}
	return metadata.AppendToOutgoingContext(ctx, agentpb.RequestID, id)
}

// believe is what a reply says, if it makes sense.
func believe[T any](c *Client, v T, err error) (T, error) {
	if err != nil {
		var none T
		return none, fmt.Errorf("%w: agent %s sent what makes no sense, its versions may differ: %v", backend.ErrUnavailable, c.address, err) //nolint:errorlint // the other error is not the caller's
	}
	return v, nil
}

// list is a page, if it makes sense.
func list[T any](c *Client, all []T, next string, err error) ([]T, string, error) {
	all, err = believe(c, all, err)
	if err != nil {
		return nil, "", err
	}
	return all, next, nil
}
