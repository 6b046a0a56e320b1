//go:build interop

package attach_test

import (
	"strings"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/volume"
	"github.com/csi-mpath/csi-mpath/pkg/volume/attrs"
)

// Claim 5 by the clock, with file systems of the twin's.
func TestStagingAndUnstagingKeepTheirTime(t *testing.T) {
	overBoth(t, func(r *rig) {
		for what, address := range map[string]string{"connections": r.crowded(), "bytes": r.silence().address} {
			q := r.request(func(a *attrs.Attachment) {
				a.Portals = append(a.Portals[:1], a.Portals[0])
				a.Portals[0].Address = address
			})
			begin := time.Now()
			r.must(r.node.Stage(r.Context(), q))
			if took := time.Since(begin); took > 3*time.Second {
				r.Errorf("staged beside a portal that swallows %s in %v", what, took)
			}
			r.unstage()
		}
		q := r.request(nil)
		r.must(r.node.Stage(r.Context(), q))
		r.kill()
		r.noPath("vol")
		begin := time.Now()
		err := r.node.Unstage(r.Context(), "vol", q.Staging)
		took := time.Since(begin)
		r.want(err, volume.ErrUnavailable)
		if took > 10*time.Second || !strings.Contains(err.Error(), r.portals[0].Addr()) {
			r.Errorf("unstaged in %v: %v", took, err)
		}
		r.Logf("unstaged without a path in %v", took)
		r.revive()
		r.unstage()
	})
}
