//go:build vm

package reclaim

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/device"
	"github.com/csi-mpath/csi-mpath/pkg/target"
	"github.com/csi-mpath/csi-mpath/test/vm/kmsg"
)

// asArray makes this test binary the array: first "exec" as one that memory
// reclaim may depend on, then "serve".
const asArray = "CSI_MPATH_TEST_ARRAY"

const volumeSize = 2 << 30

func TestMain(m *testing.M) {
	switch os.Getenv(asArray) {
	case "":
		os.Exit(kmsg.Main(m, kmsg.ServerLost, kmsg.ServerSlow))
	case "exec":
		runtime.LockOSThread()
		check(device.FlushForReclaim())
		check(os.Setenv(asArray, "serve"))
		check(syscall.Exec("/proc/self/exe", os.Args, os.Environ()))
	}
	for _, w := range device.HoldMemory() {
		check(w)
	}
	check(serve(os.Stdin, os.Stdout))
	os.Exit(0)
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serve prints the two portals, then obeys "kill N" and "start N", each
// answered by "ok", until its input ends.
func serve(in io.Reader, out io.Writer) error {
	srv, err := target.New(target.Config{LUNs: []target.LUN{{Number: 1, Store: newLean(volumeSize), Device: target.Device{BlockSize: block}}}})
	if err != nil {
		return err
	}
	var portals []*target.Portal
	for range 2 {
		p, err := srv.Listen("127.0.0.1:0")
		if err != nil {
			return err
		}
		portals = append(portals, p)
	}
	fmt.Fprintf(out, "%s,%s\n", portals[0].Addr(), portals[1].Addr())
	for s := bufio.NewScanner(in); s.Scan(); {
		var what string
		var n int
		if _, err := fmt.Sscan(s.Text(), &what, &n); err != nil || n < 0 || n > 1 {
			return fmt.Errorf("array: cannot do %q", s.Text())
		}
		if what == "kill" {
			portals[n].Kill()
		} else if err := portals[n].Start(); err != nil {
			return err
		}
		fmt.Fprintln(out, "ok")
	}
	return srv.Close()
}

// array is the running array.
type array struct {
	t       *testing.T
	portals string
	in      io.Writer
	out     *bufio.Reader
}

func startArray(t *testing.T) *array {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "-test.run=^$")
	cmd.Env = append(os.Environ(), asArray+"=exec")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = in.Close()
		must(t, cmd.Wait())
	})
	a := &array{t: t, in: in, out: bufio.NewReader(out)}
	a.portals = a.line()
	return a
}

func (a *array) line() string {
	a.t.Helper()
	s, err := a.out.ReadString('\n')
	must(a.t, err)
	return strings.TrimSpace(s)
}

// do has the array kill or start a portal.
func (a *array) do(what string, portal int) {
	a.t.Helper()
	kmsg.Say("array: %s portal %d", what, portal)
	_, err := fmt.Fprintln(a.in, what, portal)
	must(a.t, err)
	if s := a.line(); s != "ok" {
		a.t.Fatalf("array: %s", s)
	}
}
