package main

import (
	"github.com/spf13/cobra"

	"github.com/csi-mpath/csi-mpath/pkg/datapath"
	"github.com/csi-mpath/csi-mpath/pkg/device"
)

func tuneCommand() *cobra.Command {
	var stateDir, merge string
	c := &cobra.Command{
		Use:   "tune VOLUME --merge-deadline VALUE",
		Short: "Change how an attached volume works, while it works",
		Long: `tune changes a tunable of a volume that is attached on this host, at once and
until its process ends. VOLUME is the name that 'csi-mpath paths' shows.`,
		Example: "  csi-mpath tune iqn.2026-01.com.example:vol1,lun1 --merge-deadline auto",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := device.ParseMergeDeadline(merge); err != nil {
				return usage(err)
			}
			st, err := device.SetMergeDeadline(stateDir, args[0], merge)
			if err != nil {
				return &exitError{exitFailure, err}
			}
			printTable(cmd.OutOrStdout(), []datapath.Status{st})
			return nil
		},
	}
	c.Flags().StringVar(&merge, "merge-deadline", "", "0, a duration like 20us, auto, or off")
	c.Flags().StringVar(&stateDir, "state-dir", defaultStateDir(), "state directory the volume was attached with")
	_ = c.MarkFlagRequired("merge-deadline")
	return c
}
