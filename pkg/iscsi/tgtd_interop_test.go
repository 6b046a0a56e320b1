//go:build interop

package iscsi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/iscsi/auth"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
	"github.com/csi-mpath/csi-mpath/test/port"
)

const tgtName = "iqn.2026-01.io.csi-mpath:t1"

// tgtd starts Debian's tgt with one target, one LUN and returns its portal.
func tgtd(t *testing.T, extra ...[]string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "x")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	img := filepath.Join(dir, "lun1.img")
	if err := os.WriteFile(img, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(img, 256<<20); err != nil {
		t.Fatal(err)
	}
	held, err := port.Hold()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = held.Close() })
	portal := held.Addr()
	env := append(os.Environ(), "TGT_IPC_SOCKET="+filepath.Join(dir, "ipc"))
	cmd := exec.Command("tgtd", "-f", "--iscsi", "portal="+portal)
	cmd.Env = env
	if err := cmd.Start(); err != nil {
		t.Fatalf("tgtd (Debian package tgt): %v", err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	adm := func(args ...string) error {
		c := exec.Command("tgtadm", append([]string{"--lld", "iscsi"}, args...)...)
		c.Env = env
		out, err := c.CombinedOutput()
		if err != nil {
			return fmt.Errorf("tgtadm %v: %w: %s", args, err, out)
		}
		return nil
	}
	wait := time.After(patience)
	for adm("--op", "new", "--mode", "target", "--tid", "1", "-T", tgtName) != nil {
		select {
		case <-wait:
			t.Fatal("tgtd does not answer")
		case <-time.After(50 * time.Millisecond):
		}
	}
	for _, args := range append([][]string{
		{"--op", "new", "--mode", "logicalunit", "--tid", "1", "--lun", "1", "--bstype", "rdwr", "-b", img},
		{"--op", "update", "--mode", "logicalunit", "--tid", "1", "--lun", "1", "--params",
			"vendor_id=MPATH,product_id=DISK,scsi_sn=SN0001,thin_provisioning=1"},
		{"--op", "bind", "--mode", "target", "--tid", "1", "-I", "ALL"}}, extra...) {
		if err := adm(args...); err != nil {
			t.Fatal(err)
		}
	}
	return portal
}

func tgtConfig(portal string) Config {
	return Config{Portal: portal, InitiatorName: "iqn.2026-01.io.csi-mpath:i1", TargetName: tgtName,
		ISID: [6]byte{0x80, 1, 2, 3, 4, 5}}
}

func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func open(t *testing.T, cfg Config) (*Session, *LUN, *waiter) {
	t.Helper()
	ctx := deadline(t)
	s, err := Dial(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Abort(ErrLoggedOut); <-s.Done() })
	id, err := s.Identify(ctx, 1<<48)
	if err != nil {
		t.Fatal(err)
	}
	w := newWaiter()
	l := s.LUN(scsi.LUN(1<<48), 64, w)
	l.SetProfile(&id.Profile)
	return s, l, w
}

