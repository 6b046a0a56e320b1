//go:build vm

package fabrics

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/csi-mpath/csi-mpath/test/vm/kmsg"
	"github.com/csi-mpath/csi-mpath/test/vm/rig"
)

// What only nvme-cli and the kernel's host can be asked: our target's side of
// the stories alone.

func TestDiscoveryShowsBothPorts(t *testing.T) {
	kmsg.Watch(t)
	e := newEstate(t)
	out := rig.Sh(t, "nvme discover"+flags(1))
	for _, want := range []string{`subnqn: +` + e.nqn() + `\n.*traddr: +127\.0\.0\.1\b`, `subnqn: +` + e.nqn() + `\n.*traddr: +127\.0\.0\.2\b`} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("no %s in\n%s", want, out)
		}
	}
	rig.Sh(t, "nvme connect-all"+flags(0)+" -k 5 -c 1")
	k := &kernel{t, e}
	t.Cleanup(func() { rig.Must(t, k.detach()) })
	states(t, k, "optimized", "optimized")
}

func TestANamespaceThatComesAndGoesIsSeen(t *testing.T) {
	kmsg.Watch(t)
	e := newEstate(t).(*estate)
	k := newKernel(t, e).(*kernel)
	attached(t, k, options{})
	second := strings.TrimSuffix(k.device(), "n1") + "n2"
	line := fmt.Sprintf("  - {nsid: 2, store: {ram: 8Mi}, uuid: %s}\n", namespaceUUID(900))
	rig.Must(t, e.Change("  namespaces:\n", "  namespaces:\n"+line))
	rig.Must(t, rig.WaitSize(t.Context(), second, 8*mib))
	rig.Sh(t, "dd if=/dev/urandom of="+second+" bs=1M count=8 oflag=direct status=none")
	rig.Must(t, e.Change(line, ""))
	rig.Must(t, rig.Wait("the end of "+second, func() error {
		if all, _ := filepath.Glob(second); len(all) > 0 {
			return fmt.Errorf("%v is there", all)
		}
		return nil
	}))
}

// conflict is what the kernel says of a write by who has lost its registration.
var conflict = regexp.MustCompile(`(reservation conflict|critical nexus) error, dev nvme|nvme\d+c\d+n1: I/O Cmd.*\(sct 0x0 / sc 0x83\)`)

func TestReservationsFenceAHost(t *testing.T) {
	kmsg.Watch(t, conflict)
	a := newEstate(t)
	k := newKernel(t, a).(*kernel)
	attached(t, k, options{})
	dev := k.device()
	resv := func(what, args, on string) string { return rig.Sh(t, "nvme resv-"+what+" "+on+" -n 1 "+args) }
	write := "dd if=/dev/zero of=" + dev + " bs=4k count=1 oflag=direct status=none"
	resv("register", "-r 0 -k 0x1", dev)
	resv("acquire", "-a 0 -t 3 -c 0x1", dev) // write exclusive, registrants only
	out := resv("report", "-e -o json", dev)
	if !regexp.MustCompile(`"rtype" ?: ?3\b`).MatchString(out) || strings.Count(out, "rkey") != 1 {
		t.Errorf("the reservation is %s", out)
	}
	rig.Sh(t, write+"; "+write)
	k.asOther(func(ctrl string) {
		resv("register", "-r 0 -k 0x2", ctrl)
		resv("acquire", "-a 2 -t 3 -c 0x2 -p 0x1", ctrl) // preempt and abort
	})
	if out, err := rig.Try(write); err == nil {
		t.Errorf("the host that was fenced writes: %s", out)
	}
	k.asOther(func(ctrl string) {
		resv("release", "-a 1 -t 0 -c 0x2", ctrl) // clear
	})
	rig.Sh(t, write)
}
