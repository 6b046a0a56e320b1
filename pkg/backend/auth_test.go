package backend

import (
	"errors"
	"strings"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/secret"
)

func TestSecretsThatCannotBeUsedAreInvalidAndNeverQuoted(t *testing.T) {
	for what, c := range map[string]struct {
		t Transport
		a Auth
	}{
		"of the other transport": {NVMe, Auth{CHAP: CHAP{User: "u", Secret: "hunter2"}}},
		"of NVMe over iSCSI":     {ISCSI, Auth{DHCHAP: DHCHAP{Host: "DHHC-1:00:hunter2:"}}},
		"without a user":         {ISCSI, Auth{CHAP: CHAP{Secret: "hunter2"}}},
		"only mutual":            {ISCSI, Auth{CHAP: CHAP{MutualUser: "u", MutualSecret: "hunter2"}}},
		"of two lines":           {ISCSI, Auth{CHAP: CHAP{User: "u", Secret: "hunter2\n"}}},
		"too long":               {ISCSI, Auth{CHAP: CHAP{User: "u", Secret: secret.Text("hunter2" + strings.Repeat("x", MaxSecret))}}},
		"no DHHC-1":              {NVMe, Auth{DHCHAP: DHCHAP{Host: "hunter2"}}},
		"controller's alone":     {NVMe, Auth{DHCHAP: DHCHAP{Controller: "DHHC-1:00:hunter2:"}}},
	} {
		if err := c.a.Check(c.t); !errors.Is(err, ErrInvalid) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := (Auth{CHAP: CHAP{User: "u", Secret: "s", MutualUser: "v", MutualSecret: "t"}}).Check(ISCSI); err != nil {
		t.Error(err)
	}
}
