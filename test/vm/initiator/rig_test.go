//go:build vm

package initiator

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/iscsi/auth"
	"github.com/csi-mpath/csi-mpath/test/vm/rig"
)

const mib = 1 << 20

// The portals: one each for the two controllers of an ALUA array.
var portals = [2]string{"127.0.0.1:3260", "127.0.0.2:3260"}

// array is our target, and the kernel's multipath device over it.
type array struct {
	t    *testing.T
	e    *rig.Estate
	name string
	wwid string // as multipath-tools write it: naa's digits after a 3
}

var credentials = auth.Credentials{User: "host", Secret: "a long secret", MutualUser: "array", MutualSecret: "another secret"}

// secretFile says the same as credentials.
const secretFile = "/run/secret.chap"

var arrays int

const configuration = `targets:
- name: NAME
  initiators: [` + kernelName + `]
  auth: {secretFile: ` + secretFile + `}
  portals: [{address: "127.0.0.1:3260", group: 1}, {address: "127.0.0.2:3260", group: 2}]
  groups: [{id: 2, state: non-optimized}]
  luns:
  - {number: 0, store: {ram: 64Mi}, wwid: naa.WWID0}
`

// begin serves a target and attaches it; the test's end undoes both.
func begin(t *testing.T) *array {
	t.Helper()
	startDaemons(t)
	arrays++
	a := &array{t: t, name: fmt.Sprintf("iqn.2026-01.io.csi-mpath:vm%d", arrays), wwid: fmt.Sprintf("6001405c51d3a7b%016d", arrays)}
	rig.Must(t, os.WriteFile(secretFile, fmt.Appendf(nil, "username=%s\npassword=%s\nusername_in=%s\npassword_in=%s\n",
		credentials.User, string(credentials.Secret), credentials.MutualUser, string(credentials.MutualSecret)), 0o600))
	a.e = rig.ServeEstate(t, strings.NewReplacer("NAME", a.name, "WWID", a.wwid).Replace(configuration))
	a.wwid = "3" + a.wwid + "0"
	a.discover()
	return a
}

func (a *array) discover() {
	a.t.Helper()
	out := rig.Sh(a.t, "iscsiadm -m discovery -t sendtargets -p "+portals[0])
	for _, p := range portals {
		if !strings.Contains(out, p+",1 "+a.name) {
			a.t.Fatalf("discovery does not show %s at %s: %s", a.name, p, out)
		}
	}
	a.t.Cleanup(func() { rig.Sh(a.t, "iscsiadm -m node -T "+a.name+" -o delete") })
	for _, kv := range [][2]string{{"node.session.timeo.replacement_timeout", "2"}, {"node.conn[0].timeo.noop_out_interval", "2"},
		{"node.conn[0].timeo.noop_out_timeout", "10"}, {"node.session.auth.authmethod", "CHAP"},
		{"node.session.auth.username", credentials.User}, {"node.session.auth.password", string(credentials.Secret)},
		{"node.session.auth.username_in", credentials.MutualUser}, {"node.session.auth.password_in", string(credentials.MutualSecret)}} {
		a.set(kv[0], kv[1])
	}
}

func (a *array) set(key, value string) {
	a.t.Helper()
	rig.Sh(a.t, fmt.Sprintf("iscsiadm -m node -T %s -o update -n '%s' -v '%s'", a.name, key, value))
}

// attach logs in and waits for the multipath device.
func (a *array) attach() {
	a.t.Helper()
	rig.Sh(a.t, "iscsiadm -m node -T "+a.name+" --login")
	a.t.Cleanup(a.detach)
	rig.Must(a.t, a.states("active", "active"))
}

func (a *array) detach() {
	a.t.Helper()
	rig.Must(a.t, wait("the end of the map", func() error {
		_, err := rig.Try("udevadm settle -t 60; if [ -e /dev/mapper/" + a.wwid + " ]; then multipath -f " + a.wwid + "; fi")
		return err
	}))
	rig.Sh(a.t, "iscsiadm -m node -T "+a.name+" --logout")
}

// device is the multipath device.
func (a *array) device() string { return "/dev/mapper/" + a.wwid }

// wait is rig.Wait that ends when a daemon does.
func wait(what string, f func() error) error {
	return rig.Wait(what, func() error {
		if err := alive(); err != nil {
			return fmt.Errorf("%w: %w", rig.ErrOver, err)
		}
		return f()
	})
}

// path is what multipathd says of one path.
type path struct{ disk, state, checker, prio string }

// paths are the paths of the two portals, in order; one that is missing is empty.
func (a *array) paths() (out [2]path, err error) {
	disks, err := a.disks()
	if err != nil {
		return out, err
	}
	text, err := rig.Try(`multipathd show paths raw format "%w %d %t %T %p"`)
	if err != nil {
		return out, err
	}
	for line := range strings.SplitSeq(text, "\n") {
		f := strings.Fields(line)
		for i, d := range disks {
			if len(f) == 5 && f[0] == a.wwid && f[1] == d {
				out[i] = path{f[1], f[2], f[3], f[4]}
			}
		}
	}
	return out, nil
}

// states waits until dm-multipath has its paths in these states.
func (a *array) states(want ...string) error {
	return wait("paths "+strings.Join(want, " and "), func() error {
		all, err := a.paths()
		if err != nil {
			return err
		}
		for i, w := range want {
			if all[i].state != w || w == "active" && all[i].checker != "ready" {
				return fmt.Errorf("they are %+v", all)
			}
		}
		return nil
	})
}

// disks are the names (sda) of LUN 0 behind the two portals, by sysfs.
func (a *array) disks() (out [2]string, err error) {
	all, err := filepath.Glob("/sys/class/iscsi_connection/connection*")
	if err != nil {
		return out, err
	}
	for _, c := range all {
		session := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(c), "connection"), ":0")
		base := "/sys/class/iscsi_session/session" + session
		if read(base+"/targetname") != a.name {
			continue
		}
		disk, err := filepath.Glob(base + "/device/target*/*:0/block/*")
		if err != nil {
			return out, err
		}
		for i, p := range portals {
			if read(c+"/persistent_address")+":"+read(c+"/persistent_port") == p && len(disk) == 1 {
				out[i] = filepath.Base(disk[0])
			}
		}
	}
	if out[0] == "" || out[1] == "" {
		return out, fmt.Errorf("disks %q behind %v", out, all)
	}
	return out, nil
}

func read(path string) string {
	b, _ := os.ReadFile(path)
	return strings.TrimSpace(string(b))
}

// load is writers at work on the multipath device.
func (a *array) load() *rig.Load {
	a.t.Helper()
	return rig.StartLoad(a.t, a.device())
}
