package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/csi-mpath/csi-mpath/pkg/device"
	"github.com/csi-mpath/csi-mpath/pkg/iscsi"
	"github.com/csi-mpath/csi-mpath/pkg/nvmetcp"
	"github.com/csi-mpath/csi-mpath/pkg/portal"
)

// discoverFlags are what 'csi-mpath discover' was asked.
type discoverFlags struct {
	discoverISCSI
	discoverNVMe
	timeout time.Duration
	output  string
	json    bool
}

func discoverCommand() *cobra.Command {
	var f discoverFlags
	c := &cobra.Command{
		Use:   "discover {[--iscsi] PORTAL | --nvme-tcp PORTAL}",
		Short: "List the targets or subsystems, and their portals, that a portal knows",
		Long: `discover asks an iSCSI portal for its targets, or an NVMe/TCP discovery controller,
and those that it refers to, for subsystems. What cannot be used is named on
standard error, with the reason.`,
		Example: "  csi-mpath discover 192.0.2.10\n  csi-mpath discover --nvme-tcp 192.0.2.10",
		Args:    cobra.MaximumNArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	fl := c.Flags()
	fl.StringVar(&f.iscsiPortal, "iscsi", "", "iSCSI portal, host[:port] or [IPv6]:port")
	fl.StringVar(&f.nvmePortal, "nvme-tcp", "", "NVMe/TCP portal of a discovery controller; the port is "+portal.NVMeDiscoveryPort+" when left out")
	fl.StringVar(&f.initiator, "initiator", device.DefaultInitiator(), "iSCSI: name of the initiator")
	fl.StringVar(&f.secretFile, "chap-secret-file", "", "iSCSI: file with username= and password= for discovery; mode 600")
	f.host.register(fl)
	fl.DurationVar(&f.timeout, "timeout", 5*time.Second, "how long to wait for each portal that is asked")
	fl.StringVarP(&f.output, "output", "o", "table", "table or json")
	fl.BoolVar(&f.json, "json", false, "the same as -o json")
	return c
}

func (f *discoverFlags) run(cmd *cobra.Command, args []string) error {
	if len(args) == 1 && f.iscsiPortal == "" {
		f.iscsiPortal, args = args[0], nil
	}
	if f.json {
		f.output = "json"
	}
	switch {
	case len(args) > 0 || (f.iscsiPortal == "") == (f.nvmePortal == ""):
		return usage(errors.New("give one portal to ask: PORTAL, --iscsi PORTAL or --nvme-tcp PORTAL"))
	case f.output != "table" && f.output != "json":
		return usage(fmt.Errorf("-o %q: want table or json", f.output))
	case f.nvmePortal != "":
		return f.discoverNVMe.run(cmd, f.timeout, f.output)
	}
	return f.discoverISCSI.run(cmd, f.timeout, f.output)
}

type discoverISCSI struct {
	iscsiPortal, initiator, secretFile string
}

func (f *discoverISCSI) run(cmd *cobra.Command, timeout time.Duration, output string) (err error) {
	cfg := iscsi.Config{InitiatorName: f.initiator, ConnectTimeout: timeout, LoginTimeout: timeout}
	if cfg.Portal, err = portal.Normalize(f.iscsiPortal, portal.ISCSIPort); err != nil {
		return usage(err)
	}
	if f.secretFile != "" {
		if cfg.Auth, err = device.ReadSecretFile(f.secretFile); err != nil {
			return usage(err)
		}
	}
	found, err := iscsi.Discover(cmd.Context(), cfg)
	if err != nil {
		return &exitError{exitNoPath, err}
	}
	out := cmd.OutOrStdout()
	if output == "json" {
		return printJSON(out, found)
	}
	return printTargets(out, found, cfg.Portal)
}

type discoverNVMe struct {
	nvmePortal string
	host       nvmeHostFlags
}

func (f *discoverNVMe) run(cmd *cobra.Command, timeout time.Duration, output string) (err error) {
	cfg := nvmetcp.Config{ConnectTimeout: timeout, LoginTimeout: timeout}
	if cfg.Portal, err = portal.Normalize(f.nvmePortal, portal.NVMeDiscoveryPort); err != nil {
		return usage(err)
	}
	if cfg.HostNQN, cfg.HostID, cfg.Auth, err = f.host.read(); err != nil {
		return usage(err)
	}
	if cfg.HostNQN == "" {
		cfg.HostNQN = device.DefaultHostNQN()
	}
	if cfg.HostID == [16]byte{} {
		cfg.HostID = device.HostIDOf(cfg.HostNQN)
	}
	found, err := nvmetcp.Discover(cmd.Context(), cfg)
	if err != nil {
		return &exitError{exitNoPath, hintAtPort(err, f.nvmePortal)}
	}
	out := cmd.OutOrStdout()
	if output == "json" {
		return printJSON(out, found)
	}
	for _, s := range found.Skipped {
		fmt.Fprintln(cmd.ErrOrStderr(), "skipped:", s)
	}
	return printSubsystems(out, found.Subsystems, cfg.Portal)
}

// hintAtPort: many targets serve discovery at the port for I/O only.
func hintAtPort(err error, asked string) error {
	if _, _, portLeftOut := net.SplitHostPort(asked); portLeftOut == nil || !errors.Is(err, syscall.ECONNREFUSED) {
		return err
	}
	return fmt.Errorf("%w; perhaps port %s, that of I/O, serves discovery too: give it with the portal", err, portal.NVMePort)
}

func printJSON(out io.Writer, found any) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(found)
}

func newTable(out io.Writer, columns string) *tabwriter.Writer {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, columns)
	return w
}

func printTargets(out io.Writer, found []iscsi.DiscoveredTarget, portal string) error {
	if len(found) == 0 {
		fmt.Fprintf(out, "portal %s offers no target to this initiator\n", portal)
		return nil
	}
	w := newTable(out, "TARGET\tPORTAL\tGROUP")
	for _, t := range found {
		if len(t.Portals) == 0 {
			fmt.Fprintf(w, "%s\t%s\t-\n", t.Name, portal)
		}
		for _, p := range t.Portals {
			fmt.Fprintf(w, "%s\t%s\t%d\n", t.Name, p.Address, p.TPGT)
		}
	}
	return w.Flush()
}

func printSubsystems(out io.Writer, found []nvmetcp.DiscoveredSubsystem, portal string) error {
	if len(found) == 0 {
		fmt.Fprintf(out, "portal %s knows no subsystem for this host\n", portal)
		return nil
	}
	w := newTable(out, "SUBSYSTEM\tPORTAL\tPORT ID\tTLS")
	for _, s := range found {
		for _, p := range s.Portals {
			fmt.Fprintf(w, "%s\t%s\t%d\t%s\n", s.NQN, p.Address, p.PortID, map[bool]string{true: "required", false: "-"}[p.TLS])
		}
	}
	return w.Flush()
}
