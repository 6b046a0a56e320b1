package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/csi-mpath/csi-mpath/pkg/agent/pki"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// door is how clients come in: TLS 1.3, with a certificate that names a tenant.
type door struct {
	ids     *pki.Source
	gate    *gate
	refused func(reason string, from net.Addr, err error)
}

// caller is who is on a connection.
type caller struct {
	credentials.TLSInfo
	tenant  string
	expires time.Time // of the certificate
}

// tlsConfig is of now: certificates change while the agent runs. Tickets would let
// a client in without its certificate.
func (d *door) tlsConfig() *tls.Config {
	id := d.ids.Identity()
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		Certificates:           []tls.Certificate{id.Cert},
		ClientAuth:             tls.RequireAndVerifyClientCert,
		ClientCAs:              id.Peers,
		SessionTicketsDisabled: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			_, err := tenantOf(s)
			return err
		},
	}
}

func tenantOf(s tls.ConnectionState) (string, error) {
	if len(s.PeerCertificates) == 0 {
		return "", errors.New("no certificate")
	}
	return pki.TenantOf(s.PeerCertificates[0])
}

// ServerHandshake lets a client in, or says in the log why not.
func (d *door) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secured, who, err := d.handshake(raw)
	if err != nil {
		if c, ok := raw.(*conn); !ok || !d.gate.evicted(c) { // that has been told
			d.refused("handshake", raw.RemoteAddr(), err)
		}
		_ = raw.Close()
		return nil, nil, err
	}
	return secured, who, nil
}

func (d *door) handshake(raw net.Conn) (net.Conn, *caller, error) {
	c, ok := raw.(*conn)
	if !ok {
		return nil, nil, fmt.Errorf("a connection that was not counted: %T", raw)
	}
	secured, info, err := credentials.NewTLS(d.tlsConfig()).ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	who := &caller{}
	if who.TLSInfo, ok = info.(credentials.TLSInfo); !ok {
		return nil, nil, fmt.Errorf("not TLS: %T", info)
	}
	if who.tenant, err = tenantOf(who.State); err != nil {
		return nil, nil, err
	}
	who.expires = who.State.PeerCertificates[0].NotAfter
	return secured, who, d.gate.authenticate(c, who.tenant, time.Until(who.expires))
}

// callerOf is who makes a call. A certificate may have run out a moment ago.
func callerOf(ctx context.Context, now time.Time) (*caller, error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil, fmt.Errorf("%w: nobody", backend.ErrDenied)
	}
	who, ok := p.AuthInfo.(*caller)
	if !ok || who.tenant == "" {
		return nil, fmt.Errorf("%w: no certificate", backend.ErrDenied)
	}
	if now.After(who.expires) {
		return nil, fmt.Errorf("%w: the certificate of tenant %s ran out at %s: renew it", backend.ErrDenied, who.tenant, who.expires.UTC().Format(time.RFC3339))
	}
	return who, nil
}

// ClientHandshake is for the other end.
func (d *door) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("these credentials are a server's")
}

// Info says what it is.
func (d *door) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

// Clone is itself: nothing in it changes.
func (d *door) Clone() credentials.TransportCredentials { return d }

// OverrideServerName is for the other end.
func (d *door) OverrideServerName(string) error {
	return errors.New("these credentials are a server's")
}
