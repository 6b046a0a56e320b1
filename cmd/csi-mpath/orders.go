package main

import (
	"github.com/spf13/cobra"

	"github.com/csi-mpath/csi-mpath/pkg/datapath"
	"github.com/csi-mpath/csi-mpath/pkg/device"
)

// orderCommands are the verbs of 'csi-mpath paths'.
func orderCommands() []*cobra.Command {
	return []*cobra.Command{
		orderCommand(device.OrderDrain, "Keep I/O off a path, before its switch or controller is taken down", `drain keeps new I/O off a path until 'enable'; what is in flight is answered. The
session stays. The path is used only if no other is left. The last usable path
is not drained. An order holds until the process that serves the volume ends.`),
		orderCommand(device.OrderEnable, "Take drain and prefer back", ""),
		orderCommand(device.OrderPrefer, "Put I/O on a path whatever its group", `prefer puts I/O on a path, and on others that are preferred, as long as one of
them is usable and quick, whatever their access state. 'enable' takes it back.`),
		orderCommand(device.OrderFailback, "Return to the best group of paths now (--failback manual)", ""),
	}
}

func orderCommand(o device.Order, short, long string) *cobra.Command {
	var stateDir string
	use, args := string(o)+" VOLUME PATH", 2
	if o == device.OrderFailback {
		use, args = string(o)+" VOLUME", 1
	}
	c := &cobra.Command{
		Use:   use,
		Short: short,
		Long:  long,
		Args:  cobra.ExactArgs(args),
		RunE: func(cmd *cobra.Command, args []string) error {
			path := ""
			if len(args) == 2 {
				path = args[1]
			}
			st, err := device.Do(stateDir, args[0], o, path)
			if err != nil {
				return &exitError{exitFailure, err}
			}
			printTable(cmd.OutOrStdout(), []datapath.Status{st})
			return nil
		},
	}
	c.Flags().StringVar(&stateDir, "state-dir", defaultStateDir(), "state directory the volume was attached with")
	return c
}
