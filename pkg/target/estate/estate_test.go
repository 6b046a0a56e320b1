package estate

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/iscsi"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
)

func TestTargetsShareAPortalAndAreDiscoveredThere(t *testing.T) {
	r := open(t, two)
	if got := r.discover(); !slices.Equal(got, []string{"one", "127.0.0.1", "two", "127.0.0.1", "127.0.0.2"}) {
		t.Fatal(got)
	}
	if n := capacity(t, r.dial("127.0.0.1:0", "iqn.2026-01.a:one"), 0); n != 1<<20 {
		t.Error(n)
	}
	if n := capacity(t, r.dial("127.0.0.2:0", "iqn.2026-01.a:two"), 1); n != 64<<10 {
		t.Error(n)
	}
	if st, err := os.Stat(filepath.Join(r.dir, "disk")); err != nil || st.Size() != 1<<20 || st.Mode().Perm() != 0o600 {
		t.Error(st, err)
	}
	all := r.Targets()
	if len(all) != 2 || len(all[1].Portals) != 2 || all[1].LUNs[0].Store != filepath.Join(r.dir, "disk") || all[0].LUNs[0].Store != "memory" {
		t.Errorf("%+v", all)
	}
}

func TestATargetComesAndGoes(t *testing.T) {
	r := open(t, two)
	s := r.dial("127.0.0.1:0", "iqn.2026-01.a:two")
	rest := two[strings.Index(two, "- name: iqn.2026-01.a:two"):]
	r.must(rest, "")
	<-s.Done()
	if got := r.discover(); !slices.Equal(got, []string{"one", "127.0.0.1"}) {
		t.Fatal(got)
	}
	if r.Door("127.0.0.2:0") != nil {
		t.Error("a door that leads nowhere is open")
	}
	if err := r.Apply(r.parse(two)); err != nil {
		t.Fatal(err)
	}
	capacity(t, r.dial("127.0.0.2:0", "iqn.2026-01.a:two"), 0)
}

func TestLUNsComeAndGo(t *testing.T) {
	r := open(t, two)
	s := r.dial("127.0.0.1:0", "iqn.2026-01.a:two")
	r.must("{number: 1, store: {ram: 64Ki}}", "{number: 5, store: {ram: 128Ki}}")
	ready(t, s, 1, scsi.SenseNoLUN)
	if n := capacity(t, s, 5); n != 128<<10 {
		t.Error(n)
	}
	ready(t, s, 0, attention(0x3F, 0x0E))
}

func TestStoresGrowUnderTheirSessions(t *testing.T) {
	r := open(t, two)
	s := r.dial("127.0.0.1:0", "iqn.2026-01.a:two")
	r.must("size: 1Mi", "size: 2Mi")
	r.must("ram: 64Ki", "ram: 96Ki")
	for lun, size := range map[uint32]uint64{0: 2 << 20, 1: 96 << 10} {
		ready(t, s, lun, attention(0x2A, 0x09))
		if n := capacity(t, s, lun); n != size {
			t.Errorf("LUN %d has %d bytes", lun, n)
		}
	}
	// The file may also grow by itself, as a volume under it does.
	if err := os.Truncate(filepath.Join(r.dir, "disk"), 3<<20); err != nil {
		t.Fatal(err)
	}
	if err := r.Apply(r.parse(r.text)); err != nil {
		t.Fatal(err)
	}
	ready(t, s, 0, attention(0x2A, 0x09))
	if n := capacity(t, s, 0); n != 3<<20 {
		t.Error(n)
	}
}

func TestALUAStatesChange(t *testing.T) {
	r := open(t, two)
	s := r.dial("127.0.0.2:0", "iqn.2026-01.a:two")
	ready(t, s, 0, scsi.Sense{})
	r.must("non-optimized", "standby")
	ready(t, s, 0, attention(0x2A, 0x06))
	if got := exec(t, s, 0, scsi.PutTestUnitReady, nil, nil); got.ASC != 0x04 || got.ASCQ != 0x0B {
		t.Error(got)
	}
}

func TestModesChange(t *testing.T) {
	r := open(t, two)
	s := r.dial("127.0.0.1:0", "iqn.2026-01.a:two")
	r.must("size: 1Mi}", "size: 1Mi}, readOnly: true")
	ready(t, s, 0, attention(0x2A, 0x01))
	if got := exec(t, s, 0, func(b []byte) int { return scsi.PutWrite16(b, 0, 1, 0) }, nil, make([]byte, 512)); got.Key != scsi.KeyDataProtect {
		t.Error(got)
	}
}

