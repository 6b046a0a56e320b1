package attrs

import (
	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/secret"
)

// The keys of Secrets, as open-iscsi and nvme-cli have them.
const (
	keyUser         = "node.session.auth.username"
	keyPassword     = "node.session.auth.password"
	keyUserIn       = "node.session.auth.username_in"
	keyPasswordIn   = "node.session.auth.password_in"
	keyDHCHAP       = "dhchap-secret"
	keyDHCHAPTarget = "dhchap-ctrl-secret"
)

// Auth are the secrets that a call brought along for a transport: one Secret may
// have those of both, and anything else. Errors never quote a value (I10).
func Auth[T ~string](t backend.Transport, secrets map[string]T) (backend.Auth, error) {
	text := func(key string) secret.Text { return secret.Text(secrets[key]) }
	var a backend.Auth
	if t == backend.NVMe {
		a.DHCHAP = backend.DHCHAP{Host: text(keyDHCHAP), Controller: text(keyDHCHAPTarget)}
	} else {
		a.CHAP = backend.CHAP{User: string(secrets[keyUser]), Secret: text(keyPassword), MutualUser: string(secrets[keyUserIn]), MutualSecret: text(keyPasswordIn)}
	}
	return a, a.Check(t)
}
