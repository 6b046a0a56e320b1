// Package portal reads and writes the addresses of storage: host:port, IPv6 in
// brackets.
package portal

import (
	"fmt"
	"net"
	"strconv"
	"strings"
)

// The ports of portals that name none.
const (
	ISCSIPort         = "3260"
	NVMePort          = "4420"
	NVMeDiscoveryPort = "8009"
)

// maxHost bounds a host's name, bytes (RFC 1035 2.3.4).
const maxHost = 255

// Normalize checks one portal, and adds the standard port where none is given:
// host, host:port, [IPv6], [IPv6]:port, or a bare IPv6 address.
func Normalize(s, standard string) (string, error) {
	s = strings.TrimSpace(s)
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		host, port = s, standard
		if inner, ok := strings.CutPrefix(s, "["); ok && strings.HasSuffix(s, "]") {
			host = strings.TrimSuffix(inner, "]")
		}
	}
	if host == "" || len(host) > maxHost || strings.ContainsAny(host, "/ []") || strings.Contains(host, ":") && net.ParseIP(host) == nil {
		return "", fmt.Errorf("portal %q is not host, host:port or [IPv6]:port", clip(s))
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", fmt.Errorf("portal %q: %q is not a port: want 1 to 65535", clip(s), clip(port))
	}
	return net.JoinHostPort(host, port), nil
}

// clip keeps what somebody else wrote short in messages.
func clip(s string) string {
	if len(s) > maxHost {
		return s[:maxHost] + "..."
	}
	return s
}
