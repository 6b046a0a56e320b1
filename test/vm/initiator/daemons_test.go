//go:build vm

package initiator

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/csi-mpath/csi-mpath/test/child"
	"github.com/csi-mpath/csi-mpath/test/vm/kmsg"
	"github.com/csi-mpath/csi-mpath/test/vm/rig"
)

func TestMain(m *testing.M) { os.Exit(kmsg.Main(m)) }

// kernelName is what the kernel's initiator calls itself.
const kernelName = "iqn.2026-01.io.csi-mpath:kernel"

// multipathConf is what an administrator of an ALUA array writes, with short
// intervals: a test waits for them.
const multipathConf = `defaults {
  user_friendly_names no
  find_multipaths no
  path_grouping_policy group_by_prio
  prio alua
  failback immediate
  no_path_retry queue
  polling_interval 1
  max_polling_interval 2
}
`

var daemons = struct {
	once sync.Once
	err  error
	all  []*child.Child
}{}

// startDaemons starts udev, iscsid and multipathd, once for the package: the
// machine has no init that would.
func startDaemons(t *testing.T) {
	t.Helper()
	daemons.once.Do(func() {
		daemons.err = errors.Join(
			os.MkdirAll("/run/lock/iscsi", 0o755),
			os.MkdirAll("/etc/iscsi", 0o755),
			os.WriteFile("/etc/iscsi/initiatorname.iscsi", []byte("InitiatorName="+kernelName+"\n"), 0o600),
			os.WriteFile("/etc/multipath.conf", []byte(multipathConf), 0o600), //nolint:gosec // as on a node
			start("/lib/systemd/systemd-udevd"), start("iscsid", "-f"), start("multipathd", "-d"),
			wait("multipathd", func() error {
				_, err := rig.Try("multipathd show daemon | grep -q -e idle -e running")
				return err
			}))
	})
	rig.Must(t, daemons.err)
}

func start(program string, args ...string) error {
	c, err := child.Start(child.Options{}, program, args...)
	if err != nil {
		return err
	}
	daemons.all = append(daemons.all, c)
	return nil
}

// alive is an error once a daemon has ended.
func alive() error {
	for _, c := range daemons.all {
		if !c.Alive() {
			return fmt.Errorf("a daemon ended: %w: %s", c.Wait(), c.Output())
		}
	}
	return nil
}
