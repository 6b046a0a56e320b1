package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/csi-mpath/csi-mpath/pkg/device"
)

func detachCommand() *cobra.Command {
	var timeout time.Duration
	var stateDir string
	c := &cobra.Command{
		Use:   "detach VOLUME",
		Short: "Remove the block device of a volume (attach --device)",
		Long: `detach removes the kernel's block device of a volume, whether its attach runs or
not. A device in use is left alone. VOLUME is the name that 'csi-mpath paths'
shows: the one given with --name, or target and LUN.`,
		Example: "  csi-mpath detach iqn.2026-01.com.example:vol1,lun1",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			path, err := device.DetachKernel(ctx, args[0], stateDir)
			if err != nil {
				return &exitError{exitFailure, err}
			}
			fmt.Fprintf(cmd.OutOrStdout(), "detached %s from %s\n", args[0], path)
			return nil
		},
	}
	c.Flags().DurationVar(&timeout, "timeout", 10*time.Second, "how long the kernel may take")
	c.Flags().StringVar(&stateDir, "state-dir", defaultStateDir(), "state directory the volume was attached with")
	return c
}
