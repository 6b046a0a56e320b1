//go:build vm

package fabrics

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/csi-mpath/csi-mpath/test/vm/kmsg"
	"github.com/csi-mpath/csi-mpath/test/vm/rig"
)

func TestMain(m *testing.M) { os.Exit(kmsg.Main(m)) }

// verify is a load that knows what it wrote, on all of the device.
func verify(t *testing.T, device string) {
	t.Helper()
	rig.Sh(t, "fio --name=v --filename="+device+" --size=16m --direct=1 --ioengine=libaio --iodepth=16 --bsrange=4k-64k --rw=randrw "+
		"--verify=crc32c --verify_backlog=64 --verify_fatal=1 --time_based --runtime=5 --randrepeat=1 --verify_state_save=0 --fsync=64 --output-format=terse")
}

func TestTwoPortsAreOneDevice(t *testing.T) {
	each(t, pairs(), func(t *testing.T, a array, h host) {
		attached(t, h, options{})
		if got, err := h.wwid(); err != nil || got != "uuid."+a.uuid() {
			t.Errorf("the device is %q, %v; want uuid.%s", got, err, a.uuid())
		}
		verify(t, h.device())
		for _, how := range []string{"", " -z"} {
			rig.Sh(t, fmt.Sprintf("dd if=/dev/urandom of=%s bs=1M count=2 oflag=direct status=none; blkdiscard%s -l 1048576 %[1]s; cmp -n 1048576 %[1]s /dev/zero", h.device(), how))
		}
		rig.Must(t, h.detach())
	})
}

func TestDigestsAreCarried(t *testing.T) {
	each(t, pairs(), func(t *testing.T, _ array, h host) {
		attached(t, h, options{digests: true})
		verify(t, h.device())
	})
}

// denied is what the kernel's target says of a command that a group's state forbids.
var denied = kmsg.Provoked("nvmet_tcp: failed cmd")

func TestAnANAFlipMovesTheIO(t *testing.T) {
	each(t, pairs(), func(t *testing.T, a array, h host) {
		attached(t, h, options{})
		l := rig.StartLoad(t, h.device())
		for _, worse := range []string{"non-optimized", "inaccessible", "persistent-loss", "change"} {
			for port := range portals {
				want := []string{"optimized", "optimized"}
				want[port] = worse
				rig.Must(t, a.ana(1-port, "optimized"))
				rig.Must(t, a.ana(port, worse))
				states(t, h, want...)
				l.GoesBy(1-port, counts(h))
			}
		}
		l.Finish()
	}, denied)
}

// lostPort is what the kernel's host says when a port does not answer.
var lostPort = regexp.MustCompile(`nvme nvme\d+: (failed to connect socket|I/O tag|starting error recovery)`)

func TestARemovedPortFailsOverAndHeals(t *testing.T) {
	each(t, pairs(), func(t *testing.T, a array, h host) {
		attached(t, h, options{})
		l := rig.StartLoad(t, h.device())
		for port := range portals {
			want := []string{"optimized", "optimized"}
			want[port] = ""
			l.TakeStall()
			rig.Must(t, a.remove(port))
			states(t, h, want...)
			l.Moves()
			t.Logf("port %d removed: longest operation %v", port, l.TakeStall().For)
			rig.Must(t, a.restore(port))
			states(t, h, "optimized", "optimized")
			l.Moves()
		}
		l.Finish()
	}, lostPort)
}

func TestGrowthIsSeenLive(t *testing.T) {
	each(t, pairs(), func(t *testing.T, a array, h host) {
		attached(t, h, options{})
		l := rig.StartLoad(t, h.device())
		rig.Must(t, a.grow(96*mib))
		rig.Must(t, rig.WaitSize(t.Context(), h.device(), 96*mib))
		rig.Sh(t, fmt.Sprintf("dd if=/dev/urandom of=%s bs=1M seek=95 count=1 oflag=direct status=none", h.device()))
		l.Finish()
	})
}

// refused is what the kernel says of an authentication that fails.
var refused = regexp.MustCompile(`nvme nvme\d+: (qid \d+: (no key|authentication (setup )?failed|.*response mismatch)|failed to connect queue)|nvmet: ctrl \d+ (qid \d+ (host response mismatch|failure1)|fatal error)`)

// key makes a secret; each is another one.
func key(t *testing.T, hmac int) string {
	t.Helper()
	return strings.TrimSpace(rig.Sh(t, fmt.Sprint("nvme gen-dhchap-key -n ", hostNQN, " -m ", hmac)))
}

func TestOnlyTheRightSecretOpens(t *testing.T) {
	right, ctrl := key(t, 1), key(t, 0)
	for _, c := range []struct {
		name         string
		demand, have [2]string // the host's and the controller's
		says         string    // our host or the kernel's; "" when it opens
	}{
		{"one way", [2]string{right, ""}, [2]string{right, ""}, ""},
		{"two ways", [2]string{right, ctrl}, [2]string{right, ctrl}, ""},
		{"no secret", [2]string{right, ""}, [2]string{}, "no host secret is set|Required key not available"},
		{"another secret", [2]string{right, ""}, [2]string{key(t, 1), ""},
			"the secrets or NQNs of both ends differ|Key was rejected by service"},
		{"another secret of the controller", [2]string{right, ctrl}, [2]string{right, key(t, 0)},
			"does not know the controller secret|Key was rejected by service"},
	} {
		t.Run(c.name, func(t *testing.T) {
			each(t, proving(), func(t *testing.T, a array, h host) {
				rig.Must(t, a.demand(c.demand[0], c.demand[1]))
				err := h.attach(options{secret: c.have[0], ctrlSecret: c.have[1]})
				if c.says != "" {
					if err == nil || !regexp.MustCompile(c.says).MatchString(err.Error()) {
						t.Errorf("want an error that says %s, got %v", c.says, err)
					}
					return
				}
				rig.Must(t, err)
				states(t, h, "optimized", "optimized")
				rig.StartLoad(t, h.device()).Finish()
			}, refused)
		})
	}
}

func TestAKernelThatCannotProveItselfIsKeptOut(t *testing.T) {
	each(t, unable(), func(t *testing.T, a array, h host) {
		rig.Must(t, a.demand(key(t, 1), ""))
		if err := h.attach(options{}); err == nil {
			t.Error("let in")
		}
	}, refused)
}
