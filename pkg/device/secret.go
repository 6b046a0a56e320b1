package device

import (
	"fmt"
	"os"
	"strings"

	"github.com/csi-mpath/csi-mpath/pkg/durable"
	"github.com/csi-mpath/csi-mpath/pkg/iscsi/auth"
	nvmeauth "github.com/csi-mpath/csi-mpath/pkg/nvmetcp/auth"
)

// secretKeys are the names open-iscsi users know, with and without prefix.
var secretKeys = map[string]func(*auth.Credentials) any{
	"username":    func(c *auth.Credentials) any { return &c.User },
	"password":    func(c *auth.Credentials) any { return &c.Secret },
	"username_in": func(c *auth.Credentials) any { return &c.MutualUser },
	"password_in": func(c *auth.Credentials) any { return &c.MutualSecret },
	"chap_algs":   func(c *auth.Credentials) any { return &c.Algorithms },
}

// ReadSecretFile reads CHAP credentials: lines of key=value with the keys
// username, password, username_in, password_in and chap_algs, each with or without
// open-iscsi's node.session.auth. prefix; empty lines and # comments are
// skipped. A file that others may read is refused (I10). Errors never quote
// a value.
func ReadSecretFile(path string) (c auth.Credentials, err error) {
	b, err := readPrivate("CHAP secret file", path)
	if err != nil {
		return c, err
	}
	for i, line := range strings.Split(string(b), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		key = strings.TrimPrefix(strings.TrimSpace(key), "node.session.auth.")
		field := secretKeys[key]
		if !ok || field == nil {
			return auth.Credentials{}, fmt.Errorf("CHAP secret file %s, line %d: want one of username=, password=, username_in=, password_in=, chap_algs=", path, i+1)
		}
		setSecret(field(&c), strings.TrimSpace(value))
	}
	if err := c.Check(); err != nil {
		return auth.Credentials{}, fmt.Errorf("CHAP secret file %s: %w", path, err)
	}
	return c, nil
}

// readPrivate reads a file that nobody else may read (I10).
func readPrivate(what, path string) ([]byte, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	if st.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s %s may be read by others (mode %#o): chmod 600 it", what, path, st.Mode().Perm())
	}
	b, err := durable.Read(path, maxStateFile)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return b, nil
}

// ReadDHChapFiles reads DH-HMAC-CHAP secrets in the form of nvme-cli, DHHC-1:…:,
// one per file: the host's, and, if that path is not empty, the controller's. A
// file that others may read is refused (I10). Errors never quote a value.
func ReadDHChapFiles(host, controller string) (c nvmeauth.Credentials, err error) {
	for _, f := range []struct {
		path string
		into *nvmeauth.Secret
	}{{host, &c.Secret}, {controller, &c.ControllerSecret}} {
		if f.path == "" {
			continue
		}
		b, err := readPrivate("DH-HMAC-CHAP secret file", f.path)
		if err != nil {
			return nvmeauth.Credentials{}, err
		}
		*f.into = nvmeauth.Secret(strings.TrimSpace(string(b)))
	}
	if err := c.Check(); err != nil {
		return nvmeauth.Credentials{}, fmt.Errorf("DH-HMAC-CHAP secret files: %w", err)
	}
	return c, nil
}

func setSecret(field any, value string) {
	switch f := field.(type) {
	case *string:
		*f = value
	case *auth.Secret:
		*f = auth.Secret(value)
	}
}