func TestAnInitiatorThatIsTakenOutIsPutOut(t *testing.T) {
	r := open(t, two)
	s := r.dial("127.0.0.1:0", "iqn.2026-01.a:one")
	r.must("- name: iqn.2026-01.a:one", "- name: iqn.2026-01.a:one\n  initiators: [iqn.2026-01.a:other]")
	<-s.Done()
	if _, err := r.try(r.config("127.0.0.1:0", "iqn.2026-01.a:one")); err == nil {
		t.Error("it is in again")
	}
	if got := r.discover(); got[0] != "two" {
		t.Error(got)
	}
}

func TestNobodyIsLetInBeforeWhatEndsHasEnded(t *testing.T) {
	for name, was := range map[string]string{"instead of another": "[iqn.2026-01.a:other]", "beside another": "[iqn.2026-01.a:other, iqn.2026-01.a:third]"} {
		t.Run(name, func(t *testing.T) {
			r := open(t, strings.Replace(two, "- name: iqn.2026-01.a:one", "- name: iqn.2026-01.a:one\n  initiators: "+was, 1))
			c := r.parse(strings.Replace(r.text, was, "["+host+", iqn.2026-01.a:third]", 1))
			p, err := r.plan(c)
			if err != nil {
				t.Fatal(err)
			}
			s := r.targets["iqn.2026-01.a:one"]
			if err := r.end(p, s, &c.Targets[0]); err != nil {
				t.Fatal(err)
			}
			if _, err := r.try(r.config("127.0.0.1:0", "iqn.2026-01.a:one")); !errors.Is(err, iscsi.ErrForbidden) {
				t.Errorf("in the middle of the change: %v", err)
			}
			if err := r.follow(p, s, c.Targets[0]); err != nil {
				t.Fatal(err)
			}
			if _, err := r.try(r.config("127.0.0.1:0", "iqn.2026-01.a:one")); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestCredentialsAreForTheLoginsToCome(t *testing.T) {
	r := open(t, two)
	r.must("- name: iqn.2026-01.a:one", "- name: iqn.2026-01.a:one\n  auth: {secretFile: /good}")
	c := r.config("127.0.0.1:0", "iqn.2026-01.a:one")
	if _, err := r.try(c); err == nil {
		t.Error("it is in without a secret")
	}
	c.Auth = chapFiles["/good"]
	if _, err := r.try(c); err != nil {
		t.Error(err)
	}
	if !r.Targets()[0].Auth {
		t.Error("the target does not say so")
	}
}

func TestPortalsComeAndGo(t *testing.T) {
	r := open(t, two)
	stays, goes := r.dial("127.0.0.1:0", "iqn.2026-01.a:two"), r.dial("127.0.0.2:0", "iqn.2026-01.a:two")
	r.must(`{address: "127.0.0.2:0", group: 2}`, `{address: "127.0.0.3:0", group: 2}`)
	<-goes.Done()
	ready(t, stays, 0, attention(0x2A, 0x06))
	capacity(t, stays, 0)
	if got := r.discover(); !slices.Equal(got[2:], []string{"two", "127.0.0.1", "127.0.0.3"}) {
		t.Error(got)
	}
	s := r.dial("127.0.0.3:0", "iqn.2026-01.a:two")
	b := make([]byte, 256)
	if bad := exec(t, s, 0, func(b []byte) int { return scsi.PutReportTPG(b, 256, false) }, b, nil); bad != (scsi.Sense{}) {
		t.Fatal(bad)
	}
	g, err := scsi.ParseReportTPG(b)
	if err != nil || len(g.Groups) != 2 || g.Find(2) == nil || g.Find(2).State != scsi.NonOptimized {
		t.Errorf("%+v %v", g, err)
	}
}

// spoilt are changes that must change nothing; what is before the mistake in
// the file would be done already by something less careful.
func TestAChangeThatCannotBeMadeChangesNothing(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = busy.Close() }()
	const head = "targets:\n- name: iqn.2026-01.a:zero\n  portals: [{address: \"127.0.0.9:0\"}]\n  luns: [{number: 0, store: {file: DIR/new, size: 64Ki}}, {number: 1, store: {file: DIR/old, size: 64Ki}}]\n"
	for name, c := range map[string]struct{ old, with, want string }{
		"secret":    {"- name: iqn.2026-01.a:two", "- name: iqn.2026-01.a:two\n  auth: {secretFile: /bad}", "/bad is not there"},
		"shrink":    {"ram: 64Ki", "ram: 32Ki", "LUN 1: 32768 bytes would shrink it from 65536"},
		"blockSize": {"ram: 64Ki}", "ram: 64Ki}, blockSize: 4096", "LUN 1: its blockSize cannot change"},
		"wwid":      {"ram: 64Ki}", "ram: 64Ki}, wwid: naa.5000000000000001", "LUN 1: its wwid or serial cannot change"},
		"store":     {"{ram: 64Ki}", "{file: DIR/other, size: 64Ki}", "LUN 1: its store cannot change"},
		"file":      {"{number: 1, store: {ram: 64Ki}}", "{number: 2, store: {file: DIR/missing}}", "does not exist: give it a size"},
		"empty":     {"{number: 1, store: {ram: 64Ki}}", "{number: 2, store: {file: /dev/null}}", "/dev/null is empty"},
		"folder":    {"{number: 1, store: {ram: 64Ki}}", "{number: 2, store: {file: DIR/no/such, size: 1Mi}}", "no such file"},
		"portal":    {"127.0.0.2:0", busy.Addr().String(), "address already in use"},
	} {
		t.Run(name, func(t *testing.T) {
			r := open(t, two)
			old := filepath.Join(r.dir, "old")
			if err := os.WriteFile(old, make([]byte, 512), 0o600); err != nil {
				t.Fatal(err)
			}
			s := r.dial("127.0.0.2:0", "iqn.2026-01.a:two")
			r.text = strings.Replace(strings.Replace(two, "targets:\n", head, 1), "size: 1Mi", "size: 2Mi", 1)
			if err := r.change(c.old, c.with); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want %q", err, c.want)
			}
			ready(t, s, 0, scsi.Sense{})
			ready(t, s, 1, scsi.Sense{})
			if n := capacity(t, s, 0); n != 1<<20 {
				t.Errorf("LUN 0 has %d bytes", n)
			}
			if got := r.discover(); !slices.Equal(got, []string{"one", "127.0.0.1", "two", "127.0.0.1", "127.0.0.2"}) {
				t.Error(got)
			}
			if _, err := os.Stat(filepath.Join(r.dir, "new")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("a file of the change is there: %v", err)
			}
			if st, err := os.Stat(old); err != nil || st.Size() != 512 {
				t.Error(st, err)
			}
			if r.Door("127.0.0.9:0") != nil {
				t.Error("a door of the change is open")
			}
		})
	}
}

func TestWhatWasWrittenIsInTheFileAfterTheEnd(t *testing.T) {
	r := open(t, two)
	s := r.dial("127.0.0.1:0", "iqn.2026-01.a:two")
	if bad := exec(t, s, 0, func(b []byte) int { return scsi.PutWrite16(b, 3, 1, 0) }, nil, []byte(strings.Repeat("x", 512))); bad != (scsi.Sense{}) {
		t.Fatal(bad)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	<-s.Done()
	b, err := os.ReadFile(filepath.Join(r.dir, "disk"))
	if err != nil || string(b[3*512:4*512]) != strings.Repeat("x", 512) {
		t.Error("the block is not there", err)
	}
	if err := r.Apply(r.parse(two)); !errors.Is(err, errClosed) {
		t.Errorf("got %v", err)
	}
}

func TestAnEstateThatCannotBeServedLeavesNothing(t *testing.T) {
	r := &rig{t: t, dir: t.TempDir()}
	c := r.parse(strings.Replace(two, "127.0.0.2:0", "192.0.2.1:1", 1) + "  unauthenticated: true\n")
	if _, err := Open(c, Options{Secrets: readSecrets}); err == nil {
		t.Fatal("it listens on an address that this machine has not")
	}
	if _, err := os.Stat(filepath.Join(r.dir, "disk")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

func TestALUNKeepsItsIdentityWhateverBecomesOfTheOthers(t *testing.T) {
	r := open(t, two)
	id := func(s *iscsi.Session) string {
		b := make([]byte, 252)
		if bad := exec(t, s, 1, func(b []byte) int { return scsi.PutInquiryVPD(b, scsi.PageDeviceID, 252) }, b, nil); bad != (scsi.Sense{}) {
			t.Fatal(bad)
		}
		return string(b[8:24])
	}
	before := id(r.dial("127.0.0.1:0", "iqn.2026-01.a:two"))
	r.must("{number: 0, store: {file: DIR/disk, size: 1Mi}}, ", "")
	if after := id(r.dial("127.0.0.1:0", "iqn.2026-01.a:two")); after != before {
		t.Errorf("%x became %x", before, after)
	}
}
