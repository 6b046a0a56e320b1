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
	// recordPrefix is what democratic-csi has before open-iscsi's keys.
	recordPrefix = "node-db."
)

// Keys names the keys that a Secret needs at least.
func Keys(t backend.Transport) string {
	if t == backend.NVMe {
		return keyDHCHAP
	}
	return keyUser + " and " + keyPassword
}

// Auth are the secrets that a call brought along for a transport: one Secret may
// have those of both, and anything else. Errors never quote a value (I10).
func Auth[T ~string](t backend.Transport, secrets map[string]T) (backend.Auth, error) {
	text := func(key string) secret.Text {
		if v := secrets[key]; v != "" {
			return secret.Text(v)
		}
		return secret.Text(secrets[recordPrefix+key])
	}
	var a backend.Auth
	if t == backend.NVMe {
		a.DHCHAP = backend.DHCHAP{Host: text(keyDHCHAP), Controller: text(keyDHCHAPTarget)}
	} else {
		a.CHAP = backend.CHAP{User: string(text(keyUser)), Secret: text(keyPassword), MutualUser: string(text(keyUserIn)), MutualSecret: text(keyPasswordIn)}
	}
	return a, a.Check(t)
}
