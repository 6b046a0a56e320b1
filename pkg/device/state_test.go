package device

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/durable"
	"github.com/csi-mpath/csi-mpath/pkg/nvmetcp/auth"
)

func oneISID(dir, key string) (id [6]byte, err error) {
	ids, err := isids{dir}.get(key)
	if err == nil {
		id = ids[0]
	}
	return id, err
}

func TestAPathKeepsItsISIDAcrossRestartsAndSharesItWithNobody(t *testing.T) {
	dir := t.TempDir()
	first, err := oneISID(dir, "a")
	if err != nil {
		t.Fatal(err)
	}
	other, err := oneISID(dir, "b")
	if err != nil {
		t.Fatal(err)
	}
	again, err := oneISID(dir, "a")
	if err != nil || again != first || other == first {
		t.Fatalf("%x, %x, %x, %v", first, other, again, err)
	}
	if first[0] != 0x80 {
		t.Fatalf("%x is not of the random format", first)
	}
}

func TestConcurrentPathsGetDifferentISIDs(t *testing.T) {
	dir := t.TempDir()
	var mu sync.Mutex
	seen := map[[6]byte]bool{}
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			id, err := oneISID(dir, string(rune('a'+i)))
			mu.Lock()
			defer mu.Unlock()
			if err != nil || seen[id] {
				t.Errorf("%x: %v", id, err)
			}
			seen[id] = true
		})
	}
	wg.Wait()
}

func TestADamagedOrNewerISIDFileIsAnErrorThatNamesIt(t *testing.T) {
	for _, content := range []string{"", "{", `{"version":2,"isids":{}}`, `{"version":1,"isids":{"a":"zz"}}`, `{"version":1,"isids":{"a":"8000"}}`} {
		dir := t.TempDir()
		path := filepath.Join(dir, "isids.json")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := (isids{dir}).get("a"); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: %v", content, err)
		}
	}
}

func secretFile(t *testing.T, mode os.FileMode, content string) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), "chap")
	if err := errors.Join(os.WriteFile(p, []byte(content), 0o600), os.Chmod(p, mode)); err != nil { // whatever the umask
		t.Fatal(err)
	}
	return p
}

func TestASecretFileTakesTheNamesOpenISCSIUsersKnow(t *testing.T) {
	c, err := ReadSecretFile(secretFile(t, 0o600, "# mine\nnode.session.auth.username = u1\npassword=secretsecret12\n\nusername_in=t1\nnode.session.auth.password_in=othersecret34\n"))
	if err != nil || c.User != "u1" || string(c.Secret) != "secretsecret12" || c.MutualUser != "t1" || string(c.MutualSecret) != "othersecret34" {
		t.Fatalf("%v, users %q and %q", err, c.User, c.MutualUser)
	}
}

func TestASecretFileErrorNeverQuotesTheSecret(t *testing.T) {
	for _, content := range []string{"hunter2hunter2", "passwort=hunter2hunter2", "password=hunter2hunter2", "username=u\npassword=hunter2"} {
		_, err := ReadSecretFile(secretFile(t, 0o600, content))
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v", content, err)
		}
	}
}

func TestASecretFileOthersMayReadIsRefused(t *testing.T) {
	_, err := ReadSecretFile(secretFile(t, 0o644, "username=u\npassword=secretsecret12\n"))
	if err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Fatalf("%v", err)
	}
}