func TestTgtdServesVerifiedReadsAndWrites(t *testing.T) {
	s, l, w := open(t, tgtConfig(tgtd(t)))
	rng := rand.New(rand.NewPCG(1, 2))
	for _, size := range []int{512, 4096, 8192, 65536, 300 << 10, 1 << 20} {
		var writes, reads []*blk.Command
		for i := range 24 {
			buf := make([]byte, size)
			for j := range buf {
				buf[j] = byte(rng.Uint32())
			}
			writes = append(writes, &blk.Command{Op: blk.Write, Flags: blk.FUA, Off: uint64(i * size), Len: uint32(size), Buf: buf})
			reads = append(reads, &blk.Command{Op: blk.Read, Off: uint64(i * size), Len: uint32(size), Buf: make([]byte, size)})
		}
		do(t, l, w, writes...)
		do(t, l, w, reads...)
		for i := range reads {
			if !bytes.Equal(writes[i].Buf, reads[i].Buf) {
				t.Fatalf("size %d: block %d differs", size, i)
			}
		}
	}
	buf := bytes.Repeat([]byte{1}, 8192)
	do(t, l, w, &blk.Command{Op: blk.Flush}, &blk.Command{Op: blk.Trim, Off: 0, Len: 1 << 20})
	do(t, l, w, &blk.Command{Op: blk.WriteZeroes, Off: 0, Len: 1 << 20})
	do(t, l, w, &blk.Command{Op: blk.Read, Off: 8192, Len: 8192, Buf: buf})
	if !bytes.Equal(buf, make([]byte, 8192)) {
		t.Error("not zero after write-zeroes")
	}
	if l.Latency() <= 0 {
		t.Error("no latency measured")
	}
	luns, err := s.ReportLUNs(deadline(t))
	if err != nil || len(luns) != 2 || luns[1] != 1<<48 {
		t.Errorf("LUNs %v, %v", luns, err)
	}
	l.Close()
	if err := s.Logout(deadline(t)); err != nil {
		t.Error(err)
	}
}

func TestTgtdServesDigests(t *testing.T) {
	cfg := tgtConfig(tgtd(t,
		[]string{"--op", "update", "--mode", "target", "--tid", "1", "--name", "HeaderDigest", "--value", "CRC32C"},
		[]string{"--op", "update", "--mode", "target", "--tid", "1", "--name", "DataDigest", "--value", "CRC32C"}))
	cfg.HeaderDigest, cfg.DataDigest = DigestCRC32C, DigestCRC32C
	_, l, w := open(t, cfg)
	for _, size := range []int{512, 8192, 1 << 20} {
		out, in := bytes.Repeat([]byte{byte(size >> 9)}, size), make([]byte, size)
		do(t, l, w, &blk.Command{Op: blk.Write, Len: uint32(size), Buf: out})
		do(t, l, w, &blk.Command{Op: blk.Read, Len: uint32(size), Buf: in})
		if !bytes.Equal(in, out) {
			t.Fatalf("%d bytes differ", size)
		}
	}
}

func TestTgtdChecksCHAP(t *testing.T) {
	portal := tgtd(t,
		[]string{"--op", "new", "--mode", "account", "--user", "u1", "--password", "secretsecret12"},
		[]string{"--op", "bind", "--mode", "account", "--tid", "1", "--user", "u1"},
		[]string{"--op", "new", "--mode", "account", "--user", "out", "--password", "othersecret123"},
		[]string{"--op", "bind", "--mode", "account", "--tid", "1", "--user", "out", "--outgoing"})
	one := auth.Credentials{User: "u1", Secret: "secretsecret12"}
	mutual := one
	mutual.MutualUser, mutual.MutualSecret = "out", "othersecret123"
	wrong, wrongTarget := one, mutual
	wrong.Secret = "secretsecret13"
	wrongTarget.MutualSecret = "othersecret124"
	for name, c := range map[string]struct {
		cred auth.Credentials
		ok   bool
	}{"one-way": {one, true}, "mutual": {mutual, true}, "none": {auth.Credentials{}, false},
		"wrong": {wrong, false}, "wrong target": {wrongTarget, false}} {
		cfg := tgtConfig(portal)
		cfg.Auth = c.cred
		s, err := Dial(deadline(t), cfg)
		if c.ok != (err == nil) || !c.ok && !errors.Is(err, ErrAuth) {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			err = s.Logout(deadline(t))
		}
		t.Logf("%s: %v", name, err)
	}
}

func TestTgtdIsDiscovered(t *testing.T) {
	portal := tgtd(t)
	found, err := Discover(deadline(t), tgtConfig(portal))
	if err != nil || len(found) != 1 || found[0].Name != tgtName || len(found[0].Portals) == 0 || found[0].Portals[0].Address != portal {
		t.Fatalf("%+v, %v", found, err)
	}
}
