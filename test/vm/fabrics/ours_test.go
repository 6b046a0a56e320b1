//go:build vm

package fabrics

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/datapath"
	"github.com/csi-mpath/csi-mpath/pkg/device"
	"github.com/csi-mpath/csi-mpath/test/vm/rig"
)

// ours is csi-mpath attach --nvme-tcp, with a device of the kernel.
type ours struct {
	t   *testing.T
	a   array
	dir string
	v   *rig.Volume
}

func newOurs(t *testing.T, a array) host {
	t.Helper()
	dir, err := os.MkdirTemp("", "x")
	rig.Must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return &ours{t: t, a: a, dir: dir}
}

func (h *ours) attach(o options) error {
	secret, ctrl, err := secretFiles(h.dir, o.secret, o.ctrlSecret)
	if err != nil {
		return err
	}
	args := []string{"--nvme-tcp", strings.Join(portals[:], ","), "--subsystem", h.a.nqn(), "--nsid", "1",
		"--host-nqn", hostNQN, "--host-id", hostID, "--path-selector", "round-robin"}
	if secret != "" {
		args = append(args, "--dhchap-secret-file", secret)
	}
	if ctrl != "" {
		args = append(args, "--dhchap-ctrl-secret-file", ctrl)
	}
	if o.digests {
		args = append(args, "--header-digest", "--data-digest")
	}
	h.v, err = rig.TryAttach(h.t, h.dir, "vol"+filepath.Base(h.dir), append(args, "--open-timeout", "20s")...)
	return err
}

func (h *ours) device() string { return h.v.Device }

func (h *ours) detach() error {
	return h.v.Detach(context.WithoutCancel(h.t.Context()))
}

func (h *ours) status() (datapath.Status, error) {
	all, err := device.ReadStatus(h.v.State)
	if err != nil || len(all) != 1 {
		return datapath.Status{}, fmt.Errorf("%d volumes answer: %w", len(all), err)
	}
	return all[0], nil
}

func (h *ours) wwid() (string, error) {
	s, err := h.status()
	return s.Identity.Device, err
}

// anaNames are the datapath's words for what ANA calls otherwise.
var anaNames = map[string]string{"unavailable": "inaccessible", "offline": "persistent-loss", "transitioning": "change"}

func (h *ours) paths() (out [2]path, err error) {
	s, err := h.status()
	if err != nil {
		return out, err
	}
	for _, p := range s.Paths {
		for i, portal := range portals {
			if p.Name != portal {
				continue
			}
			out[i] = path{live: p.State == "live", ana: p.Access, count: int(p.Sends)}
			if n, ok := anaNames[p.Access]; ok {
				out[i].ana = n
			}
		}
	}
	return out, nil
}
