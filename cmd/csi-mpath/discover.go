package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/csi-mpath/csi-mpath/pkg/device"
	"github.com/csi-mpath/csi-mpath/pkg/iscsi"
)

func discoverCommand() *cobra.Command {
	var initiator, secretFile, output string
	var timeout time.Duration
	c := &cobra.Command{
		Use:     "discover PORTAL",
		Short:   "List the targets and portals that an iSCSI portal offers",
		Example: "  csi-mpath discover 192.0.2.10",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg := iscsi.Config{InitiatorName: initiator, ConnectTimeout: timeout, LoginTimeout: timeout}
			var err error
			if cfg.Portal, err = device.Portal(args[0], device.ISCSIPort); err != nil {
				return usage(err)
			}
			if secretFile != "" {
				if cfg.Auth, err = device.ReadSecretFile(secretFile); err != nil {
					return usage(err)
				}
			}
			if output != "table" && output != "json" {
				return usage(fmt.Errorf("-o %q: want table or json", output))
			}
			found, err := iscsi.Discover(cmd.Context(), cfg)
			if err != nil {
				return &exitError{exitNoPath, err}
			}
			return printTargets(cmd.OutOrStdout(), found, cfg.Portal, output)
		},
	}
	c.Flags().StringVar(&initiator, "initiator", device.DefaultInitiator(), "iSCSI initiator name")
	c.Flags().StringVar(&secretFile, "chap-secret-file", "", "file with username= and password= for discovery; mode 600")
	c.Flags().DurationVar(&timeout, "timeout", 5*time.Second, "how long to wait for the portal")
	c.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	return c
}

func printTargets(out io.Writer, found []iscsi.DiscoveredTarget, portal, output string) error {
	if output == "json" {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(found)
	}
	if len(found) == 0 {
		fmt.Fprintf(out, "portal %s offers no target to this initiator\n", portal)
		return nil
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TARGET\tPORTAL\tGROUP")
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
