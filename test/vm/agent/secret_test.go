//go:build vm

package agent

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/agent/export"
	"github.com/csi-mpath/csi-mpath/pkg/backend"
	"github.com/csi-mpath/csi-mpath/pkg/secret"
	"github.com/csi-mpath/csi-mpath/test/node"
	"github.com/csi-mpath/csi-mpath/test/vm/rig"
)

// auth makes secrets for both ends, others for each n.
func (s *server) auth(n int) (a backend.Auth) {
	s.t.Helper()
	if s.Transport() == backend.ISCSI {
		a.CHAP = backend.CHAP{User: "node", Secret: secret.Text(fmt.Sprint("secret-of-node-", n)),
			MutualUser: "target", MutualSecret: secret.Text(fmt.Sprint("of-the-target-", n))}
		return a
	}
	key := func() secret.Text { return secret.Text(strings.TrimSpace(rig.Sh(s.t, "nvme gen-dhchap-key -m 1"))) }
	a.DHCHAP = backend.DHCHAP{Host: key(), Controller: key()}
	return a
}

func TestOnlyTheRightSecretsOpen(t *testing.T) {
	kinds(t, func(t *testing.T, s *server) {
		v, a, open := file(t), s.access(1, 1), s.access(2, 1)
		right, wrong := s.auth(1), s.auth(2)
		a.Auth = right
		v.Access = []export.Access{a, open}
		if _, err := s.Ensure(s.ctx(), v); errors.Is(err, backend.ErrUnsupported) && s.kind.name == "nvmet" && os.Getenv("CSI_MPATH_VM_KERNEL") == "6.1" {
			return // Debian's 6.1 is built without it, and says so
		} else if err != nil {
			t.Fatal(err)
		}
		s.dial(v, a, 0)
		s.dial(v, open, 1) // who has no secret needs none
		for name, auth := range map[string]backend.Auth{"none": {}, "another": wrong,
			"another of the target": {CHAP: backend.CHAP{User: right.CHAP.User, Secret: right.CHAP.Secret, MutualUser: right.CHAP.MutualUser, MutualSecret: wrong.CHAP.MutualSecret},
				DHCHAP: backend.DHCHAP{Host: right.DHCHAP.Host, Controller: wrong.DHCHAP.Controller}}} {
			if p, err := node.Dial(s.ctx(), s.connection(v, a), 0, auth); err == nil {
				p.Close()
				t.Errorf("let in with secret %s", name)
			}
		}
		b := a
		b.Auth = wrong
		if !s.ensure(v, b, open) {
			t.Error("secrets changed, and no change was told")
		}
		s.dial(v, b, 1)
		s.refused(v, a)
	})
}
