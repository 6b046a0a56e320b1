//go:build vm

package initiator

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/csi-mpath/csi-mpath/test/vm/kmsg"
	"github.com/csi-mpath/csi-mpath/test/vm/rig"
)

var group = regexp.MustCompile(`policy='service-time 0' prio=(\d+) status=(\w+)`)

func TestMultipathShowsTwoPriorityGroups(t *testing.T) {
	kmsg.Watch(t)
	a := begin(t)
	a.attach()
	out := ""
	rig.Must(t, wait("two groups, the optimized one in use", func() error {
		out = rig.Sh(t, "multipath -ll "+a.wwid)
		status := map[string]string{}
		for _, g := range group.FindAllStringSubmatch(out, -1) {
			status[g[1]] = g[2]
		}
		// Which one is listed first depends on which login came first.
		if len(status) != 2 || status["50"] != "active" || status["10"] != "enabled" {
			return fmt.Errorf("%s", out)
		}
		return nil
	}))
	for _, want := range []string{"CSIMPATH", "hwhandler='1 alua'", "size=64M"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %s in\n%s", want, out)
		}
	}
	rig.Sh(t, "fio --name=v --filename="+a.device()+" --size=16m --direct=1 --ioengine=libaio --iodepth=16 --bs=4k --rw=randrw "+
		"--verify=crc32c --verify_backlog=64 --verify_fatal=1 --time_based --runtime=5 --randrepeat=1 --verify_state_save=0 --fsync=64 --output-format=terse")
	rig.Sh(t, "blkdiscard "+a.device()+" && cmp -n 1048576 "+a.device()+" /dev/zero")
}

func TestAWrongSecretIsRefused(t *testing.T) {
	kmsg.Watch(t)
	a := begin(t)
	a.set("node.session.auth.password", "not this secret")
	if out, err := rig.Try("iscsiadm -m node -T " + a.name + " --login"); err == nil || !strings.Contains(out, "authorization failure") {
		t.Fatalf("%v: %s", err, out)
	}
}

// refused is what the kernel says of I/O that a standby path refuses, and that
// goes elsewhere then.
var refused = regexp.MustCompile(`I/O error, dev sd`)

func TestAnALUAFlipMovesTheIO(t *testing.T) {
	kmsg.Watch(t, refused)
	a := begin(t)
	a.attach()
	l := a.load()
	disks, err := a.disks()
	rig.Must(t, err)
	for i, state := range []string{"groups: [{id: 1, state: non-optimized}]", "groups: [{id: 2, state: non-optimized}]",
		"groups: [{id: 1, state: standby}]", "groups: [{id: 2, state: standby}]"} {
		now := (i + 1) % 2 // the portal that is optimized
		rig.Must(t, a.e.Change(a.e.Between("groups:", "\n"), state))
		rig.Must(t, wait("the priorities", func() error {
			all, err := a.paths()
			if err == nil && (all[now].prio != "50" || all[1-now].prio == "50") {
				err = fmt.Errorf("they are %+v", all)
			}
			return err
		}))
		l.GoesBy(now, func() ([2]int, error) { return rig.Requests(disks) })
	}
	l.Finish()
}

// lostPath is what the kernel says when a session is lost and the I/O on it
// goes elsewhere.
var lostPath = regexp.MustCompile(`(I/O error, dev sd|connection\d+:0: detected conn error|session\d+: session recovery timed out|` +
	`sd \d+:0:0:\d+: (rejecting I/O to offline device|\[sd\w+\] Synchronize Cache|alua: )|connection\d+:0: (ping timeout|Could not send nopout))`)

