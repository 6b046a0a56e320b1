package device

import (
	"fmt"
	"os"
	"strings"

	"github.com/csi-mpath/csi-mpath/pkg/iscsi/auth"
)

// secretKeys are the names open-iscsi users know, with and without prefix.
var secretKeys = map[string]func(*auth.Credentials) any{
	"username":    func(c *auth.Credentials) any { return &c.User },
	"password":    func(c *auth.Credentials) any { return &c.Secret },
	"username_in": func(c *auth.Credentials) any { return &c.MutualUser },
	"password_in": func(c *auth.Credentials) any { return &c.MutualSecret },
}

// ReadSecretFile reads CHAP credentials: lines of key=value with the keys
// username, password, username_in and password_in, each with or without
// open-iscsi's node.session.auth. prefix; empty lines and # comments are
// skipped. A file that others may read is refused (I10). Errors never quote
// a value.
func ReadSecretFile(path string) (c auth.Credentials, err error) {
	st, err := os.Stat(path)
	if err != nil {
		return c, fmt.Errorf("CHAP secret file: %w", err)
	}
	if st.Mode().Perm()&0o077 != 0 {
		return c, fmt.Errorf("CHAP secret file %s may be read by others (mode %#o): chmod 600 it", path, st.Mode().Perm())
	}
	b, err := readBounded(path)
	if err != nil {
		return c, fmt.Errorf("CHAP secret file: %w", err)
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
			return auth.Credentials{}, fmt.Errorf("CHAP secret file %s, line %d: want one of username=, password=, username_in=, password_in=", path, i+1)
		}
		setSecret(field(&c), strings.TrimSpace(value))
	}
	if err := c.Check(); err != nil {
		return auth.Credentials{}, fmt.Errorf("CHAP secret file %s: %w", path, err)
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
