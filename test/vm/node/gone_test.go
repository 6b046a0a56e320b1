//go:build vm

package node

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/test/kubelet"
	"github.com/csi-mpath/csi-mpath/test/vm/kmsg"
	"github.com/csi-mpath/csi-mpath/test/vm/rig"
)

// givenUp is what the kernel says of a file system whose device fails.
var givenUp = regexp.MustCompile(`I/O error|lost (async|sync)? ?page write|EXT4-fs|JBD2|Aborting journal|nbd\d+: Other side returned error|nbd\d+: not configured, cannot reconfigure`)

// notBack is what the kernel says when the next process asks for the device once more
// that was given up meanwhile.
var notBack = regexp.MustCompile(`block nbd\d+: not configured, cannot reconfigure`)

// The storage is gone for good, with dirty pages on the node: unstaging says so in
// time, and ends when an operator gives the volume up, also in the next process.
func TestAVolumeWhoseStorageIsGoneIsGivenUp(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		name := map[bool]string{false: "same process", true: "next process"}[restarted]
		t.Run(name, func(t *testing.T) {
			kmsg.Watch(t, kmsg.ServerLost, kmsg.ServerSlow, givenUp, notBack)
			dir, err := os.MkdirTemp("", "nd")
			rig.Must(t, err)
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			v := kubelet.New(t, dir, "ext4")
			plugin := rig.StartProduct(t, "node", "--node-name", "n1", "--cluster", "c", "--endpoint", v.Endpoint(), "--state-dir", dir+"/state")
			v.Up()
			rig.Sh(t, "dd if=/dev/urandom of="+v.File()+" bs=1M count=4 status=none")
			for _, p := range v.Portals {
				p.Kill()
			}
			v.Unpublish()
			if restarted {
				plugin.Kill()
				rig.Must(t, plugin.Start())
			}
			begun := time.Now()
			err = v.TryUnstage()
			t.Logf("unstaged in %v: %v", time.Since(begun).Round(time.Millisecond), err)
			if err == nil || !strings.Contains(err.Error(), v.Portals[0].Addr()) && !restarted {
				t.Errorf("%v does not say why", err)
			}
			out, err := exec.Command(os.Getenv("CSI_MPATH_BIN"), "node", "discard", v.ID, "--state-dir", dir+"/state").CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			v.Unstage()
			if left, _ := filepath.Glob("/sys/block/nbd*/pid"); len(left) > 0 {
				t.Errorf("block devices are left: %v", left)
			}
			if left, _ := filepath.Glob(dir + "/state/volumes/*.*"); len(left) > 0 {
				t.Errorf("files are left: %v", left)
			}
		})
	}
}