func TestADHChapSecretFileHoldsOneSecretAndIsNeverQuoted(t *testing.T) {
	good := string(auth.FormatSecret(auth.SHA256, make([]byte, 32)))
	host, ctrl := secretFile(t, 0o600, good+"\n"), secretFile(t, 0o600, good)
	c, err := ReadDHChapFiles(host, ctrl)
	if err != nil || string(c.Secret) != good || !c.Mutual() {
		t.Fatalf("%v", err)
	}
	if c, err = ReadDHChapFiles("", ""); err != nil || c.Enabled() {
		t.Fatalf("%v", err)
	}
	for want, files := range map[string][2]string{
		"chmod 600":     {secretFile(t, 0o640, good), ""},
		"set both":      {"", ctrl},
		"host secret":   {secretFile(t, 0o600, "hunter2hunter2"), ""},
		"no such file":  {filepath.Join(t.TempDir(), "none"), ""},
		"controller se": {host, secretFile(t, 0o600, good[:20])},
	} {
		if _, err := ReadDHChapFiles(files[0], files[1]); err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "hunter2") {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestFileNamesAreSafeAndDistinct(t *testing.T) {
	seen := map[string]bool{}
	for _, n := range []string{"a", "A", "../../etc/passwd", strings.Repeat("x", 500), strings.Repeat("x", 501), "iqn.2026:v,lun1", "iqn.2026:v,lun-1"} {
		f := durable.FileName(n)
		if seen[f] || len(f) > 64 || strings.ContainsAny(f, "/.") {
			t.Errorf("%q became %q", n, f)
		}
		seen[f] = true
	}
}

func TestADetachForgetsAVolumeNobodyHolds(t *testing.T) {
	dir := t.TempDir()
	base := filepath.Join(dir, durable.FileName("v"))
	if err := os.WriteFile(base+".volume", []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	unlock, err := durable.Lock(base+".lock", true)
	if err != nil {
		t.Fatal(err)
	}
	if err := forgetRecord(dir, "v"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(base + ".volume"); err != nil {
		t.Fatal("a held volume was forgotten")
	}
	unlock()
	if err := forgetRecord(dir, "v"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(base + ".volume"); err == nil {
		t.Fatal("not forgotten")
	}
	if err := forgetRecord(filepath.Join(dir, "none"), "v"); err != nil {
		t.Fatal(err)
	}
}

// What the version before wrote of an iSCSI volume, of this boot.
func TestTheRecordsOfTheVersionBeforeAreRead(t *testing.T) {
	dir := t.TempDir()
	old := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, "BOOT", durable.BootID())), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	r, err := readRecord(old("v.volume", `{
 "version": 1,
 "bootID": "BOOT",
 "volume": "vol",
 "identity": {
  "Target": "iqn.2026-01.a:b",
  "Device": "naa.6001405c51d3a7b0000000000000de30",
  "Serial": "SN1",
  "Others": "6001405c51d3a7b0000000000000de30//",
  "BlockSize": 512,
  "Weak": false
 },
 "sizeBytes": 1048576
}
`))
	if err != nil || r.Size != 1<<20 || r.Identity.Target != "iqn.2026-01.a:b" || r.Identity.Serial != "SN1" {
		t.Fatalf("%+v, %v", r, err)
	}
	p := openPlaces(old("v.places", `{
 "version": 1,
 "bootID": "BOOT",
 "places": {
  "a:1": {
   "isid": "800100000000",
   "address": "a:1",
   "tpgt": 7,
   "settledBootNanoseconds": 9223372036854775807
  }
 }
}
`))
	g, left := p.get("a:1", [6]byte{0x80, 1}, time.Second)
	if want := (group{known: true, address: "a:1", tpgt: 7}); g != want || left != time.Second {
		t.Fatalf("%+v, %v", g, left)
	}
	if fence, lost := p.fence(); fence != 0 || lost {
		t.Fatalf("no controller was there, and the fence is %v, lost %v", fence, lost)
	}
	iscsi := ISCSI{Target: "iqn.2026-01.a:b", Initiator: "iqn.2026-01.a:host"}
	if got := iscsi.nexus(); got != "iqn.2026-01.a:host iqn.2026-01.a:b 0" {
		t.Fatalf("the in-flight table of an iSCSI volume has another key: %q", got)
	}
}

// LIO tells the sessions of one initiator apart by the first four bytes.
func TestThePathsOfAVolumeDifferInTheQualifierOfTheirISIDs(t *testing.T) {
	dir := t.TempDir()
	paths, err := isids{dir}.get("a", "b", "c")
	if err != nil {
		t.Fatal(err)
	}
	more, err := isids{dir}.get("c", "d")
	if err != nil {
		t.Fatal(err)
	}
	other, err := isids{dir}.get("x")
	if err != nil {
		t.Fatal(err)
	}
	group := [4]byte(paths[0][:4])
	seen := map[[6]byte]bool{}
	for _, id := range append(paths, more[1]) {
		if [4]byte(id[:4]) != group || seen[id] || id[0] != 0x80 {
			t.Errorf("%x, of group %x", id, group)
		}
		seen[id] = true
	}
	if more[0] != paths[2] || [4]byte(other[0][:4]) == group {
		t.Errorf("%x, %x, %x", paths, more, other)
	}
}
