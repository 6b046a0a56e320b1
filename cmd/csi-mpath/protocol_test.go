package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/csi-mpath/csi-mpath/pkg/device"
	"github.com/csi-mpath/csi-mpath/pkg/nvmetcp/auth"
)

// parsed is what flags say.
func parsed(t *testing.T, line string) (device.Protocol, []string, error) {
	t.Helper()
	f := &protocolFlags{}
	fl := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.register(fl)
	if err := fl.Parse(strings.Fields(line)); err != nil {
		t.Fatal(err)
	}
	return f.protocol()
}

func TestTheFlagsOfOneProtocolMakeAVolume(t *testing.T) {
	for line, want := range map[string]string{
		"--iscsi a,b --target iqn.2026-01.a:b --lun 3":                           "iqn.2026-01.a:b,lun3",
		"--nvme-tcp a,b --subsystem nqn.2026-01.a:b --nsid 3 --keep-alive 10s":   "nqn.2026-01.a:b,ns3",
		"--nvme-tcp a,b --subsystem nqn.2026-01.a:b --nsid 3 --host-nqn nqn.x:y": "nqn.2026-01.a:b,ns3",
	} {
		p, portals, err := parsed(t, line)
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		cfg := device.Config{Protocol: p, Portals: portals}
		if err := cfg.Check(); err != nil || cfg.Volume() != want || len(portals) != 2 {
			t.Errorf("%s: volume %s over %v, %v", line, cfg.Volume(), portals, err)
		}
	}
}

func TestFlagsOfTwoProtocolsAreRefusedWithTheWayOut(t *testing.T) {
	for line, want := range map[string]string{
		"":                                "use --iscsi PORTAL[,PORTAL…] or --nvme-tcp PORTAL[,PORTAL…]",
		"--iscsi a --nvme-tcp b":          "all paths of a volume speak one protocol",
		"--iscsi a":                       "needs --target",
		"--nvme-tcp a":                    "needs --subsystem",
		"--nvme-tcp a --lun 1":            "--lun goes with --iscsi",
		"--iscsi a --target x --nsid 1":   "--nsid goes with --nvme-tcp",
		"--iscsi a --target x --lun much": "much",
		"--nvme-tcp a --subsystem nqn.x:y --host-id nonsense": "--host-id",
	} {
		if _, _, err := parsed(t, line); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", line, err, want)
		}
	}
}

// B-25: never plain TCP where TLS was asked for.
func TestAKeyForTLSIsRefused(t *testing.T) {
	_, _, err := parsed(t, "--nvme-tcp a --subsystem nqn.x:y --tls-key-file /key")
	if !errors.Is(err, auth.ErrTLS) {
		t.Error(err)
	}
}
