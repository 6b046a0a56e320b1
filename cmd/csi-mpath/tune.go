package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/csi-mpath/csi-mpath/pkg/datapath"
	"github.com/csi-mpath/csi-mpath/pkg/device"
)

func tuneCommand() *cobra.Command {
	var stateDir, merge, polling string
	c := &cobra.Command{
		Use:   "tune VOLUME {--merge-deadline VALUE | --polling VALUE}",
		Short: "Change how an attached volume works, while it works",
		Long: `tune changes tunables of a volume that is attached on this host, at once and
until its process ends. VOLUME is the name that 'csi-mpath paths' shows.`,
		Example: "  csi-mpath tune iqn.2026-01.com.example:vol1,lun1 --merge-deadline auto",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed(device.TuneMergeDeadline) {
				if _, err := device.ParseMergeDeadline(merge); err != nil {
					return usage(err)
				}
			}
			if cmd.Flags().Changed(device.TunePolling) {
				if _, err := device.ParsePolling(polling); err != nil {
					return usage(err)
				}
			}
			var st datapath.Status
			var err error
			cmd.Flags().Visit(func(f *pflag.Flag) {
				if err == nil && f.Name != "state-dir" {
					st, err = device.Tune(stateDir, args[0], f.Name, f.Value.String())
				}
			})
			if err != nil {
				return &exitError{exitFailure, err}
			}
			printTable(cmd.OutOrStdout(), []datapath.Status{st})
			return nil
		},
	}
	c.Flags().StringVar(&merge, device.TuneMergeDeadline, "", "0, a duration like 20us, auto, or off")
	c.Flags().StringVar(&polling, device.TunePolling, "", "off, adaptive, or a duration like 50us")
	c.Flags().StringVar(&stateDir, "state-dir", defaultStateDir(), "state directory the volume was attached with")
	c.MarkFlagsOneRequired(device.TuneMergeDeadline, device.TunePolling)
	return c
}
