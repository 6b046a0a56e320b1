//go:build vm

package fabrics

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/csi-mpath/csi-mpath/test/vm/rig"
)

// kernel is the kernel's host: nvme-tcp under native multipath.
type kernel struct {
	t *testing.T
	a array
}

func newKernel(t *testing.T, a array) host {
	t.Helper()
	return &kernel{t, a}
}

// flags are nvme-cli's for a port, with the host's name.
func flags(port int) string {
	addr, service, _ := strings.Cut(portals[port], ":")
	return fmt.Sprintf(" -t tcp -a %s -s %s -q %s -I %s", addr, service, hostNQN, hostID)
}

// Another host.
const (
	otherNQN = "nqn.2026-01.io.csi-mpath:other"
	otherID  = "5b1e4c4a-6f0f-4c1c-9a65-3d1b6a1f0d02"
)

func (k *kernel) attach(o options) error {
	k.t.Cleanup(func() {
		if err := k.detach(); err != nil {
			k.t.Error(err)
		}
	})
	more := " -n " + k.a.nqn() + " -k 5 -c 1 -i 2"
	if o.secret != "" {
		more += " -S " + o.secret
	}
	if o.ctrlSecret != "" {
		more += " -C " + o.ctrlSecret
	}
	if o.digests {
		more += " -g -G"
	}
	for i := range portals {
		if _, err := rig.Try("nvme connect" + flags(i) + more); err != nil {
			return err
		}
	}
	return rig.Wait("the multipath device", func() error {
		if k.device() == "" {
			return errors.New("none")
		}
		return nil
	})
}

func (k *kernel) detach() error {
	out, err := rig.Try("nvme disconnect -n " + k.a.nqn())
	if err == nil && len(k.controllers()) > 0 {
		err = fmt.Errorf("controllers are left: %s", out)
	}
	return err
}

// asOther connects port 0 as another host, calls f with that controller's node,
// and disconnects it. To the kernel it is one more path of the same device: no
// I/O should run meanwhile.
func (k *kernel) asOther(f func(node string)) {
	k.t.Helper()
	before := k.controllers()
	addr, service, _ := strings.Cut(portals[0], ":")
	// As nvme connect does, which takes the host for the one it knows.
	rig.Must(k.t, os.WriteFile("/dev/nvme-fabrics", fmt.Appendf(nil, "transport=tcp,traddr=%s,trsvcid=%s,nqn=%s,hostnqn=%s,hostid=%s,nr_io_queues=1",
		addr, service, k.a.nqn(), otherNQN, otherID), 0o600))
	for _, c := range k.controllers() {
		if !slices.Contains(before, c) {
			node := "/dev/" + filepath.Base(c)
			f(node)
			rig.Sh(k.t, "nvme disconnect -d "+node)
			return
		}
	}
	k.t.Fatal("no controller of the other host's")
}

// controllers are folders in sysfs.
func (k *kernel) controllers() (out []string) {
	all, _ := filepath.Glob("/sys/class/nvme/nvme*")
	for _, c := range all {
		if read(c, "subsysnqn") == k.a.nqn() {
			out = append(out, c)
		}
	}
	return out
}

var multipathName = regexp.MustCompile(`^nvme\d+n1$`)

func (k *kernel) device() string {
	all, _ := filepath.Glob("/sys/class/nvme-subsystem/nvme-subsys*/nvme*n1")
	for _, d := range all {
		if multipathName.MatchString(filepath.Base(d)) && read(filepath.Dir(d), "subsysnqn") == k.a.nqn() {
			return "/dev/" + filepath.Base(d)
		}
	}
	return ""
}

func (k *kernel) wwid() (string, error) { return rig.Attribute(k.device(), "wwid") }

func (k *kernel) paths() (out [2]path, err error) {
	disks := [2]string{}
	for _, c := range k.controllers() {
		for i, p := range portals {
			addr, service, _ := strings.Cut(p, ":")
			ns, _ := filepath.Glob(c + "/nvme*c*n1")
			if !strings.Contains(read(c, "address"), "traddr="+addr+",trsvcid="+service) || len(ns) != 1 {
				continue
			}
			out[i] = path{live: read(c, "state") == "live", ana: read(ns[0], "ana_state")}
			disks[i] = filepath.Base(ns[0])
		}
	}
	if disks[0] == "" || disks[1] == "" {
		return out, nil
	}
	n, err := rig.Requests(disks)
	out[0].count, out[1].count = n[0], n[1]
	return out, err
}

func read(dir, name string) string {
	b, _ := os.ReadFile(filepath.Join(dir, name))
	return strings.TrimSpace(string(b))
}
