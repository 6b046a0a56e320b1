package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/iscsi"
	"github.com/csi-mpath/csi-mpath/pkg/nvmetcp"
	"github.com/csi-mpath/csi-mpath/pkg/nvmetcp/auth"
	"github.com/csi-mpath/csi-mpath/pkg/target"
	"github.com/csi-mpath/csi-mpath/pkg/target/subsystem"
)

// discover runs the command and returns what it prints.
func discover(t *testing.T, args ...string) (out string, err error) {
	t.Helper()
	var b bytes.Buffer
	c := discoverCommand()
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetOut(&b)
	c.SetErr(&b)
	c.SetArgs(append([]string{"--timeout", "1m"}, args...))
	err = c.ExecuteContext(t.Context())
	return b.String(), err
}

// subsystemAt serves a subsystem of the name and returns its portal.
func subsystemAt(t *testing.T, name string, cred auth.Credentials) string {
	t.Helper()
	s, err := subsystem.New(subsystem.Config{Name: name, Auth: cred, Namespaces: []subsystem.Namespace{{ID: 1, Store: target.NewRAM(1 << 20)}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	p, err := s.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return p.Addr()
}

func TestDiscoverListsTheTargetsOfAnISCSIPortal(t *testing.T) {
	r := runTargets(t)
	at := served.FindString(r.line("ready:"))
	r.line("    csi-mpath attach")
	for _, args := range [][]string{{at}, {"--iscsi", at}} {
		if out, err := discover(t, args...); err != nil || strings.Join(strings.Fields(out), " ") != "TARGET PORTAL GROUP iqn.2026-01.a:one "+at+" 1" {
			t.Errorf("%v: %s, %v", args, out, err)
		}
	}
	for _, args := range [][]string{{at, "--json"}, {"--iscsi", at, "-o", "json"}} {
		out, err := discover(t, args...)
		var found []iscsi.DiscoveredTarget
		if err := errors.Join(err, json.Unmarshal([]byte(out), &found)); err != nil || len(found) != 1 || found[0].Portals[0].Address != at {
			t.Errorf("%v: %s, %v", args, out, err)
		}
	}
	r.end()
}

func TestDiscoverListsTheSubsystemsOfAnNVMePortal(t *testing.T) {
	at := subsystemAt(t, "nqn.2026-01.a:one", auth.Credentials{})
	if out, err := discover(t, "--nvme-tcp", at); err != nil || strings.Join(strings.Fields(out), " ") != "SUBSYSTEM PORTAL PORT ID TLS nqn.2026-01.a:one "+at+" 1 -" {
		t.Errorf("%s, %v", out, err)
	}
	out, err := discover(t, "--nvme-tcp", at, "--json")
	var found nvmetcp.Discovery
	if err := errors.Join(err, json.Unmarshal([]byte(out), &found)); err != nil || len(found.Subsystems) != 1 || found.Subsystems[0].Portals[0].Address != at {
		t.Errorf("%s, %v", out, err)
	}
}

func TestDiscoverProvesItselfToAnNVMePortal(t *testing.T) {
	secret := auth.FormatSecret(auth.SHA256, []byte("a secret of the host of 32 bytes"))
	at := subsystemAt(t, "nqn.2026-01.a:one", auth.Credentials{Secret: secret, Groups: auth.GroupSet(auth.Null)})
	file := filepath.Join(t.TempDir(), "secret")
	write(t, file, string(secret)+"\n")
	if out, err := discover(t, "--nvme-tcp", at, "--dhchap-secret-file", file); err != nil || !strings.Contains(out, at) {
		t.Errorf("%s, %v", out, err)
	}
	_, err := discover(t, "--nvme-tcp", at)
	var code *exitError
	if !errors.As(err, &code) || code.code != exitNoPath || !errors.Is(err, auth.ErrNoSecret) {
		t.Error(err)
	}
}

func TestTheTableNamesWhatNeedsTLS(t *testing.T) {
	var b bytes.Buffer
	err := printSubsystems(&b, []nvmetcp.DiscoveredSubsystem{{NQN: "nqn.x:y", Portals: []nvmetcp.DiscoveredPortal{{Address: "a:1", PortID: 2, TLS: true}}}}, "p")
	if err != nil || !strings.HasSuffix(strings.TrimSpace(b.String()), "required") {
		t.Error(b.String(), err)
	}
}

func TestDiscoverIsAskedForOnePortal(t *testing.T) {
	for _, args := range [][]string{{}, {"a", "--iscsi", "b"}, {"a", "--nvme-tcp", "b"}, {"--iscsi", "a", "--nvme-tcp", "b"},
		{"a", "-o", "xml"}, {"--nvme-tcp", "a/b"}, {"--nvme-tcp", "a", "--host-id", "x"}, {"--nvme-tcp", "a", "--tls-key-file", "x"},
		{"--nvme-tcp", "a", "--dhchap-secret-file", "/does/not/exist"}} {
		_, err := discover(t, args...)
		var code *exitError
		if !errors.As(err, &code) || code.code != exitUsage {
			t.Errorf("%v: %v", args, err)
		}
	}
}

func TestWhoLeftThePortOutIsToldOfTheOtherOne(t *testing.T) {
	refused := fmt.Errorf("dial: %w", syscall.ECONNREFUSED)
	for asked, hint := range map[string]bool{"192.0.2.1": true, "[2001:db8::1]": true, "192.0.2.1:8009": false, "[2001:db8::1]:8009": false} {
		if err := hintAtPort(refused, asked); strings.Contains(err.Error(), "4420") != hint || !errors.Is(err, refused) {
			t.Errorf("%s: %v", asked, err)
		}
	}
	if err := hintAtPort(io.EOF, "192.0.2.1"); !errors.Is(err, io.EOF) || strings.Contains(err.Error(), "4420") {
		t.Error(err)
	}
}