func TestAKilledPortalFailsOverAndHeals(t *testing.T) {
	kmsg.Watch(t, lostPath)
	a := begin(t)
	a.attach()
	l := a.load()
	for i, p := range portals {
		other := "active"
		want := []string{other, other}
		want[i] = "failed"
		l.TakeStall()
		kmsg.Say("portal %s is killed", p)
		a.e.Door(p).Kill()
		rig.Must(t, a.states(want...))
		l.Moves()
		t.Logf("portal %s killed: longest operation %v", p, l.TakeStall().For)
		rig.Must(t, a.e.Door(p).Start())
		rig.Must(t, a.states("active", "active"))
		l.Moves()
	}
	l.Finish()
}

func TestGrowthReachesTheMap(t *testing.T) {
	kmsg.Watch(t)
	a := begin(t)
	a.attach()
	l := a.load()
	rig.Must(t, a.e.Change("ram: 64Mi", "ram: 96Mi"))
	rig.Sh(t, "iscsiadm -m session --rescan")
	rig.Must(t, wait("the new size", func() error {
		out, err := rig.Try("multipathd resize map " + a.wwid + " && blockdev --getsize64 " + a.device())
		if err == nil && !strings.HasSuffix(strings.TrimSpace(out), strconv.Itoa(96*mib)) {
			err = fmt.Errorf("%s", out)
		}
		return err
	}))
	rig.Sh(t, fmt.Sprintf("dd if=/dev/urandom of=%s bs=1M seek=95 count=1 oflag=direct status=none", a.device()))
	l.Finish()
}

func TestALUNThatComesIsFoundByARescan(t *testing.T) {
	kmsg.Watch(t)
	a := begin(t)
	a.attach()
	second := a.wwid[1:len(a.wwid)-1] + "1"
	rig.Must(t, a.e.Change("  luns:\n", "  luns:\n  - {number: 1, store: {ram: 8Mi}, wwid: naa."+second+"}\n"))
	rig.Sh(t, "iscsiadm -m session --rescan")
	b := *a
	b.wwid = "3" + second
	t.Cleanup(func() { rig.Sh(t, "udevadm settle -t 60; multipath -f "+b.wwid) })
	rig.Must(t, wait("the new map", func() error {
		out, err := rig.Try("multipath -ll " + b.wwid)
		if err == nil && strings.Count(out, "active ready running") != 2 {
			err = fmt.Errorf("%s", out)
		}
		return err
	}))
	rig.Sh(t, "dd if=/dev/urandom of="+b.device()+" bs=1M count=8 oflag=direct status=none")
}

// fenced is what the kernel says of a write by who has lost its registration.
var fenced = regexp.MustCompile(`reservation conflict|(critical nexus|reservation conflict|I/O) error, dev sd`)

func TestReservationsFenceAPath(t *testing.T) {
	kmsg.Watch(t, fenced)
	a := begin(t)
	a.attach()
	disks, err := a.disks()
	rig.Must(t, err)
	one, two := "/dev/"+disks[0], "/dev/"+disks[1]
	sg := func(args, dev string) string { return rig.Sh(t, "sg_persist -n "+args+" "+dev) }
	put := "dd if=/dev/zero bs=4k count=1 oflag=direct status=none of="
	sg("--out --register --param-sark=0x1", one)
	sg("--out --register --param-sark=0x2", two)
	sg("--out --reserve --param-rk=0x1 --prout-type=5", one) // write exclusive, registrants only
	if out := sg("--in -r", two); !strings.Contains(out, "Key=0x1") || !strings.Contains(out, "Write Exclusive, registrants only") {
		t.Errorf("the reservation is %s", out)
	}
	rig.Sh(t, put+one+"; "+put+two)
	sg("--out --preempt-abort --param-rk=0x2 --param-sark=0x1 --prout-type=5", two)
	if out := sg("--in -k", two); strings.Contains(out, "0x1") || !strings.Contains(out, "0x2") {
		t.Errorf("the keys are %s", out)
	}
	rig.Sh(t, put+two)
	if out, err := rig.Try(put + one); err == nil {
		t.Errorf("the path that was fenced writes: %s", out)
	}
	sg("--out --clear --param-rk=0x2", two)
	rig.Sh(t, put+one)
}
