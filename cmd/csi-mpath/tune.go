package main

import (
	"github.com/spf13/cobra"

	"github.com/csi-mpath/csi-mpath/pkg/datapath"
	"github.com/csi-mpath/csi-mpath/pkg/device"
)

// pathSelectors is what --path-selector takes.
const pathSelectors = "service-time, round-robin, queue-length, historical-service-time or io-affinity"

func tuneCommand() *cobra.Command {
	var stateDir, merge, polling, selector string
	c := &cobra.Command{
		Use:   "tune VOLUME {--merge-deadline VALUE | --polling VALUE | --path-selector NAME}",
		Short: "Change how an attached volume works, while it works",
		Long: `tune changes tunables of a volume that is attached on this host, at once and
until its process ends. VOLUME is the name that 'csi-mpath paths' shows.`,
		Example: "  csi-mpath tune iqn.2026-01.com.example:vol1,lun1 --merge-deadline auto",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			set := map[string]string{}
			for key, value := range map[string]string{device.TuneMergeDeadline: merge, device.TunePolling: polling, device.TunePathSelector: selector} {
				if cmd.Flags().Changed(key) {
					set[key] = value
				}
			}
			for key, value := range set { // nothing is changed if one is wrong
				if err := device.CheckTunable(key, value); err != nil {
					return usage(err)
				}
			}
			var st datapath.Status
			for key, value := range set {
				var err error
				if st, err = device.Tune(stateDir, args[0], key, value); err != nil {
					return &exitError{exitFailure, err}
				}
			}
			printTable(cmd.OutOrStdout(), []datapath.Status{st})
			return nil
		},
	}
	c.Flags().StringVar(&merge, device.TuneMergeDeadline, "", "0, a duration like 20us, auto, or off")
	c.Flags().StringVar(&polling, device.TunePolling, "", "off, adaptive, or a duration like 50us")
	c.Flags().StringVar(&selector, device.TunePathSelector, "", pathSelectors)
	c.Flags().StringVar(&stateDir, "state-dir", defaultStateDir(), "state directory the volume was attached with")
	c.MarkFlagsOneRequired(device.TuneMergeDeadline, device.TunePolling, device.TunePathSelector)
	return c
}
