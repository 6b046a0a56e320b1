//go:build vm

package product

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"syscall"
	"testing"
	"time"

	interop "github.com/csi-mpath/csi-mpath/test/interop/rig"
	"github.com/csi-mpath/csi-mpath/test/vm/kmsg"
	"github.com/csi-mpath/csi-mpath/test/vm/rig"
)

// sessions counts the targets' connections with the product.
func sessions(t *testing.T, x *rig.Targets) (n int) {
	t.Helper()
	for _, p := range x.Paths {
		_, port, err := net.SplitHostPort(p.Proxy.Addr())
		must(t, err)
		number, err := strconv.Atoi(port)
		must(t, err)
		one, err := rig.TCPConnections(number)
		must(t, err)
		n += one
	}
	return n
}

// nothingLeft: no device, no session.
func nothingLeft(t *testing.T, x *rig.Targets) {
	t.Helper()
	must(t, rig.WaitConnected(t.Context(), 0))
	must(t, interop.Until(t.Context(), patience, "all sessions to end", func() bool { return sessions(t, x) == 0 }))
}

// works writes and verifies a few blocks through the device.
func works(t *testing.T, device string) {
	t.Helper()
	u := newUse(t, "raw", device)
	l := u.load()
	_, err := l.Stop(within(t, patience))
	must(t, err)
	must(t, l.Verify(within(t, patience), ""))
}

func TestAProcessKilledWhileItAttachesLeavesNothingUnusable(t *testing.T) {
	kmsg.Watch(t, kmsg.ServerLost, kmsg.ServerSlow)
	x, v := attach(t, 64*mib)
	must(t, v.Detach(t.Context()))
	rng := rand.New(rand.NewPCG(1, 1))
	left := 0
	mark, begun := v.Mark(), time.Now()
	must(t, v.Start())
	served, _, err := v.Await(t.Context(), rig.Serving, mark)
	must(t, err)
	usual := served.Sub(begun)
	must(t, v.Detach(t.Context()))
	rounds := scale(t, "CSI_MPATH_MIDWAY", 6, 60)
	for round := range rounds {
		must(t, v.Start())
		interop.Pause(t.Context(), time.Duration(rng.Int64N(int64(usual*5/4))))
		v.Kill()
		all, err := rig.Connected()
		must(t, err)
		if len(all) > 1 {
			t.Fatalf("devices %v are attached, and there is one volume", all)
		}
		if left += len(all); round%2 == 0 {
			must(t, v.Detach(t.Context())) // else the next one takes it over
		}
	}
	t.Logf("killed %d times within %v of the start; a device was there after %d", rounds, (usual * 5 / 4).Round(time.Millisecond), left)
	mark = v.Mark()
	must(t, v.Start())
	_, _, err = v.Await(t.Context(), rig.Serving, mark)
	must(t, err)
	works(t, fmt.Sprint("/dev/", deviceOf(t)))
	must(t, v.Detach(t.Context()))
	nothingLeft(t, x)
}

// deviceOf is the only connected device.
func deviceOf(t *testing.T) string {
	t.Helper()
	all, err := rig.Connected()
	must(t, err)
	if len(all) != 1 {
		t.Fatalf("connected: %v, want one", all)
	}
	return all[0]
}

func TestAProcessKilledWhileItDetachesLeavesNothingUnusable(t *testing.T) {
	kmsg.Watch(t, kmsg.ServerLost, kmsg.ServerSlow)
	x, v := attach(t, 64*mib)
	rng := rand.New(rand.NewPCG(2, 2))
	left, rounds := 0, scale(t, "CSI_MPATH_MIDWAY", 6, 60)
	for range rounds {
		all := append([]int{v.PID()}, v.Workers()...) // before: looking for them takes longer than to detach
		must(t, syscall.Kill(v.PID(), syscall.SIGINT))
		interop.Pause(t.Context(), time.Duration(rng.Int64N(int64(30*time.Millisecond))))
		for _, pid := range all {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		v.Kill()
		there, err := rig.Connected()
		must(t, err)
		left += len(there)
		mark := v.Mark()
		must(t, v.Start())
		_, _, err = v.Await(t.Context(), rig.Serving, mark)
		must(t, err)
	}
	t.Logf("killed %d times within 30ms of SIGINT; the device was still there after %d", rounds, left)
	works(t, fmt.Sprint("/dev/", deviceOf(t)))
	must(t, v.Detach(t.Context()))
	nothingLeft(t, x)
}
