package export

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/csi-mpath/csi-mpath/pkg/backend"
)

// MaxAccess bounds the initiators of one volume (I6).
const MaxAccess = 64

// Check refuses what a kernel's target cannot serve: its names and paths become
// directories and attributes.
func (v *Export) Check(t backend.Transport) error {
	switch {
	case !ValidIdentity(v.Identity):
		return fmt.Errorf("%w: identity %.80q of %s: want 32 lower-case hexadecimal digits", backend.ErrInvalid, v.Identity, v.Volume)
	case !filepath.IsAbs(v.Backing.Path) || strings.ContainsAny(v.Backing.Path, ",\n\x00"):
		return fmt.Errorf("%w: backing %q of %s: want an absolute path without a comma", backend.ErrInvalid, v.Backing.Path, v.Volume)
	case len(v.Access) > MaxAccess:
		return fmt.Errorf("%w: %d initiators for %s, at most %d", backend.ErrNoSpace, len(v.Access), v.Volume, MaxAccess)
	}
	for i := range v.Access {
		if err := v.Access[i].checkAuth(t); err != nil {
			return err
		}
	}
	return nil
}

// checkAuth refuses secrets of the other transport, and those that the target
// alone would prove: neither protocol has that.
func (a *Access) checkAuth(t backend.Transport) error {
	c, d := a.Auth.CHAP, a.Auth.DHCHAP
	switch {
	case t != backend.ISCSI && c != backend.CHAP{}, t != backend.NVMe && d != backend.DHCHAP{}:
		return fmt.Errorf("%w: %s has secrets that %s cannot use", backend.ErrInvalid, a.Initiator, t)
	case (c.User == "") != (c.Secret == "") || (c.MutualUser == "") != (c.MutualSecret == ""):
		return fmt.Errorf("%w: CHAP of %s: a user needs a secret, and a secret a user", backend.ErrInvalid, a.Initiator)
	case c.Secret == "" && c.MutualSecret != "", d.Host == "" && d.Controller != "":
		return fmt.Errorf("%w: authentication of %s: what the target proves needs a secret of the initiator, too", backend.ErrInvalid, a.Initiator)
	}
	return nil
}
