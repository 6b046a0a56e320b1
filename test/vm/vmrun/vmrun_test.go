package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/test/vm/spec"
)

// entry is what a reader finds in an archive.
type entry struct {
	name string
	mode uint64
	body string
}

// unpackCPIO reads an archive the slow way, strictly.
func unpackCPIO(b []byte) (out []entry, err error) {
	for at := 0; ; {
		if len(b) < at+110 || string(b[at:at+6]) != "070701" {
			return nil, fmt.Errorf("no header at %d", at)
		}
		var field [13]uint64
		for i := range field {
			if field[i], err = strconv.ParseUint(string(b[at+6+8*i:at+14+8*i]), 16, 32); err != nil {
				return nil, err
			}
		}
		name := string(b[at+110 : at+110+int(field[11])-1])
		body := (at + 110 + int(field[11]) + 3) / 4 * 4
		if name == "TRAILER!!!" {
			return out, nil
		}
		out = append(out, entry{name, field[1], string(b[body : body+int(field[6])])})
		at = (body + int(field[6]) + 3) / 4 * 4
	}
}

func TestAnArchiveIsReadBackAsItWasWritten(t *testing.T) {
	var b bytes.Buffer
	a := &archive{w: &b}
	want := []entry{{"dev", modeDir, ""}}
	a.dir("dev")
	for n := range 9 { // every alignment of names and bodies
		e := entry{"m/" + strings.Repeat("n", n), modeFile, strings.Repeat("b", 8-n)}
		a.file(e.name, []byte(e.body))
		want = append(want, e)
	}
	if err := a.end(); err != nil {
		t.Fatal(err)
	}
	if got, err := unpackCPIO(b.Bytes()); err != nil || !slices.Equal(got, want) {
		t.Fatalf("got %v, %v", got, err)
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

func TestAnArchiveRemembersItsFirstError(t *testing.T) {
	a := &archive{w: full{}}
	a.dir("dev")
	if err := a.end(); !errors.Is(err, io.ErrShortWrite) {
		t.Fatalf("got %v", err)
	}
}

var depmod = map[string]string{
	"modules.dep": "kernel/fs/ext4/ext4.ko.xz: kernel/fs/jbd2/jbd2.ko.xz kernel/lib/crc16.ko.xz\n" +
		"kernel/fs/jbd2/jbd2.ko.xz:\nkernel/lib/crc16.ko.xz:\nkernel/drivers/block/nbd.ko:\n" +
		"kernel/crypto/crc32c_generic.ko.xz:\nkernel/arch/x86/crypto/crc32c-intel.ko.xz:\n",
	"modules.builtin": "kernel/drivers/virtio/virtio_pci.ko\n",
	"modules.softdep": "# Soft dependencies\nsoftdep jbd2 pre: crypto-crc32c post: nbd\n",
	"modules.alias":   "alias crypto-crc32c crc32c_intel\nalias crypto-crc32c crc32c_generic\nalias pci:v*d* nbd\n",
}

func TestModulesComeAfterWhatTheyNeed(t *testing.T) {
	m, err := readModules(func(name string) (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(depmod[name])), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	p := m.newPlan()
	if err := p.want(parseMods("ext4, nbd:nbds_max=4:max_part=0,jbd2,virtio-pci")); err != nil {
		t.Fatal(err)
	}
	want := []spec.Module{
		{File: "crc16.ko"}, {File: "crc32c_intel.ko", Optional: true}, {File: "crc32c_generic.ko", Optional: true},
		{File: "jbd2.ko"}, {File: "ext4.ko"}, {File: "nbd.ko", Params: "nbds_max=4 max_part=0"},
	}
	if !slices.Equal(p.out, want) || len(p.paths) != len(want) || p.paths[5] != "kernel/drivers/block/nbd.ko" {
		t.Fatalf("got %+v from %v", p.out, p.paths)
	}
	for bad, why := range map[string]string{"ublk_drv": "has none", "virtio_pci:a=b": "is built in"} {
		if err := m.newPlan().want(parseMods(bad)); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: got %v", bad, err)
		}
	}
}

func TestTheMetaPackageNamesTheKernel(t *testing.T) {
	const out = "linux-image-6.12-amd64\n  Depends: linux-image-6.12.117+deb12-amd64\n"
	if got := dependency(out, "6.12"); got != "linux-image-6.12.117+deb12-amd64" {
		t.Errorf("got %q", got)
	}
	if got := dependency(out, "6.1"); got != "" {
		t.Errorf("6.1 is not 6.12, and got %q", got)
	}
}

func TestTheMachineEndsAfterTheTestsOwnLimit(t *testing.T) {
	for args, want := range map[string]time.Duration{
		"x.test -test.v -test.timeout=2m": 2*time.Minute + afterTestTimeout,
		"x.test -test.timeout=0":          noTestTimeout,
		"sh -c true":                      noTestTimeout,
		"-timeout 3s x -test.timeout=1m":  3 * time.Second,
	} {
		if o, err := parse(strings.Fields(args)); err != nil || o.timeout != want {
			t.Errorf("%s: got %+v, %v", args, o, err)
		}
	}
	if _, err := parse(nil); err == nil {
		t.Error("no program, and no error")
	}
}

func TestAPackageMayWantAnotherMachine(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile(flagsFile, []byte("-m 512\n-mods nbd\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o, err := parse([]string{"-m", "2048", "-smp", "3", "x.test", "-test.v"})
	if err != nil || o.memory != 512 || o.mods != "nbd" || o.cpus != 3 || len(o.args) != 2 {
		t.Fatalf("got %+v, %v", o, err)
	}
	if err := os.WriteFile(flagsFile, []byte("-nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := parse([]string{"x.test"}); err == nil || !strings.Contains(err.Error(), flagsFile) {
		t.Fatalf("got %v", err)
	}
}

func TestTheHostsEnvironmentStaysOutside(t *testing.T) {
	got := environ([]string{"PATH=/x", "A_TOKEN=secret", "CSI_MPATH_SEED=7", "CSI_MPATH_BIN=/x/y", "GODEBUG=a=1"})
	if slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, "secret") || strings.Contains(s, "/x") }) {
		t.Errorf("got %v", got)
	}
	if !slices.Contains(got, "CSI_MPATH_SEED=7") || !slices.Contains(got, "GODEBUG=a=1") {
		t.Errorf("got %v", got)
	}
}

func TestTheMachineIsPinned(t *testing.T) {
	a := strings.Join((&machine{cpus: 2, memory: 512, log: "/a,b/log", shares: []string{"/s"}, kernelOptions: "more=1"}).args(), " ")
	for _, want := range []string{"-nodefaults", "-no-user-config", "-accel tcg,", "-cpu max,", "readonly=on", "path=/a,,b/log",
		"id=rw0,path=/s", "oops=panic", " more=1"} {
		if !strings.Contains(a, want) {
			t.Errorf("no %s in %s", want, a)
		}
	}
}

func TestARunsFolderIsSweptOnlyWhenNobodyHoldsIt(t *testing.T) {
	c := &cache{t.TempDir()}
	if err := os.Mkdir(filepath.Join(c.dir, "run"), 0o700); err != nil {
		t.Fatal(err)
	}
	killed, err := c.newRun()
	if err != nil {
		t.Fatal(err)
	}
	killed.unlock() // as the kernel does
	alive, err := c.newRun()
	if err != nil {
		t.Fatal(err)
	}
	third, err := c.newRun()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []*run{alive, third} {
		if _, err := os.Stat(r.dir); err != nil {
			t.Error(err)
		}
		r.remove()
	}
	if _, err := os.Stat(killed.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is still there: %v", killed.dir, err)
	}
}

func TestWhatTheMachineLeavesDecides(t *testing.T) {
	for _, c := range []struct {
		exit string
		why  error
		code int
		want string
	}{
		{"exit 3\n", nil, 3, ""},
		{"", nil, 0, "without an exit code"},
		{"exit 0", nil, 0, "without an exit code"},
		{"failed mount\n", nil, 0, "mount"},
		{"exit 0\n", errors.New("timeout"), 0, "timeout"},
	} {
		r := &run{dir: t.TempDir()}
		for name, text := range map[string]string{"exit": c.exit, "log": "last words\n"} {
			if err := os.WriteFile(r.file(name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		code, err := r.verdict(c.why)
		if c.want == "" && (err != nil || code != c.code) {
			t.Errorf("%+v: got %d, %v", c, code, err)
		}
		if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "last words")) {
			t.Errorf("%+v: got %v", c, err)
		}
	}
}

func TestAKernelThatMeasuredItsClockWronglyIsNoticed(t *testing.T) {
	r := &run{dir: t.TempDir()}
	if r.clockDoubtful() {
		t.Fatal("without a log")
	}
	for log, want := range map[string]bool{
		"[    0.000000] tsc: Detected 2445.426 MHz processor\n":                          false,
		"[    0.000000] tsc: PIT calibration deviates from HPET: 104031 2445426.\n[ 0.0": true,
	} {
		if err := os.WriteFile(r.file("log"), []byte(log), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := r.clockDoubtful(); got != want {
			t.Errorf("%q: %v", log, got)
		}
	}
}
