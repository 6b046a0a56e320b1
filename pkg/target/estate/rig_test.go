package estate

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/iscsi"
	"github.com/csi-mpath/csi-mpath/pkg/iscsi/auth"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
	"github.com/csi-mpath/csi-mpath/pkg/target/config"
)

const host = "iqn.2026-01.a:host"

// rig is an estate and its configuration as text.
type rig struct {
	*Estate
	t    *testing.T
	text string
	dir  string
	isid byte // of the last session: each is another port
}

// two is two targets on one portal, with a file at DIR/disk.
const two = `targets:
- name: iqn.2026-01.a:one
  portals: [{address: "127.0.0.1:0"}]
  luns: [{number: 0, store: {ram: 1Mi}}]
- name: iqn.2026-01.a:two
  portals: [{address: "127.0.0.1:0"}, {address: "127.0.0.2:0", group: 2}]
  groups: [{id: 2, state: non-optimized}]
  luns: [{number: 0, store: {file: DIR/disk, size: 1Mi}}, {number: 1, store: {ram: 64Ki}}]
`

var chapFiles = map[string]auth.Credentials{"/good": {User: "host", Secret: "a long secret"}}

func readSecrets(path string) (auth.Credentials, error) {
	c, ok := chapFiles[path]
	if !ok {
		return c, fmt.Errorf("%s is not there", path)
	}
	return c, nil
}

func open(t *testing.T, text string) *rig {
	t.Helper()
	r := &rig{t: t, text: text, dir: t.TempDir()}
	e, err := Open(r.parse(text), Options{Secrets: readSecrets})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	r.Estate = e
	return r
}

func (r *rig) parse(text string) *config.Config {
	r.t.Helper()
	c, err := config.Parse([]byte(strings.ReplaceAll(text, "DIR", r.dir)))
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

// change replaces a piece of the configuration and applies it.
func (r *rig) change(old, with string) error {
	r.t.Helper()
	text := strings.Replace(r.text, old, with, 1)
	if text == r.text {
		r.t.Fatalf("%q is not there", old)
	}
	err := r.Apply(r.parse(text))
	if err == nil {
		r.text = text
	}
	return err
}

func (r *rig) must(old, with string) {
	r.t.Helper()
	if err := r.change(old, with); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) config(door, name string) iscsi.Config {
	r.t.Helper()
	d := r.Door(door)
	if d == nil {
		r.t.Fatalf("no door %s", door)
	}
	r.isid++
	return iscsi.Config{Portal: d.Addr(), TargetName: name, InitiatorName: host, ISID: [6]byte{0x80, 0, 0, 0, 0, r.isid}}
}

func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func (r *rig) try(c iscsi.Config) (*iscsi.Session, error) {
	s, err := iscsi.Dial(soon(r.t), c)
	if err == nil {
		r.t.Cleanup(func() { s.Abort(errors.New("end of test")); <-s.Done() })
	}
	return s, err
}

func (r *rig) dial(door, name string) *iscsi.Session {
	r.t.Helper()
	s, err := r.try(r.config(door, name))
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

func (r *rig) discover() (names []string) {
	r.t.Helper()
	all, err := iscsi.Discover(soon(r.t), r.config("127.0.0.1:0", ""))
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range all {
		names = append(names, strings.TrimPrefix(f.Name, "iqn.2026-01.a:"))
		for _, p := range f.Portals {
			host, _, _ := net.SplitHostPort(p.Address)
			names = append(names, host)
		}
	}
	return names
}

// exec runs a command and returns its sense, zero for GOOD.
func exec(t *testing.T, s *iscsi.Session, lun uint32, put func(b []byte) int, in, out []byte) scsi.Sense {
	t.Helper()
	var cdb [scsi.CDBLen]byte
	n := put(cdb[:])
	l, err := scsi.LUNFromNumber(lun)
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Exec(soon(t), l, cdb[:n], in, out)
	if err != nil {
		t.Fatal(err)
	}
	if r.Status == scsi.StatusGood {
		return scsi.Sense{}
	}
	sense, ok := scsi.ParseSense(r.Sense)
	if !ok {
		t.Fatalf("status %02x, sense %x", r.Status, r.Sense)
	}
	return sense
}

func attention(asc, ascq byte) scsi.Sense {
	return scsi.Sense{Key: scsi.KeyUnitAttention, ASC: asc, ASCQ: ascq}
}

func capacity(t *testing.T, s *iscsi.Session, lun uint32) uint64 {
	t.Helper()
	b := make([]byte, 32)
	if bad := exec(t, s, lun, func(b []byte) int { return scsi.PutReadCapacity16(b, 32) }, b, nil); bad != (scsi.Sense{}) {
		t.Fatal(bad)
	}
	c, err := scsi.ParseCapacity16(b)
	if err != nil {
		t.Fatal(err)
	}
	return (c.LastLBA + 1) * uint64(c.BlockSize)
}

func ready(t *testing.T, s *iscsi.Session, lun uint32, want scsi.Sense) {
	t.Helper()
	if got := exec(t, s, lun, scsi.PutTestUnitReady, nil, nil); got != want {
		t.Fatalf("LUN %d: %v, want %v", lun, got, want)
	}
}
